//! What the launcher does when the core orders it, and at the limit of wall time, of which it has the timer.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpu_track_collector::{
    Action, Exceeded, Excess, LimitAction, Message, Order, OrderId, OrderResult, Quantity, Rule, RunLimit,
    Threshold, TreeEnd, TreeMember, TreeToEnd, event_in_words, limit_in_words, processes_in_words,
    tree_end_of,
};

use crate::alert_commands::{AlertCommands, Turn};
use crate::cli::Options;
use crate::console;
use crate::main_process::MainProcess;
use crate::started::{Started, Subject};

/// Exit status where SIGTERM has ended the tree, and where SIGKILL was needed: those of timeout(1).
const ENDED: i32 = 124;
const KILLED: i32 = 137;

/// Enders that may be killed before the launcher does their work.
const MOST_ENDERS: u32 = 5;

/// What the launcher does for a run.
pub(crate) struct Hands {
    /// The command's first process, which gets signals. `None`: it has been reaped, or there is none.
    main: Option<MainProcess>,
    /// The process that the run attached to, and whether it has ended. It gets no signal.
    attached: Option<(u32, Arc<AtomicBool>)>,
    /// The segment's path; empty without a session.
    segment: PathBuf,
    /// Children of this process that are not of the run.
    strangers: Vec<TreeMember>,
    kill_after: Duration,
    is_quiet: bool,
    alert_commands: AlertCommands,
    /// The limit of wall time, and when it is reached, CLOCK_MONOTONIC nanoseconds.
    wall: Option<(OrderId, RunLimit, u64)>,
    start_ns: u64,
    /// How the tree is ended. `None`: no limit has acted.
    ending: Option<Ending>,
}

/// The tree is being ended, or was: never twice.
struct Ending {
    since: Instant,
    /// The process that does it. `None`: it is done.
    ender: Option<u32>,
    /// Enders that were started.
    enders: u32,
    end: Option<TreeEnd>,
}

impl Hands {
    /// Makes the hands of a run that has just been started.
    pub(crate) fn new(started: &Started, segment: PathBuf, options: &Options) -> Self {
        let tracking = &options.tracking;
        let is_quiet = options.report.style.quiet || tracking.disable_logs;
        let on_alert = options.preparations.on_alert.clone();
        let start_ns = started.at_ns;
        let ends_at =
            |(number, limit): (u32, &RunLimit)| match (limit.quantity, limit.threshold, limit.action) {
                (Quantity::Wall, Threshold::Amount(ns), LimitAction::End) => {
                    let id = OrderId { rule: Rule::Limit(number), epoch: 0 };
                    Some((id, limit.clone(), start_ns.saturating_add(ns)))
                }
                _ => None,
            };
        let walls = (0..).zip(&tracking.limits.list).filter_map(ends_at);
        let attached = match &started.subject {
            Subject::Attached { pid, has_ended } => Some((*pid, Arc::clone(has_ended))),
            Subject::Command(_) | Subject::Input(_) => None,
        };
        Self {
            main: started.subject.main(),
            attached,
            alert_commands: AlertCommands::new(on_alert, &started.words, segment.clone(), is_quiet),
            segment,
            strangers: started.strangers.clone(),
            kill_after: tracking.limits.kill_after,
            is_quiet,
            wall: walls.min_by_key(|(_, _, at_ns)| *at_ns),
            start_ns,
            ending: None,
        }
    }

    /// The command's first process was reaped: its pid can be another process's from now on.
    pub(crate) fn main_was_reaped(&mut self) {
        self.main = None;
    }

    /// Carries an order out. `None`: that is not possible now, and the collector issues the order again.
    pub(crate) fn obey(&mut self, order: &Order) -> Option<OrderResult> {
        match &order.action {
            Action::Tell(text) => tell(text),
            Action::TellEvent(_) if self.is_quiet => Some(OrderResult::Done),
            Action::TellEvent(event) => tell(&event_in_words(event)),
            Action::RunAlertCommand { alert, event, largest } => {
                let turn = Turn::new(order.id.epoch, *alert, event);
                self.alert_commands.add(turn, event, largest.as_ref(), self.tracked_pid());
                Some(OrderResult::Done)
            }
            Action::EndTree { limit, exceeded } => Some(self.end_tree(limit, exceeded)),
            Action::Signal { signal, .. } => Some(match self.main {
                Some(main) => {
                    main.send(*signal);
                    OrderResult::Done
                }
                None => OrderResult::Failed { errno: libc::ESRCH },
            }),
        }
    }

    /// Ends the tree if the limit of wall time is reached at `now_ns`, CLOCK_MONOTONIC. Gives the order that this stands for, what
    /// came of it, and by how much the limit is exceeded.
    pub(crate) fn look_at_wall(&mut self, now_ns: u64) -> Option<(OrderId, OrderResult, Excess)> {
        let (id, limit, _) = self.wall.take_if(|(_, _, at_ns)| now_ns >= *at_ns)?;
        let Threshold::Amount(allowed) = limit.threshold else { return None };
        let amount = now_ns.saturating_sub(self.start_ns);
        let by = Excess { at_ns: now_ns, allowed, amount };
        Some((id, self.end_tree(&limit, &Exceeded { by, largest: None }), by))
    }

    /// Gives the pid of the command's first process, or of the attached process. `None`: it has ended, or there is none.
    fn tracked_pid(&self) -> Option<u32> {
        let attached = self.attached.as_ref().filter(|(_, has_ended)| !has_ended.load(Ordering::Acquire));
        self.main.map(|main| main.pid).or(attached.map(|(pid, _)| *pid))
    }

    /// Gives how long it is until the limit of wall time, or until lines are to be written again. `None`: there is neither.
    pub(crate) fn due(&self, now_ns: u64) -> Option<Duration> {
        let wall = self.wall.as_ref().map(|(_, _, at_ns)| Duration::from_nanos(at_ns.saturating_sub(now_ns)));
        wall.into_iter().chain(self.alert_commands.due()).min()
    }

    /// Writes the lines about the command of `--on-alert` that stderr did not take before.
    pub(crate) fn write_lines(&mut self) {
        self.alert_commands.write_lines();
    }

    /// Whether this child is no process of the run: it ends the tree, or is of the command of `--on-alert`.
    pub(crate) fn is_helper(&self, pid: u32) -> bool {
        self.is_ender(pid) || self.alert_commands.has(pid)
    }

    fn is_ender(&self, pid: u32) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.ender == Some(pid))
    }

    /// Takes in that a helper has ended, with this wait status.
    pub(crate) fn helper_ended(&mut self, pid: u32, status: i32) {
        if self.is_ender(pid) {
            self.ender_ended(status);
        } else {
            self.alert_commands.ended(pid, self.tracked_pid());
        }
    }

    /// Runs the command of `--on-alert` for no more alerts: the run has ended.
    pub(crate) fn give_up_alerts(&mut self) {
        self.alert_commands.give_up();
    }

    /// Takes the failures of the command of `--on-alert` of which the account has not been told.
    pub(crate) fn take_failures(&mut self) -> Vec<Message> {
        self.alert_commands.take_failures()
    }

    /// Whether the tree is being ended now.
    pub(crate) fn is_at_work(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.end.is_none())
    }

    /// Takes in that the ender has ended, with this wait status. If it was killed, another one goes on.
    fn ender_ended(&mut self, status: i32) {
        let Some(ending) = &mut self.ending else { return };
        ending.ender = None;
        ending.end = tree_end_of(ExitStatus::from_raw(status).code());
        if ending.end.is_none() {
            self.start_ender();
        }
    }

    /// Gives what came of ending the tree, when that is known. Says so if processes are left.
    pub(crate) fn end(&self) -> Option<TreeEnd> {
        let end = self.ending.as_ref()?.end?;
        if end.left > 0 && !self.is_quiet {
            console::message(format_args!(
                "{} could not be ended: the report names what still runs",
                processes_in_words(end.left.into())
            ));
        }
        Some(end)
    }

    /// Gives how the launcher ends after it has ended the tree. `None`: it has not.
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        let ending = self.ending.as_ref()?;
        let is_killed = ending.end.is_none_or(|end| end.is_killed);
        Some(ExitStatus::from_raw(if is_killed { KILLED } else { ENDED } << 8))
    }

    fn end_tree(&mut self, limit: &RunLimit, exceeded: &Exceeded) -> OrderResult {
        if self.ending.is_none() {
            self.ending = Some(Ending { since: Instant::now(), ender: None, enders: 0, end: None });
            self.start_ender();
            if !self.is_quiet {
                // A reader that does not read must not keep the tree from being ended.
                let _ = console::message_without_waiting(limit_in_words(limit, exceeded, self.kill_after));
            }
        }
        OrderResult::Done
    }

    /// Starts a process that ends the tree. Where there can be none (`ulimit -u`), or enders are killed again and again, this one does
    /// that, and does nothing else meanwhile.
    fn start_ender(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        let tree = TreeToEnd {
            launcher: Some(std::process::id()),
            main: self.main.map(|main| main.pid),
            segment: self.segment.clone(),
            kill_after: self.kill_after.saturating_sub(ending.since.elapsed()),
            is_told: ending.enders > 0,
            known: Vec::new(),
            strangers: self.strangers.clone(),
        };
        ending.enders += 1;
        ending.ender =
            if ending.enders <= MOST_ENDERS { tree.start().ok().map(|child| child.id()) } else { None };
        if ending.ender.is_none() {
            ending.end = Some(tree.end());
        }
    }
}

/// Writes a line for the user. `None`: there is no room for it now.
fn tell(text: &str) -> Option<OrderResult> {
    match console::message_without_waiting(text) {
        Ok(()) => Some(OrderResult::Done),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(OrderResult::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }),
    }
}
