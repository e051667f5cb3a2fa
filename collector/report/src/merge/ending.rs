//! How the command ended, by all reports: the first failure is the likely cause of the others.

use crate::model::report::{Cause, Ending, Exit, NodeState, Report, Stage};

/// A way in which a command ended, and when: of several, the first counts.
type Failure = (i64, String, Exit, Option<Cause>);

/// The endings so far.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// The first failure: the end of its report, microseconds since the epoch, and its file.
    failed: Option<Failure>,
    /// Reports whose command succeeded.
    succeeded: u64,
    reports: u64,
    /// Reports that are no final ones, and those of them that were recovered.
    unfinished: u64,
    recovered: u64,
    /// The earliest end of an unfinished one, microseconds since the epoch.
    unfinished_us: Option<i64>,
    /// Reports that tell whether `--wait-all` was interrupted, and those in which it was.
    wait_known: u64,
    wait_interrupted: u64,
}

impl Endings {
    /// Adds a report, which goes up to this time and is in this file.
    pub(super) fn add(&mut self, end_us: i64, file: &str, report: &Report) {
        self.reports += 1;
        let Ending { exit, cause, wait_interrupted } = &report.ending;
        if report.stage != Stage::Over {
            self.unfinished += 1;
            self.unfinished_us = Some(self.unfinished_us.map_or(end_us, |first| first.min(end_us)));
        }
        self.recovered += u64::from(report.stage == Stage::Recovered);
        self.wait_known += u64::from(wait_interrupted.is_some());
        self.wait_interrupted += u64::from(*wait_interrupted == Some(true));
        if is_success(*exit) {
            self.succeeded += 1;
        } else if is_failure(*exit) {
            let is_first =
                |(first_us, first_file, ..): &Failure| (end_us, file) < (*first_us, first_file.as_str());
            if self.failed.as_ref().is_none_or(is_first) {
                self.failed = Some((end_us, file.to_owned(), *exit, cause.clone()));
            }
        }
    }

    /// Gives how the command ended: as the first failure did, or with 0 if it did so everywhere.
    pub(super) fn ending(&self) -> Ending {
        let is_interrupted = (self.wait_interrupted > 0).then_some(true);
        let wait_interrupted = is_interrupted
            .or_else(|| (self.wait_known > 0 && self.wait_known == self.reports).then_some(false));
        let (exit, cause) = match &self.failed {
            Some((.., exit, cause)) => (*exit, cause.clone()),
            None if self.succeeded == self.reports => (Exit { code: Some(0), signal: None }, None),
            None => (Exit::default(), None),
        };
        Ending { exit, cause, wait_interrupted }
    }

    /// Gives how far the run is: it is over if all reports are final.
    pub(super) fn stage(&self) -> Stage {
        if self.unfinished == 0 {
            Stage::Over
        } else if self.unfinished == self.recovered {
            Stage::Recovered
        } else {
            Stage::SoFar
        }
    }

    /// Gives until when an unfinished report tells of a node: of several, the one that ends first. `None`: all are final.
    pub(super) fn unfinished_us(&self) -> Option<i64> {
        self.unfinished_us
    }

    /// Gives how far a node's reports are.
    pub(super) fn state(&self) -> NodeState {
        match self.stage() {
            Stage::Over => NodeState::Final,
            Stage::SoFar => NodeState::LastHeard,
            Stage::Recovered => NodeState::Recovered,
        }
    }
}

fn is_success(exit: Exit) -> bool {
    exit == Exit { code: Some(0), signal: None }
}

fn is_failure(exit: Exit) -> bool {
    exit != Exit::default() && !is_success(exit)
}
