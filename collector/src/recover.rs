//! Makes a report of a run whose launcher and collector were both killed. It reads what they left in shared memory. The state file has
//! the last snapshot of the run (checkpoint) and the journal of what came after it. The segment has records of processes.
//!
//! The files are not changed, so a recovery that fails can be repeated.

mod load;
mod so_far;

use std::io;
use std::path::Path;

use thiserror::Error;

use self::load::{Collector, LoadedRun, load_run, note_the_dead};
pub use self::so_far::{NotRecorded, SoFar, so_far, was_killed};
use crate::build::{self, Inputs};
use crate::model::config::{Config, ReportConfig};
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::model::policy::BudgetPolicy;
use crate::model::report::{Report, Stage, Topic, Warning};
use crate::model::run_end::RunEnd;
use crate::run::RunState;
use crate::sample_passes::Passes;
use crate::sinks::bundle;
use crate::sources::cgroup::{self, run_cgroup};
use crate::sources::sampler::Sampler;
use crate::store::output_lock::OutputLock;
use crate::store::replay_journal::{self, JournaledRun, ReplayError, Replayed};
use crate::store::stale::Stale;
use crate::store::state_file::StateFile;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::{Segment, SegmentError};

/// Only the version that wrote a state can read it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a run can't be recovered; a line about "it", the run.
#[derive(Debug, Error)]
pub enum NotRecovered {
    /// The state file has nothing from which a report could be made.
    #[error("nothing was kept of it: it was killed as it began, or there was no room")]
    Nothing,
    /// The collector was killed after it had written the report.
    #[error("its report was written")]
    Reported,
    /// The state file has something that can't be read as a state.
    #[error("its state is damaged")]
    Damaged,
    /// Another version wrote the state file, and only that version can read it.
    #[error("it was tracked by gpu-track-run {0}, which alone can recover it")]
    OtherVersion(String),
    /// The kernel refused to read the state file.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// The segment can't be opened or mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// What could be recovered of a run.
#[derive(Debug)]
pub struct Recovered {
    /// The report.
    pub report: Report,
    config: Config,
}

/// Writes what a recovery needs besides the run's snapshots into the state file: the configuration and the machine.
pub fn note(state: &StateFile, config: &Config, host: &HostInfo) {
    if let Ok(bytes) = serde_json::to_vec(&(VERSION, config, host)) {
        // If there is no space for it, there is none for a checkpoint either.
        let _ = state.save_run(&bytes);
    }
}

/// Makes the report of a session whose files were left behind. If processes of it still run and can be seen from here, the report ends
/// now, with a last sample of them. Otherwise it ends at the last time at which anything is known of the run. `root`: /proc.
///
/// # Errors
/// See [`NotRecovered`].
pub fn recover(stale: &Stale, root: &ProcRoot) -> Result<Recovered, NotRecovered> {
    let now_ns = clock::monotonic_ns();
    let state = StateFile::from_named(stale.state.as_ref().ok_or(NotRecovered::Nothing)?.try_clone()?)?;
    let loaded = load_run(&state, stale.segment.as_ref(), Collector::Gone, now_ns)?;
    let LoadedRun { config, host, segment, mut run, is_cut_short } = loaded;
    // A forged record can claim a time that is still to come.
    let known_ns = run.tree.last_seen_ns().max(run.sampled_ns).min(now_ns);
    // In another pid namespace, the run's pids are those of other processes.
    let is_here = root.pid_ns(std::process::id()) == Some(config.start.pid_ns);
    let has_living = is_here && note_the_dead(&mut run, &host, root, known_ns, now_ns);
    let end_ns = if has_living { now_ns } else { known_ns };
    // A last sample reads the processes that still live.
    let living = has_living.then(|| passes(&run, &host, root));
    let run = finish(JournaledRun::new(run), living, end_ns);
    let stage = Stage::Recovered;
    let end = RunEnd { stage, ..end_at(end_ns, &config, segment.as_ref(), is_cut_short) };
    let mut report = build::report(&Inputs { config: &config, host_info: &host, run: &run, end: &end });
    let elsewhere = "It ran in another pid namespace: which processes still run can't be seen from here.";
    let known_until = known_until_warning(&config, known_ns, run.start_ns, has_living);
    warn_first(&mut report, [Some(known_until), (!is_here).then(|| elsewhere.to_owned())]);
    Ok(Recovered { report, config })
}

/// Puts warnings, each if there is one, before the others of the report.
fn warn_first(report: &mut Report, texts: [Option<String>; 2]) {
    let warnings = texts.into_iter().flatten().map(|text| Warning::new(Topic::Tracking, text));
    report.warnings.splice(0..0, warnings);
}

/// Prepares what reads the live processes of a run for a sample, pass by pass. `root`: /proc.
fn passes(run: &RunState, host: &HostInfo, root: &ProcRoot) -> Passes {
    let sampler = Sampler::new(root.clone(), host.page_bytes, host.tick_us());
    Passes::new(sampler, BudgetPolicy::default(), run.sampled_ns)
}

/// The end of a run as the report has it: at `at_ns`, CLOCK_MONOTONIC nanoseconds, with an unknown exit of the command. `segment`: the
/// run's, or a copy; `None`: it can't be read. `is_cut_short`: the segment's file was truncated.
fn end_at(at_ns: u64, config: &Config, segment: Option<&Segment>, is_cut_short: bool) -> RunEnd {
    RunEnd {
        dropped_events: segment.map_or(0, |segment| segment.ring().dropped()),
        shimless: segment.map(Segment::shimless_programs).unwrap_or_default(),
        is_truncated: is_cut_short || segment.is_some_and(Segment::is_lost),
        cgroups: cgroup::usage(&config.cgroups),
        ..RunEnd::of_exit(at_ns, None)
    }
}

/// Takes a last sample, at `at_ns`, CLOCK_MONOTONIC nanoseconds. `living` reads the processes that still live. `None`: no process
/// lives, or none can be seen, so the sample is empty.
fn last_sample(run: &mut JournaledRun, living: Option<Passes>, at_ns: u64) {
    // All records that the run's files have were applied when they were loaded, so none can change a process any more.
    run.apply(at_ns, Observation::Finalize { complete_ns: u64::MAX });
    // Even an empty sample is of use: with it, processes that ended since the last one enter the figures over time.
    if let Some(mut passes) = living {
        passes.read(run, at_ns);
        passes.conclude(run, at_ns);
    } else {
        run.apply(at_ns, Observation::Readings(Vec::new()));
        run.apply(at_ns, Observation::Peaks(Vec::new()));
        run.apply(at_ns, Observation::SampleRead);
    }
    run.apply(at_ns, Observation::SampleComplete);
}

/// Takes a last sample, ends the last window of CPU time and the readings of GPUs, and finalizes all processes. `living`: as
/// for [`last_sample`].
fn finish(mut run: JournaledRun, living: Option<Passes>, end_ns: u64) -> Box<RunState> {
    last_sample(&mut run, living, end_ns);
    run.apply(end_ns, Observation::WindowsEnd { end_ns });
    run.apply(end_ns, Observation::GpuEnd);
    run.apply(end_ns, Observation::FinalizeAll);
    run.into_state()
}

/// Makes the report of a run from its journal (`--journal FILE`). Also returns where and in which form the run asked for reports.
///
/// # Errors
/// If the journal can't be read, or is not whole.
pub fn replay(path: &Path) -> Result<(Report, ReportConfig), ReplayError> {
    let Replayed { config, host, run, end } = replay_journal::replay(path)?;
    let report = build::report(&Inputs { config: &config, host_info: &host, run: &run, end: &end });
    Ok((report, config.report))
}

impl NotRecovered {
    /// Whether a report of the run can never be made, neither by a later try nor by another version.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Nothing | Self::Reported | Self::Damaged)
    }
}

impl Recovered {
    /// Makes the bundle of evidence (`--record`), if the run asked for it.
    ///
    /// # Errors
    /// If it can't be written. Nothing of it is left then.
    pub fn write_bundle(&self) -> io::Result<()> {
        bundle::write_recovered(&self.config, &self.report)
    }

    /// Removes what the run left besides its session's files: its cgroup and the locks of its reports. To be called after the report
    /// was written.
    pub fn clean_up(&self) {
        if let Some(Ok(cgroup)) = &self.config.cgroups.own {
            run_cgroup::remove(cgroup);
        }
        for path in self.config.report.targets.iter().filter_map(|target| target.output.file()) {
            // Dropping a lock removes its file. A lock that another run holds can't be taken, so its file stays.
            drop(OutputLock::take(path));
        }
    }
}

/// Warns that the report ends at `known_ns`, the last time at which anything is known of the run, and says what it lacks therefore.
/// `start_ns`: the start of the run. Both are CLOCK_MONOTONIC nanoseconds. `has_living`: processes of the run still run, and the report
/// has a sample of them at the recovery.
fn known_until_warning(config: &Config, known_ns: u64, start_ns: u64, has_living: bool) -> String {
    let (begin, tracked) = match config.attached {
        Some(_) => ("the attach", "process"),
        None => ("the command's start", "command"),
    };
    let missing = if has_living {
        "nothing was sampled after that, and processes that started and ended since may be missing,"
    } else {
        "what came then is missing,"
    };
    let date = humantime::format_rfc3339_seconds(config.start.date(known_ns));
    let after_begin_s = known_ns.saturating_sub(start_ns) as f64 / 1e9;
    format!(
        "gpu-track-run and its collector were killed: this was recovered from what they had kept until {date}, \
         {after_begin_s:.3} s after {begin}; {missing} and how the {tracked} ended is not known."
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gpu_track_abi::layout::RING_CAPACITY;
    use gpu_track_abi::rank::Rank;
    use gpu_track_abi::record::{Event, NAME_BYTES, Origin};
    use gpu_track_abi::task::TaskKeys;

    use super::*;
    use crate::model::config::Layer;
    use crate::model::record_or_event::Damage;
    use crate::store::{session_name, stale};
    use crate::sys::segment::NewSession;
    use crate::sys::segment::named::NamedFile;

    const LAUNCHER: u32 = 4_000_000;

    fn config(pid_ns: u32) -> Config {
        let mut config = Config::of_test();
        (config.start.launcher_pid, config.start.pid_ns) = (LAUNCHER, pid_ns);
        config.discovery.layers.retain(|layer| *layer != Layer::Connector);
        config
    }

    /// A stale session with records that no collector has read.
    fn killed(dir: &Path, pid_ns: u32, starts: &[(u32, u64)]) -> Stale {
        let uid = rustix::process::geteuid().as_raw();
        let segment = session_name::new_name(dir, uid, LAUNCHER, 1);
        let state = session_name::state_name(&segment);
        let session = NewSession {
            flags: 0,
            session_id: 1,
            launcher_pid: LAUNCHER,
            launcher_pid_ns: pid_ns,
            monotonic_ns: 1,
            realtime_ns: 1_000_000_001,
            ..NewSession::default()
        };
        let segment = Segment::create(&segment, &session).unwrap();
        note(
            &StateFile::create(&state).unwrap(),
            &config(pid_ns),
            &crate::sources::host::of_this_machine(&ProcRoot::default(), None),
        );
        for (pid, monotonic_ns) in starts {
            let origin =
                Origin { pid: *pid, pid_ns, parent: LAUNCHER, monotonic_ns: *monotonic_ns, flags: 0 };
            let mut names = [0; NAME_BYTES];
            names[..4].copy_from_slice(b"prog");
            segment.push_event(
                &origin,
                &Event::Start {
                    realtime_ns: monotonic_ns + 1_000_000_000,
                    pidfd_inode: 0,
                    max_rss_kib: 1,
                    names,
                    rank: Rank::default(),
                    task: TaskKeys::NONE,
                },
            );
        }
        drop(segment);
        stale::once_unlocked(|| Stale::all(dir, uid).pop())
    }

    #[test]
    fn later_process_of_a_dead_ones_pid_is_not_taken_for_it() {
        let root = ProcRoot::default();
        let own = std::process::id();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let dir = tempfile::tempdir().unwrap();
        // No process of today started 2 s after the boot.
        let starts = [(own, 2_000_000_000), (child.id(), clock::monotonic_ns())];
        let stale = killed(dir.path(), root.pid_ns(own).unwrap(), &starts);
        for _again in 0..2 {
            let report = recover(&stale, &root).unwrap().report;
            assert_eq!((report.stage, report.processes.total), (Stage::Recovered, 2));
            let running: Vec<u32> =
                report.processes.still_running_processes.iter().map(|running| running.pid).collect();
            assert_eq!(running, [child.id()]);
            assert!(
                report.warnings[0].text.contains("nothing was sampled after that"),
                "{:?}",
                report.warnings
            );
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        let report = recover(&stale, &root).unwrap().report;
        assert_eq!(report.processes.still_running, Some(0));
        // The run ends at the time of its last record.
        let known_s = (starts[1].1 - 1) as f64 / 1e9;
        assert!((report.wall_s - known_s).abs() < 1e-6, "{} {known_s}", report.wall_s);
        assert!(report.warnings[0].text.contains("what came then"), "{:?}", report.warnings);
        // No sample and no record has their memory.
        let (most, mean) = (&report.max_ram, &report.mean_ram_bytes);
        let of_all =
            [most.main.footprint_bytes, most.descendants.footprint_bytes, most.combined.footprint_bytes];
        assert_eq!((report.coverage.peaks.unknown, of_all), (2, [None; 3]));
        assert_eq!(mean.values(), [None; 3]);
        let says_so = |warning: &Warning| warning.text.starts_with("The RAM of 2 processes is unknown");
        assert!(report.warnings.iter().any(says_so), "{:?}", report.warnings);
    }

    // Requirement: RECORD-5
    #[test]
    fn record_behind_the_segment_is_read_although_the_ring_has_no_unread_one() {
        let dir = tempfile::tempdir().unwrap();
        // The ring is full of them, so the last record is after it.
        let mut starts = vec![(4_000_001, 1); RING_CAPACITY];
        starts.push((4_000_002, 2));
        let stale = killed(dir.path(), 1, &starts);
        let path = stale.state.as_ref().unwrap().path();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let state = StateFile::from_named(NamedFile::held(path, file.into())).unwrap();
        let host = crate::sources::host::of_this_machine(&ProcRoot::default(), None);
        // Read up to the last one of the ring, and after that, if records came after the segment was copied.
        for position in [RING_CAPACITY as u64, RING_CAPACITY as u64 + 5] {
            let mut run = RunState::of_run(&config(1), &host);
            run.found.position = position;
            state.save(position, &run.found, &run).unwrap();
            let left = load_run(&state, stale.segment.as_ref(), Collector::Reads, 3).unwrap();
            assert_eq!((left.run.tree.counts().created, left.run.health.damage), (1, Damage::default()));
        }
    }

    #[test]
    fn a_run_with_a_report_has_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let state = killed(dir.path(), 1, &[(4_000_001, 1)]).state.unwrap().path().to_owned();
        let file = std::fs::File::options().read(true).write(true).open(&state).unwrap();
        StateFile::from_file(&state, file.into()).unwrap().note_reported();
        let uid = rustix::process::geteuid().as_raw();
        let stale = stale::once_unlocked(|| Stale::all(dir.path(), uid).pop());
        assert!(matches!(recover(&stale, &ProcRoot::default()), Err(NotRecovered::Reported)));
    }

    #[test]
    fn a_run_of_which_nothing_was_heard_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let stale = killed(dir.path(), 1, &[]);
        assert!(matches!(recover(&stale, &ProcRoot::default()), Err(NotRecovered::Nothing)));
    }
}
