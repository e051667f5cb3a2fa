//! Makes a report of a run that has not ended, from another process. It reads the files of the session as a recovery does.
//!
//! Nothing in the run changes. Its collector takes no part, so the report can be made even if the collector was stopped or just killed.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use thiserror::Error;

use super::load::{Collector, LoadedRun, load_run, note_the_dead};
use super::{NotRecovered, end_at, last_sample, passes, warn_first};
use crate::build::{self, Inputs};
use crate::model::config::{Bundles, Config, SessionStart};
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::model::report::Report;
use crate::run::RunState;
use crate::sinks::bundle::{self, Asked};
use crate::store::live_session::LiveSession;
use crate::store::replay_journal::JournaledRun;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::rlimit;
use crate::sys::segment::live::{self, LiveFile};

/// How often it is tried to read the state while no snapshot is saved. One try is mostly enough: the collector spends at most 0.5% of a
/// core on regular snapshots. But it also saves one after each event of the run, and when the journal is long.
const MOST_TRIES: usize = 100;
/// The time between two tries. Meanwhile a burst of snapshots can end, and the collector of a new run can save its first one.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);
/// There is a warning if the last saved sample is older than this, nanoseconds, and older than [`OLD_INTERVALS`].
const OLD_NS: u64 = 3_000_000_000;
/// A last saved sample is not old for the warning if it is younger than this number of sampling intervals.
const OLD_INTERVALS: u64 = 2;
/// Why the launcher's environment is missing if the launcher is another user's, or if this /proc does not show it.
const UNREADABLE: &str = "that of gpu-track-run can't be read from here";

/// Why there is no report of a run that has not ended; a line about "it", the run.
#[derive(Debug, Error)]
pub enum NotRecorded {
    /// There are no files of such a session.
    #[error("it has no files in shared memory: it is over, or there was no room for them")]
    NoFiles,
    /// The files are another user's.
    #[error("it is another user's: only that user can record it")]
    OtherUser,
    /// Launcher and collector were both killed.
    #[error("it was killed as a whole: gpu-track recover writes its report")]
    Killed,
    /// The state file has nothing yet from which a report could be made.
    #[error("nothing is known of it yet, or there was no room for it in shared memory")]
    Nothing,
    /// The run's report was written already, or its files can't be read.
    #[error(transparent)]
    NotRead(NotRecovered),
}

impl From<NotRecovered> for NotRecorded {
    fn from(reason: NotRecovered) -> Self {
        if matches!(reason, NotRecovered::Nothing) { Self::Nothing } else { Self::NotRead(reason) }
    }
}

/// A run as far as it has come.
#[derive(Debug)]
pub struct SoFar {
    /// The report.
    pub report: Report,
    config: Config,
    /// Path of the segment.
    segment: PathBuf,
    /// The environment that the launcher was started with, or why it can't be read.
    environment: Result<Vec<(OsString, OsString)>, &'static str>,
}

/// Whether launcher and collector of the run with this segment were both killed: no process has its state file locked. `false`, too,
/// if there is no state file or it can't be opened.
pub fn was_killed(segment: &Path) -> bool {
    LiveSession::open(segment).is_ok_and(|session| session.is_stale())
}

/// Makes the report so far of the run with this segment, with a sample of its processes now. `root`: /proc.
///
/// # Errors
/// See [`NotRecorded`].
pub fn so_far(segment: &Path, root: &ProcRoot) -> Result<SoFar, NotRecorded> {
    // The copy of the segment may be larger than this process's soft limit of file sizes (RLIMIT_FSIZE).
    rlimit::raise_own();
    let session = LiveSession::open(segment).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NotRecorded::NoFiles,
        io::ErrorKind::PermissionDenied => NotRecorded::OtherUser,
        _ => NotRecorded::NotRead(error.into()),
    })?;
    if session.is_stale() {
        return Err(NotRecorded::Killed);
    }
    let LoadedRun { config, host, segment: copy, mut run, is_cut_short } = load(&session)?;
    let now_ns = clock::monotonic_ns();
    let sampled_ns = run.sampled_ns;
    // In another pid namespace, the run's pids are those of other processes.
    let is_here = root.pid_ns(std::process::id()) == Some(config.start.pid_ns);
    if is_here {
        // The time of a process's end is not known if the kernel sent no event of it. Then the process counts as ended now.
        let known_ns = now_ns;
        note_the_dead(&mut run, &host, root, known_ns, now_ns);
    }
    let run = with_last_sample(run, &host, is_here.then_some(root), now_ns);
    let end = end_at(now_ns, &config, copy.as_ref(), is_cut_short);
    let mut report = build::report(&Inputs { config: &config, host_info: &host, run: &run, end: &end });
    let old = old_sample_warning(now_ns.saturating_sub(sampled_ns), config.tracking.interval_ns());
    let elsewhere = "The run is in another pid namespace: its processes could not be sampled from here.";
    warn_first(&mut report, [old, (!is_here).then(|| elsewhere.to_owned())]);
    let environment =
        if is_here { environment(root, &config.start, host.tick_us()) } else { Err(UNREADABLE) };
    Ok(SoFar { report, config, segment: session.path, environment })
}

impl SoFar {
    /// Where the run itself leaves bundles (`--record`), if it does.
    pub fn bundles(&self) -> Option<&Bundles> {
        self.config.tracking.bundles.as_ref()
    }

    /// Makes a bundle (a directory of evidence) of the run so far, and returns its path. `bundles`: the directory of bundles, and how
    /// many may be there. `asked`: what the program that asks for the bundle says of itself. Without a live file the bundle lacks the
    /// last samples.
    ///
    /// # Errors
    /// If it can't be written. Nothing of it is left then.
    pub fn write_bundle(&self, bundles: &Bundles, asked: &Asked) -> io::Result<PathBuf> {
        let live = LiveFile::open(&live::path_of(&self.segment)).ok();
        bundle::write_asked(
            &self.config,
            bundles,
            &self.report,
            asked,
            live.as_ref(),
            self.environment.as_deref().map_err(|reason| *reason),
        )
    }
}

/// Loads the run. If the collector saves a snapshot meanwhile, it removes the journal that the earlier snapshot needs, so the run is
/// loaded again. It is also loaded again if nothing is known of it, since it may just have begun.
fn load(session: &LiveSession) -> Result<LoadedRun, NotRecovered> {
    let mut is_unknown = false;
    for _ in 0..MOST_TRIES {
        let copy = session.copy_segment()?;
        let before = session.state().newest_snapshot();
        let loaded = load_run(session.state(), copy.as_ref(), Collector::Reads, clock::monotonic_ns());
        is_unknown = matches!(loaded, Err(NotRecovered::Nothing));
        if session.state().newest_snapshot() == before && !is_unknown {
            return loaded;
        }
        thread::sleep(BETWEEN_TRIES);
    }
    if is_unknown {
        return Err(NotRecovered::Nothing);
    }
    Err(io::Error::other("its state changed during each of 100 tries").into())
}

/// Takes a sample of the live processes, and returns the run as it would be if it ended now. `root`: /proc; `None`: /proc shows other
/// processes, so no sample is taken.
fn with_last_sample(
    run: Box<RunState>,
    host: &HostInfo,
    root: Option<&ProcRoot>,
    now_ns: u64,
) -> Box<RunState> {
    let mut run = JournaledRun::new(run);
    if let Some(root) = root {
        let passes = passes(&run, host, root);
        last_sample(&mut run, Some(passes), now_ns);
    }
    run.apply(now_ns, Observation::FinalizeAll);
    run.into_state()
}

/// Warns that the last sample that the collector saved is this old, nanoseconds. `None`: it is not old. A collector that is stopped
/// saves no samples, and one with a large state saves them less often. `interval_ns`: the sampling interval.
fn old_sample_warning(age_ns: u64, interval_ns: u64) -> Option<String> {
    let is_old = age_ns > OLD_NS.max(interval_ns.saturating_mul(OLD_INTERVALS));
    is_old.then(|| {
        format!(
            "The collector last saved its samples {:.1} s before this report: larger RAM since then is missing, but for a sample \
             of the report itself.",
            age_ns as f64 / 1e9
        )
    })
}

/// Reads the environment that the launcher of a run was started with: its entries of the form `NAME=VALUE`. `start`: that of the run.
/// `tick_us`: a clock tick, microseconds.
///
/// # Errors
/// Why it can't be read.
fn environment(
    root: &ProcRoot,
    start: &SessionStart,
    tick_us: u64,
) -> Result<Vec<(OsString, OsString)>, &'static str> {
    let variables = root.variables(start.launcher_pid);
    // Checked after the read. A process that has the pid now and started before the session began is the launcher, and was it
    // during the read. A zombie has no environment any more.
    let stat = root.stat(start.launcher_pid);
    if !stat.is_some_and(|stat| !stat.is_over() && stat.start_ns(tick_us) <= start.monotonic_ns) {
        return Err("gpu-track-run, which had it, is gone");
    }
    variables.ok_or(UNREADABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    // Requirement: RECORD-5
    #[test]
    fn environment_is_that_of_the_launcher_and_not_of_a_later_process_of_its_pid() {
        let root = ProcRoot::default();
        let tick_us = crate::sources::host::of_this_machine(&root, None).tick_us();
        let mut start = Config::of_test().start;
        (start.launcher_pid, start.monotonic_ns) = (std::process::id(), clock::monotonic_ns());
        let own: Vec<_> = std::env::vars_os().collect();
        let path = own.iter().find(|(name, _)| name == "PATH");
        assert_eq!(
            environment(&root, &start, tick_us).unwrap().iter().find(|(name, _)| name == "PATH"),
            path
        );
        // This process did not start in the first 2 s after the boot.
        start.monotonic_ns = 2 * S;
        assert!(environment(&root, &start, tick_us).unwrap_err().contains("is gone"));
    }

    // Requirement: RECORD-59
    #[test]
    fn samples_that_are_not_saved_are_said_after_3_s_or_two_intervals() {
        assert_eq!(
            [
                old_sample_warning(0, S / 10),
                old_sample_warning(3 * S, S / 10),
                old_sample_warning(19 * S, 10 * S)
            ],
            [None, None, None]
        );
        assert!(
            old_sample_warning(3 * S + S / 2, S / 10)
                .unwrap()
                .contains("last saved its samples 3.5 s before")
        );
        assert!(old_sample_warning(21 * S, 10 * S).is_some());
    }
}
