//! One report of several ranks, each with a launcher of its own: `srun gpu-track-run -o usage.json -- ./app`.
//!
//! Each rank's report goes into a directory that all share. The last rank to end makes one report of them. No other rank waits for
//! that: MPI launchers and Slurm must see each rank end as it does without us.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use gpu_track_collector::model::config::{Config, JointReport, ReportConfig, ReportTarget};
use gpu_track_collector::{NoLock, OutputLock, ProcRoot, clock};

use super::directory::{self, Membership, NodeDirectory};
use super::{SUFFIX, check_links_to, directory_beside, gather, json_in, state_directory};
use crate::cli::{self, Options};
use crate::console::message;
use crate::run::config;

/// How often the report of all is made at most. It is made again if ranks have come and gone meanwhile.
const MOST_ROUNDS: usize = 5;
/// How long an agent waits for the files of the report, and how often it looks.
const AGENTS_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The lock that this rank shares with the others.
pub(crate) struct RankLock(Rc<OwnedFd>);

impl RankLock {
    /// Joins the other ranks, if this is a rank of a job that makes one report. Then the collector writes this rank's report into their
    /// directory. `None`: this is no such rank, or it could not join. In the second case a line on stderr says why. The rank then
    /// writes a report of its own, with its number in the file's name.
    pub(crate) fn prepare(options: &mut Options) -> Option<Self> {
        let job = options.joint_job.take()?;
        let joined = Self::join(options, &job).map_err(|problem| {
            message(format_args!("--nodes: each rank has a report of its own: {problem}"));
            cli::number_files(&mut options.report, options.rank.unwrap_or_default());
        });
        joined.ok()
    }

    /// Joins the ranks of this job in the directory beside the report, and changes the report's places in `options`. The first rank
    /// removes the report of an earlier run.
    ///
    /// # Errors
    /// If the directory can't be joined. The error is a line for the user.
    fn join(options: &mut Options, job: &OsStr) -> Result<Self, String> {
        // A hash without random keys, so that all ranks get the same id.
        let id = BuildHasherDefault::<DefaultHasher>::default().hash_one(job);
        let of_report = options.report.files().next().map(directory_beside);
        let is_temporary = of_report.is_none();
        let in_state = || Some(state_directory()?.join(format!("job.{id:016x}{SUFFIX}")));
        let path =
            of_report.or_else(in_state).ok_or("neither -o, XDG_STATE_HOME nor HOME names a directory")?;
        let cannot = |error| format!("{}: {error}", path.display());
        if is_temporary {
            check_links_to(&path).map_err(cannot)?;
        }
        let (directory, Membership { lock, is_first }) =
            NodeDirectory::join(&path, id, caller_began_at(options.relay)).map_err(cannot)?;
        let (own, prefix) = directory.check_in_rank(options.rank.unwrap_or_default()).map_err(cannot)?;
        if is_first {
            remove_earlier(&options.report);
        }
        let directory = directory.path().to_owned();
        let report = &mut options.report;
        let targets = std::mem::replace(&mut report.targets, vec![json_in(&own)]);
        // Only the report of all ranks is kept, not that of this rank.
        let keep = report.keep.take();
        report.joint = Some(JointReport { directory, prefix, targets, keep, is_temporary });
        Ok(Self(Rc::new(lock)))
    }

    /// The descriptor of the lock, which collectors inherit.
    pub(crate) fn descriptor(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.0)
    }

    /// Writes the report of all ranks if no other rank is left to do so. To be called when the launcher, in place of a collector, has
    /// written this rank's own report.
    pub(crate) fn conclude(self, options: &Options) {
        conclude(&config::from_options(options, &ProcRoot::default()), self.0.as_fd(), false);
    }
}

/// When the parent of this process, or of its `relay`, began, or the epoch if that is unknown. That parent starts the ranks. So a
/// directory that was marked before is of an earlier run, also if its job had the same id: the names of Open MPI's jobs can come again.
fn caller_began_at(relay: Option<u32>) -> SystemTime {
    let root = ProcRoot::default();
    let own = root.stat(relay.unwrap_or_else(std::process::id));
    let Some(stat) = own.and_then(|own| root.stat(own.ppid)) else { return SystemTime::UNIX_EPOCH };
    let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let age = Duration::from_nanos(clock::monotonic_ns().saturating_sub(stat.start_ns(tick_us)));
    SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes the report of an earlier run, which would be taken for this run's. A file that another run writes to stays.
fn remove_earlier(report: &ReportConfig) {
    for path in report.files() {
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
        if !is_file(path) || matches!(OutputLock::take(path), Err(NoLock::InUse)) {
            continue;
        }
        for path in [path, &gather::ranks_beside(path)] {
            // If that fails, this run's report replaces the file at the end, or a line says why it can't.
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the report of all ranks or nodes if no other member of the run is left to do so. A collector calls this. `lock`:
/// what ranks share; `None`: this is a node's collector, which is no member so far.
pub(crate) fn make(config: &Config, lock: Option<OwnedFd>) {
    let is_agent = config.report.node_part.as_ref().is_some_and(|part| part.is_agent);
    let joined = || NodeDirectory::local(&config.report.joint.as_ref()?.directory).ok()?.member();
    if let Some(lock) = lock.or_else(joined) {
        conclude(config, lock.as_fd(), is_agent);
    }
}

/// Writes the report of all ranks if no other rank is left to do so. Ranks that come and go while it is made leave the report to this
/// process. So it is made again if reports have changed, at most [`MOST_ROUNDS`] times. `is_agent`: this is an agent on another node.
pub(super) fn conclude(config: &Config, lock: BorrowedFd, is_agent: bool) {
    let Some(joint) = &config.report.joint else { return };
    let Ok(directory) = NodeDirectory::local(&joint.directory) else { return };
    let mut made_of = None;
    let mut is_complete = false;
    for _ in 0..MOST_ROUNDS {
        if !directory::leave(lock) {
            return;
        }
        let reports = reports_of(&directory, &joint.prefix);
        if made_of.as_ref() == Some(&reports) {
            break;
        }
        if !directory::share(lock) {
            return;
        }
        let paths: Vec<PathBuf> = reports.iter().map(|(path, _)| path.clone()).collect();
        is_complete = write(config, joint, &directory, &paths, is_agent);
        made_of = Some(reports);
    }
    if joint.is_temporary && is_complete {
        directory.remove();
    }
}

/// Lists the reports whose names begin with `prefix`, which are those of this run, each with when it was written.
fn reports_of(directory: &NodeDirectory, prefix: &str) -> Vec<(PathBuf, Option<SystemTime>)> {
    let is_of_run =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let written_at = |path: PathBuf| {
        let written_at = fs::metadata(&path).and_then(|file| file.modified()).ok();
        (path, written_at)
    };
    directory.reports().unwrap_or_default().into_iter().filter(is_of_run).map(written_at).collect()
}

/// Merges these reports, and writes the result to the places of the joint report, except for files that another run writes to.
/// Returns whether the report is written, and has all ranks. `is_agent`: see [`conclude`].
fn write(
    config: &Config,
    joint: &JointReport,
    directory: &NodeDirectory,
    reports: &[PathBuf],
    is_agent: bool,
) -> bool {
    // The locks are held until this returns.
    let (mut targets, mut locks) = (Vec::new(), Vec::new());
    // A run over several nodes: the launcher has locked its files from the start (`ReportConfig::become_part`).
    let is_locked = config.report.node_part.is_some();
    for target in &joint.targets {
        match target.output.file().filter(|_| !is_locked).map(|path| take_lock(path, is_agent)) {
            // An agent writes nothing to stderr, which is that of the job.
            Some(Err(NoLock::InUse)) if is_agent => {}
            Some(Err(NoLock::InUse)) => say_in_use(target, joint),
            lock => {
                targets.push(target.clone());
                locks.push(lock);
            }
        }
    }
    if targets.is_empty() {
        return false;
    }
    let report = ReportConfig { targets, keep: joint.keep.clone(), ..config.report.clone() };
    let of_all = Config { report, ..config.clone() };
    let Some(merged) = gather::report_of_all(directory, reports) else { return false };
    // If ranks are missing, `false` keeps the directory: a rank that comes later needs the reports of the others.
    gather::write(&of_all, &merged) && merged.report.coverage.ranks.is_none()
}

/// Locks a file of the report. An agent waits a little: the launcher's collector may be about to end.
fn take_lock(path: &Path, is_agent: bool) -> Result<Option<OutputLock>, NoLock> {
    let until = Instant::now() + if is_agent { AGENTS_PATIENCE } else { Duration::ZERO };
    loop {
        match OutputLock::take(path) {
            Err(NoLock::InUse) if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
            lock => return lock,
        }
    }
}

/// Says that another run writes to this place, and how to see the report of all ranks.
fn say_in_use(target: &ReportTarget, joint: &JointReport) {
    let directory = joint.directory.display();
    message(format_args!(
        "another run writes to {}: \"gpu-track merge {directory}\" shows the report of all ranks",
        target.output
    ));
}
