//! How the command ended, by all reports: the first failure is the likely cause of the others.

use super::totals::InAny;
use crate::model::report::{Cause, Ending, Exit, NodeState, Report, Stage};

/// A command that failed. Of several, the one that ended first counts.
#[derive(Debug)]
struct Failure {
    /// The end of its report, microseconds since the epoch.
    end_us: i64,
    /// The file of its report. Of failures at one time, the first file by name counts.
    file: String,
    exit: Exit,
    cause: Option<Cause>,
}

/// The endings so far.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// The first failure.
    failed: Option<Failure>,
    /// Reports whose command succeeded.
    succeeded: u64,
    reports: u64,
    /// Reports that are not final.
    unfinished: u64,
    /// Unfinished reports that were made from what a killed launcher and collector left.
    recovered: u64,
    /// The end of the unfinished report that ends first, microseconds since the epoch. `None`: all reports are final.
    pub(super) unfinished_us: Option<i64>,
    /// `--wait-all` was interrupted.
    wait_interrupted: InAny,
}

impl Endings {
    /// Adds a report, which is in `file` and goes up to `end_us`, microseconds since the epoch.
    pub(super) fn add(&mut self, end_us: i64, file: &str, report: &Report) {
        self.reports += 1;
        let Ending { exit, cause, wait_interrupted, .. } = &report.ending;
        if report.stage != Stage::Over {
            self.unfinished += 1;
            self.unfinished_us = Some(self.unfinished_us.map_or(end_us, |first| first.min(end_us)));
        }
        self.recovered += u64::from(report.stage == Stage::Recovered);
        self.wait_interrupted.add(*wait_interrupted);
        if report.ending.is_success() {
            self.succeeded += 1;
        // At a limit of the run, a command can exit with 0 and has failed all the same.
        } else if is_failure(*exit) || report.ending.is_by_limit() {
            let is_before = |failed: &Failure| (end_us, file) < (failed.end_us, failed.file.as_str());
            if self.failed.as_ref().is_none_or(is_before) {
                let (file, exit, cause) = (file.to_owned(), *exit, cause.clone());
                self.failed = Some(Failure { end_us, file, exit, cause });
            }
        }
    }

    /// How the command ended: as the first failure, or with code 0 if every report's command succeeded. Otherwise it is
    /// unknown.
    pub(super) fn ending(&self) -> Ending {
        // Without a report, `InAny` says no, but it is unknown.
        let wait_interrupted = self.wait_interrupted.is_so().filter(|_| self.reports > 0);
        let (exit, cause) = match &self.failed {
            Some(failed) => (failed.exit, failed.cause.clone()),
            None if self.succeeded == self.reports => (Exit { code: Some(0), signal: None }, None),
            None => (Exit::default(), None),
        };
        Ending { exit, cause, wait_interrupted, ..Ending::default() }
    }

    /// How far the run is: over if all reports are final, recovered if all that are not final were recovered, else going on.
    pub(super) fn stage(&self) -> Stage {
        if self.unfinished == 0 {
            Stage::Over
        } else if self.unfinished == self.recovered {
            Stage::Recovered
        } else {
            Stage::SoFar
        }
    }

    /// How far a node's reports are.
    pub(super) fn state(&self) -> NodeState {
        match self.stage() {
            Stage::Over => NodeState::Final,
            Stage::SoFar => NodeState::LastHeard,
            Stage::Recovered => NodeState::Recovered,
        }
    }
}

pub(super) fn is_success(exit: Exit) -> bool {
    exit == Exit { code: Some(0), signal: None }
}

/// Whether the exit is known and no success.
pub(super) fn is_failure(exit: Exit) -> bool {
    exit != Exit::default() && !is_success(exit)
}
