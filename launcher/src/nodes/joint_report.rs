//! One report of several ranks, each with a launcher of its own: `srun gpu-track-run --nodes=auto -o usage.json -- ./app`.
//!
//! Each rank's report goes into a directory that all share. The last rank to end makes one report of them. No rank waits for
//! another one: MPI launchers and Slurm must see each rank end as it does without us.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use gpu_track_collector::{Config, JointReport, ProcRoot, ReportConfig};

use super::directory::{self, NodeDirectory};
use super::{SUFFIX, beside, gather, json_in, state_directory};
use crate::cli::{self, Options};
use crate::config;
use crate::console::message;

/// The lock that this rank shares with the others.
pub(crate) struct RankLock(Rc<OwnedFd>);

impl RankLock {
    /// Joins the other ranks, and lets the collector write this rank's report into their directory. `None`: this is no rank of a
    /// job that makes one report. If that is because of an error, a line on stderr says it, and each rank has reports of its own.
    pub(crate) fn prepare(options: &mut Options) -> Option<Self> {
        let job = options.joint_job.take()?;
        let joined = Self::join(options, &job).map_err(|problem| {
            message(format_args!("--nodes: each rank has a report of its own: {problem}"));
            cli::number_files(&mut options.report, options.rank.unwrap_or_default());
        });
        joined.ok()
    }

    /// Joins the ranks of this job.
    fn join(options: &mut Options, job: &OsStr) -> Result<Self, String> {
        // Without random keys: all ranks have the same.
        let id = BuildHasherDefault::<DefaultHasher>::default().hash_one(job);
        let of_report = options.report.files().next().map(beside);
        let is_temporary = of_report.is_none();
        let in_state = || Some(state_directory()?.join(format!("job.{id:016x}{SUFFIX}")));
        let path =
            of_report.or_else(in_state).ok_or("neither -o, XDG_STATE_HOME nor HOME names a directory")?;
        let cannot = |error| format!("{}: {error}", path.display());
        let (directory, membership) = NodeDirectory::join(&path, id).map_err(cannot)?;
        let own = directory.check_in(false).map_err(cannot)?.file;
        if membership.is_first {
            remove_earlier(&options.report);
        }
        let targets = std::mem::replace(&mut options.report.targets, vec![json_in(&own)]);
        let directory = directory.path().to_owned();
        options.report.joint = Some(JointReport { directory, targets, is_temporary });
        Ok(Self(Rc::new(membership.lock)))
    }

    /// Gives the descriptor, which collectors inherit.
    pub(crate) fn descriptor(&self) -> Rc<OwnedFd> {
        Rc::clone(&self.0)
    }

    /// Writes the report of all ranks if no other rank is left to do so. To be called where no collector has written this rank's
    /// own, but the launcher has.
    pub(crate) fn conclude(self, options: &Options) {
        conclude(&config::of(options, &ProcRoot::default()), self.0.as_fd());
    }
}

/// Removes the report of an earlier run, which would be taken for that of this one.
fn remove_earlier(report: &ReportConfig) {
    for path in report.files() {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
            // Else the report of this run replaces it, or says why not.
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes the report of all ranks if no other rank is left to do so, in the collector of this one.
pub(crate) fn make(config: &Config, lock: OwnedFd) {
    conclude(config, lock.as_fd());
}

/// Writes the report of all ranks if no other rank is left to do so.
fn conclude(config: &Config, lock: BorrowedFd) {
    let Some(joint) = &config.report.joint else { return };
    if !directory::leave(lock) {
        return;
    }
    let Ok(directory) = NodeDirectory::local(&joint.directory) else { return };
    let report = ReportConfig { targets: joint.targets.clone(), ..config.report.clone() };
    let of_all = Config { report, ..config.clone() };
    let written = gather::write_report_of_all(&of_all, &directory, &directory.reports().unwrap_or_default());
    // A rank that comes later needs those of the others.
    let is_complete = written.is_some_and(|report| report.coverage.ranks.is_none());
    if joint.is_temporary && is_complete {
        directory.remove(&[]);
    }
}
