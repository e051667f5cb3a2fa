//! The directory of a study: its plan, and for each run the report and the output.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gpu_track_collector::given_file::{self, MOST_OF_REPORT, NotReadable};
use gpu_track_collector::model::report::Report;
use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::report::study;
use gpu_track_collector::report::study::plan::PlannedRun;
use gpu_track_collector::report::study::{Plan, Run};
use gpu_track_collector::{NoLock, OutputLock, write_report};

use crate::cli::UsageError;
use crate::console::message;

/// The plan's file.
const PLAN: &str = "study.json";
/// The directory of the runs that do not count.
pub(in crate::companion) const WARMUP: &str = "warmup";

/// Whether a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKind {
    /// The table has it.
    Counted,
    /// The run only warms up caches.
    Warmup,
}

/// The directory of a study, which need not be there yet.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
}

/// The files of a run.
#[derive(Debug)]
pub(super) struct Files {
    /// The report of the run, in JSON.
    pub(super) report: PathBuf,
    /// What the run wrote to stdout.
    pub(super) out: PathBuf,
    /// What the run wrote to stderr.
    pub(super) err: PathBuf,
    /// What the preparation of the run wrote.
    pub(super) prepare: PathBuf,
}

impl Directory {
    /// Makes an error about the directory.
    fn problem(&self, problem: impl std::fmt::Display) -> UsageError {
        UsageError::of_path(&self.path, problem)
    }

    /// Reads the plan of the study in the directory. `None`: there is no plan.
    ///
    /// # Errors
    /// If the plan can't be read, or this version can't use it.
    pub(super) fn plan(&self) -> Result<Option<Plan>, UsageError> {
        let path = self.path.join(PLAN);
        let json = match given_file::read_text(&path, MOST_OF_REPORT) {
            Err(NotReadable::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            json => json.map_err(|error| UsageError::of_path(&path, error))?,
        };
        let unusable = |error| UsageError::of_path(&path, format_args!("can't be used: {error}"));
        Plan::read(&json).map(Some).map_err(unusable)
    }

    /// Makes the directory if it is not there, locks it, and writes `plan` if the directory has another one or none. `begun`: the plan
    /// that was read from the directory. `None`: it had none.
    ///
    /// The lock keeps other studies away until it is dropped. It is `None` where there can be none, as on a file system without locks.
    ///
    /// # Errors
    /// If another study goes on in the directory, the directory has files and no plan, or it can't be written to.
    pub(super) fn prepare(
        &self,
        plan: &Plan,
        begun: Option<&Plan>,
    ) -> Result<Option<OutputLock>, UsageError> {
        let not_written = |error: io::Error| self.problem(format!("cannot be written to: {error}"));
        if begun.is_none()
            && self.has_files().map_err(|error| self.problem(format!("cannot be read: {error}")))?
        {
            let problem = format_args!("has files and no {PLAN}: name a new or empty directory with -o");
            return Err(self.problem(problem));
        }
        fs::create_dir_all(&self.path).map_err(not_written)?;
        let path = self.path.join(PLAN);
        let lock = OutputLock::take(&path).map_err(|no_lock| match no_lock {
            NoLock::InUse => self.problem("has a study that goes on: wait for its end"),
            NoLock::Foreign { .. } => self.problem(format_args!("can't be used: {no_lock}")),
        })?;
        // `begun` was read before the lock was taken: another command can have written a plan since then.
        if self.plan()?.as_ref() != begun {
            return Err(self.problem("has a study that another command began just now: start this one again"));
        }
        if begun != Some(plan) {
            write_report(&Output::File(path), &plan.json()).map_err(not_written)?;
        }
        if plan.warmup > 0 {
            fs::create_dir_all(self.path.join(WARMUP)).map_err(not_written)?;
        }
        Ok(lock)
    }

    /// Whether the directory has files that are not hidden. A missing directory has none.
    ///
    /// # Errors
    /// If the directory can't be read.
    fn has_files(&self) -> io::Result<bool> {
        match fs::read_dir(&self.path) {
            Ok(entries) => Ok(entries.flatten().any(|entry| !entry.file_name().as_bytes().starts_with(b"."))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The files of a run.
    pub(super) fn files(&self, plan: &Plan, planned: PlannedRun, kind: RunKind) -> Files {
        let stem = format!("{}.{}", plan.variants[planned.variant].file, planned.run);
        let directory = match kind {
            RunKind::Counted => self.path.clone(),
            RunKind::Warmup => self.path.join(WARMUP),
        };
        let file = |extension: &str| directory.join(format!("{stem}.{extension}"));
        Files { report: file("json"), out: file("out"), err: file("err"), prepare: file("prepare") }
    }

    /// Reads the report of a run that counts. `None`: the run is not over.
    pub(super) fn report(&self, plan: &Plan, planned: PlannedRun) -> Option<Report> {
        final_report(&self.files(plan, planned, RunKind::Counted).report)
    }

    /// The counted runs that are over, with their reports, in the order of the plan.
    pub(super) fn runs(&self, plan: &Plan) -> Vec<Run> {
        let run = |planned: &PlannedRun| {
            let path = self.files(plan, *planned, RunKind::Counted).report;
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Some(Run { planned: *planned, file, report: final_report(&path)? })
        };
        plan.order.iter().filter_map(run).collect()
    }
}

/// Reads a report of a run that is over. `None`: there is no report, or its run is not over.
pub(super) fn final_report(path: &Path) -> Option<Report> {
    let json = given_file::read_text(path, MOST_OF_REPORT).ok()?;
    read_report(&json).ok().map(|read| read.report).filter(study::is_over)
}

/// Makes a new file in place of one that is there. A fifo or link of its name is not opened.
pub(super) fn create(path: &Path) -> io::Result<File> {
    remove_if_there(path)?;
    File::create_new(path)
}

/// Removes a file if it is there. If that fails, a line on stderr says so.
pub(super) fn remove(path: &Path) {
    if let Err(error) = remove_if_there(path) {
        message(format_args!("cannot remove {}: {error}", path.display()));
    }
}

/// Removes a file. That it is missing is no error.
fn remove_if_there(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: FAULT-20
    #[test]
    fn file_takes_the_place_of_what_has_its_name_and_opens_none_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("victim"), "theirs").unwrap();
        std::os::unix::fs::symlink("victim", path("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for name in ["link", "fifo", "new"] {
            create(&path(name)).unwrap();
            assert!(fs::symlink_metadata(path(name)).unwrap().is_file(), "{name}");
        }
        assert_eq!(fs::read_to_string(path("victim")).unwrap(), "theirs");
    }
}
