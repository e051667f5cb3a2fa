//! What the launcher does when the core orders it, and at the limit of wall time, of which it has the timer.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use gpu_track_collector::{
    Action, Exceeded, LimitAction, OrderId, OrderResult, Quantity, Rule, RunLimit, Threshold, TrackingConfig,
    TreeEnd, TreeToEnd, limit_in_words, tree_end_of,
};

use crate::console;
use crate::main_process::MainProcess;

/// Exit status where SIGTERM has ended the tree, and where SIGKILL was needed: those of timeout(1).
const ENDED: i32 = 124;
const KILLED: i32 = 137;

/// What the launcher does for a run.
pub(crate) struct Hands {
    /// The command's first process, which gets signals.
    main: Option<MainProcess>,
    /// The segment's path; empty without a session.
    segment: PathBuf,
    kill_after: Duration,
    is_quiet: bool,
    /// The limit of wall time, and when it is reached, CLOCK_MONOTONIC nanoseconds.
    wall: Option<(OrderId, RunLimit, u64)>,
    /// The process that ends the tree.
    ender: Option<u32>,
    /// The tree is being ended, or was: never twice.
    is_ending: bool,
    end: Option<TreeEnd>,
}

impl Hands {
    /// Makes the hands of a run that began at `start_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn new(
        main: Option<MainProcess>,
        segment: PathBuf,
        tracking: &TrackingConfig,
        is_quiet: bool,
        start_ns: u64,
    ) -> Self {
        let ends_at =
            |(number, limit): (u32, &RunLimit)| match (limit.quantity, limit.threshold, limit.action) {
                (Quantity::Wall, Threshold::Amount(ns), LimitAction::End) => {
                    let id = OrderId { rule: Rule::Limit(number), epoch: 0 };
                    Some((id, limit.clone(), start_ns.saturating_add(ns)))
                }
                _ => None,
            };
        let walls = (0..).zip(&tracking.limits.list).filter_map(ends_at);
        Self {
            main,
            segment,
            kill_after: tracking.limits.kill_after,
            is_quiet: is_quiet || tracking.disable_logs,
            wall: walls.min_by_key(|(_, _, at_ns)| *at_ns),
            ender: None,
            is_ending: false,
            end: None,
        }
    }

    /// Carries an order out. `None`: that is not possible now, and the collector issues the order again.
    pub(crate) fn obey(&mut self, action: &Action) -> Option<OrderResult> {
        match action {
            Action::Tell(text) => match console::message_without_waiting(text) {
                Ok(()) => Some(OrderResult::Done),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => Some(OrderResult::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }),
            },
            Action::EndTree { limit, exceeded } => self.end_tree(limit, exceeded),
            Action::Signal(signal) => {
                if let Some(main) = self.main {
                    main.send(*signal);
                }
                Some(OrderResult::Done)
            }
        }
    }

    /// Ends the tree if the limit of wall time is reached at `now_ns`, CLOCK_MONOTONIC. Gives the order that this stands for, and what
    /// came of it.
    pub(crate) fn look_at_wall(&mut self, now_ns: u64) -> Option<(OrderId, OrderResult)> {
        let (id, limit, at_ns) = self.wall.take_if(|(_, _, at_ns)| now_ns >= *at_ns)?;
        let Threshold::Amount(allowed) = limit.threshold else { return None };
        let exceeded = Exceeded { at_ns, allowed, amount: allowed, largest: None };
        match self.end_tree(&limit, &exceeded) {
            Some(result) => Some((id, result)),
            None => {
                // No process could be made: once more, a little later.
                self.wall = Some((id, limit, now_ns.saturating_add(100_000_000)));
                None
            }
        }
    }

    /// Gives how long it is until the limit of wall time. `None`: there is none, or it is over.
    pub(crate) fn due(&self, now_ns: u64) -> Option<Duration> {
        self.wall.as_ref().map(|(_, _, at_ns)| Duration::from_nanos(at_ns.saturating_sub(now_ns)))
    }

    /// Whether this child is no process of the run.
    pub(crate) fn is_ender(&self, pid: u32) -> bool {
        self.ender == Some(pid)
    }

    /// Whether the tree is being ended now.
    pub(crate) fn is_at_work(&self) -> bool {
        self.ender.is_some()
    }

    /// Takes in that the ender has ended, with this wait status. If it was killed, another one goes on. Gives what came of it, if it
    /// is known now.
    pub(crate) fn ender_ended(&mut self, status: i32) -> Option<TreeEnd> {
        self.ender = None;
        self.end = tree_end_of(ExitStatus::from_raw(status).code());
        if self.end.is_none() {
            self.start_ender();
        }
        let end = self.end?;
        if end.left > 0 && !self.is_quiet {
            let processes = if end.left == 1 { "process" } else { "processes" };
            console::message(format_args!(
                "{} {processes} could not be ended: the report names what still runs",
                end.left
            ));
        }
        Some(end)
    }

    /// Gives how the launcher ends after it has ended the tree. `None`: it has not.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let is_killed = self.end.is_none_or(|end| end.is_killed);
        self.is_ending.then(|| ExitStatus::from_raw(if is_killed { KILLED } else { ENDED } << 8))
    }

    fn end_tree(&mut self, limit: &RunLimit, exceeded: &Exceeded) -> Option<OrderResult> {
        if self.is_ending {
            return Some(OrderResult::Done);
        }
        self.start_ender();
        self.is_ending = self.ender.is_some();
        if self.is_ending && !self.is_quiet {
            // A reader that does not read must not keep the tree from being ended.
            let _ = console::message_without_waiting(limit_in_words(limit, exceeded, self.kill_after));
        }
        self.is_ending.then_some(OrderResult::Done)
    }

    fn start_ender(&mut self) {
        let launcher = Some(std::process::id());
        let (segment, kill_after) = (self.segment.clone(), self.kill_after);
        let tree = TreeToEnd { launcher, segment, kill_after, known: Vec::new() };
        self.ender = tree.start().ok().map(|child| child.id());
    }
}
