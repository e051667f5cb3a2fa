//! How the command ended, by all reports: the first failure is the likely cause of the others.

use super::totals::InAny;
use crate::model::command::is_mpi_launcher;
use crate::model::report::{Cause, Ending, Exit, NodeState, RankPlace, Report, Stage};

/// Signals that srun and mpirun end ranks with, and Ctrl-C.
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// A shell whose command was ended by a signal exits with the signal's number and this.
const SHELL_SIGNALS: i32 = 128;
/// A failure up to so long after an end by SIGTERM or SIGINT was its reason, microseconds. srun and mpirun end all ranks when one has
/// failed. With MPI_Abort they do so before the rank that calls it is gone, and clocks of nodes differ.
const SIGTERM_LEAD_US: i64 = 1_000_000;
/// The same for an end by SIGKILL. It is short: where the kernel killed a rank and this is not known, the others can fail soon after it,
/// because their connection to it is lost.
const SIGKILL_LEAD_US: i64 = 20_000;

/// The end of the command that started ranks.
#[derive(Debug)]
pub(super) struct LauncherEnd {
    /// When, microseconds since the epoch.
    end_us: i64,
    /// The launcher is one of MPI, and failed with a status that does not stand for SIGKILL.
    failed_by_itself: bool,
}

impl LauncherEnd {
    /// The end of a report's command at `end_us`, microseconds since the epoch.
    pub(super) fn new(end_us: i64, report: &Report) -> Self {
        // Hydra ends with one of these after a rank was killed.
        const OF_KILLED_RANK: [i32; 2] = [SIGKILL, 255];
        let exit = report.ending.exit;
        let is_of_kill =
            signal(exit) == Some(SIGKILL) || exit.code.is_none_or(|code| OF_KILLED_RANK.contains(&code));
        // A script's status can be any.
        let failed_by_itself = is_mpi_launcher(&report.command) && is_failure(exit) && !is_of_kill;
        Self { end_us, failed_by_itself }
    }
}

/// A command or a rank that failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// When it ended, microseconds since the epoch.
    pub(super) end_us: i64,
    /// The file of its report. Of failures at one time, the first file by name counts.
    pub(super) file: String,
    pub(super) exit: Exit,
    /// As [`is_explained`] has it.
    pub(super) is_explained: bool,
    /// Its node, and of a rank its number.
    pub(super) place: RankPlace,
    /// Of a command.
    pub(super) cause: Option<Cause>,
}

/// The failure that came first of several, in whatever order they are added.
#[derive(Debug, Default)]
pub(super) struct FirstFailure {
    /// The first that nothing else can have ended.
    own: Option<Failure>,
    /// The first end by SIGTERM, SIGINT or SIGKILL, which can have followed the failure of another.
    sent: Option<Failure>,
}

impl FirstFailure {
    pub(super) fn add(&mut self, failure: Failure) {
        let first = if failure.lead_us() == 0 { &mut self.own } else { &mut self.sent };
        let is_before = |known: &Failure| (failure.end_us, &failure.file) < (known.end_us, &known.file);
        if first.as_ref().is_none_or(is_before) {
            *first = Some(failure);
        }
    }

    /// The first failure. `None`: nothing failed.
    pub(super) fn get(&self) -> Option<&Failure> {
        let (Some(own), Some(sent)) = (&self.own, &self.sent) else {
            return self.own.as_ref().or(self.sent.as_ref());
        };
        Some(if own.end_us <= sent.end_us.saturating_add(sent.lead_us()) { own } else { sent })
    }
}

impl Failure {
    /// Whether the MPI launcher ended this rank, and not because of an end like this one. Either the launcher had ended before, or it
    /// failed with a status that no rank killed by SIGKILL gives it, as after MPI_Abort.
    pub(super) fn is_by_launcher(&self, launcher: &LauncherEnd) -> bool {
        let is_killed = signal(self.exit) == Some(SIGKILL) && launcher.failed_by_itself;
        self.lead_us() > 0 && (is_killed || self.end_us > launcher.end_us)
    }

    /// How long before its reason it can have ended; 0: it needs none.
    fn lead_us(&self) -> i64 {
        match signal(self.exit) {
            Some(SIGTERM | SIGINT) if !self.is_explained => SIGTERM_LEAD_US,
            Some(SIGKILL) if !self.is_explained => SIGKILL_LEAD_US,
            _ => 0,
        }
    }
}

/// The endings so far.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// The first failure.
    failed: FirstFailure,
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
    /// Adds a report of this node, which is in `file` and goes up to `end_us`, microseconds since the epoch.
    pub(super) fn add(&mut self, end_us: i64, node: &str, file: &str, report: &Report) {
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
            self.failed.add(Failure {
                end_us,
                file: file.to_owned(),
                exit: *exit,
                is_explained: is_explained(cause.as_ref()),
                place: RankPlace { node: node.to_owned(), ..RankPlace::default() },
                cause: cause.clone(),
            });
        }
    }

    /// How the command ended: as the first failure, or with code 0 if every report's command succeeded. Otherwise it is
    /// unknown.
    pub(super) fn ending(&self) -> Ending {
        // Without a report, `InAny` says no, but it is unknown.
        let wait_interrupted = self.wait_interrupted.is_so().filter(|_| self.reports > 0);
        let (exit, cause) = match self.failed.get() {
            Some(failed) => (failed.exit, failed.cause.clone()),
            None if self.succeeded == self.reports => (Exit { code: Some(0), signal: None }, None),
            None => (Exit::default(), None),
        };
        Ending { exit, cause, wait_interrupted, ..Ending::default() }
    }

    /// The node of the first failure, and when that was, microseconds since the epoch. `None`: nothing failed, or there is a single
    /// report.
    pub(super) fn failed_node(&self) -> Option<(&str, i64)> {
        self.failed
            .get()
            .filter(|_| self.reports > 1)
            .map(|failed| (failed.place.node.as_str(), failed.end_us))
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

/// Whether something else than a failure ended a command or a rank: SIGTERM or SIGINT, perhaps by way of a shell.
pub(crate) fn is_sent(exit: Exit) -> bool {
    matches!(signal(exit), Some(SIGTERM | SIGINT))
}

/// Whether more is known of why a command ended than a signal: what was short, or which limit was reached.
pub(super) fn is_explained(cause: Option<&Cause>) -> bool {
    !matches!(cause, None | Some(Cause::Signal(_)))
}

/// The signal that ended a process, or its child if it was a shell.
fn signal(exit: Exit) -> Option<i32> {
    exit.signal.or(exit.code.map(|code| code.saturating_sub(SHELL_SIGNALS)))
}
