//! Carries out the orders of the collector. At a limit of wall time that ends the tree, the launcher acts by its own timer and
//! needs no order.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpu_track_collector::model::config::Layer;
use gpu_track_collector::model::counts_in_words::processes as processes_in_words;
use gpu_track_collector::model::order::{Action, Order, OrderId, OrderResult, OrderedBy};
use gpu_track_collector::model::rule::{Rule, Threshold};
use gpu_track_collector::model::run_limit::{Exceeded, Excess, TreeEnd};
use gpu_track_collector::report::alerts_in_words::event_in_words;
use gpu_track_collector::report::rules_in_words::limit_in_words;
use gpu_track_collector::{KnownFile, TreeToEnd, tree_end_of};

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::alert_commands::{AlertCommands, Turn};
use crate::cli::Options;
use crate::console;
use crate::process::main_process::MainProcess;
use crate::run::started::{Started, Subject};

/// The launcher's exit status where SIGTERM has ended the tree, as with timeout(1).
const STATUS_TERMINATED: i32 = 124;
/// Its exit status where SIGKILL was needed.
const STATUS_KILLED: i32 = 137;

/// The most enders, processes that end the tree, that are started. If each of them is killed, the launcher ends the tree itself.
const MOST_ENDERS: u32 = 5;

/// Carries out orders for a run, and ends its tree at the limit of wall time.
pub(crate) struct OrderExecutor {
    /// The command's first process, which gets signals. `None`: it has been reaped, or there is none.
    main: Option<MainProcess>,
    /// The process that the run attached to, and whether it has ended. It gets no signal.
    attached: Option<(u32, Arc<AtomicBool>)>,
    /// The segment. `None`: there is no session.
    segment: Option<KnownFile>,
    /// The launcher is a subreaper.
    inherits_orphans: bool,
    /// From SIGTERM to SIGKILL.
    kill_after: Duration,
    /// Events and limits are not told on stderr.
    is_quiet: bool,
    pub(super) alert_commands: AlertCommands,
    /// The limit of wall time. `None`: there is none, or it has been reached.
    wall: Option<WallLimit>,
    /// The command's start, CLOCK_MONOTONIC nanoseconds.
    start_ns: u64,
    /// The wait for the tree is over: a launcher that inherits no orphans is told so.
    is_wait_over: bool,
    /// How the tree is ended, which happens once. `None`: no limit has acted.
    ending: Option<Ending>,
}

/// A limit of wall time that ends the tree.
struct WallLimit {
    /// The order that the collector would issue for it.
    order: OrderId,
    limit: Rule,
    allowed_ns: u64,
}

/// The tree is being ended, or was.
struct Ending {
    /// When the first ender was started.
    since: Instant,
    /// Pid of the ender that runs. `None`: the tree has been ended.
    ender: Option<u32>,
    /// How many enders were started.
    enders: u32,
    /// How the tree was ended. `None`: it is not yet.
    end: Option<TreeEnd>,
}

impl OrderExecutor {
    /// Makes the executor for a run that has just been started.
    pub(crate) fn new(started: &Started, segment: Option<KnownFile>, options: &Options) -> Self {
        let tracking = &options.tracking;
        let is_quiet = options.report.style.quiet || tracking.disable_logs;
        let on_alert = options.preparations.on_alert.clone();
        let path = segment.as_ref().map(|segment| segment.path.clone()).unwrap_or_default();
        let attached = match &started.subject {
            Subject::Attached { pid, has_ended } => Some((*pid, Arc::clone(has_ended))),
            Subject::Command(_) | Subject::Input(_) => None,
        };
        Self {
            main: started.subject.main(),
            attached,
            alert_commands: AlertCommands::new(on_alert, &started.words, path, is_quiet),
            segment,
            inherits_orphans: options.discovery.uses(Layer::Subreaper),
            kill_after: tracking.limits.kill_after,
            is_quiet,
            wall: WallLimit::first(&tracking.limits.list),
            start_ns: started.at_ns,
            is_wait_over: false,
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
            Action::Tell(_) | Action::TellEvent(_) => match words_of(&order.action, self.is_quiet) {
                Some(words) => tell(&words),
                None => Some(OrderResult::Done),
            },
            Action::RunAlertCommand { alert, event, largest } => {
                let turn = Turn::new(order.id.epoch, *alert, event);
                self.alert_commands.add(turn, event, largest.as_ref(), self.tracked_pid());
                Some(OrderResult::Done)
            }
            Action::EndWait => {
                self.is_wait_over = true;
                // After this signal, the launcher looks at its children.
                let _ = kill_process(getpid(), Signal::CHILD);
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

    /// Ends the tree if the limit of wall time is reached at `now_ns`, CLOCK_MONOTONIC nanoseconds. Returns the order that the
    /// collector would have issued, what came of it, and by how much the limit is exceeded. `None`: the limit is not reached, or none
    /// is left.
    pub(crate) fn enforce_wall_limit(&mut self, now_ns: u64) -> Option<(OrderId, OrderResult, Excess)> {
        let amount = now_ns.saturating_sub(self.start_ns);
        let wall = self.wall.take_if(|wall| amount >= wall.allowed_ns)?;
        let by = Excess { at_ns: now_ns, allowed: wall.allowed_ns, amount };
        Some((wall.order, self.end_tree(&wall.limit, &Exceeded { by, largest: None }), by))
    }

    /// The pid of the command's first process, or of the attached process. `None`: it has ended, or there is none.
    fn tracked_pid(&self) -> Option<u32> {
        let attached = self.attached.as_ref().filter(|(_, has_ended)| !has_ended.load(Ordering::Acquire));
        self.main.map(|main| main.pid).or(attached.map(|(pid, _)| *pid))
    }

    /// The time from `now_ns` to the limit of wall time, or until lines are to be written again. `None`: there is neither.
    pub(crate) fn due(&self, now_ns: u64) -> Option<Duration> {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let wall =
            self.wall.as_ref().map(|wall| Duration::from_nanos(wall.allowed_ns.saturating_sub(elapsed_ns)));
        wall.into_iter().chain(self.alert_commands.due()).min()
    }

    /// Whether this child is no process of the run: it is an ender, or belongs to the command of `--on-alert`.
    pub(crate) fn is_helper(&self, pid: u32) -> bool {
        self.is_ender(pid) || self.alert_commands.has(pid)
    }

    fn is_ender(&self, pid: u32) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.ender == Some(pid))
    }

    /// Handles the stop of a child. An ender is continued: the tree must end, whoever has stopped the ender.
    pub(crate) fn child_stopped(&self, pid: u32) {
        if let Some(ender) = Pid::from_raw(pid.cast_signed()).filter(|_| self.is_ender(pid)) {
            let _ = kill_process(ender, Signal::CONT);
        }
    }

    /// Handles the end of a helper, with this wait status: an ender, or a process of the command of `--on-alert`.
    pub(crate) fn helper_ended(&mut self, pid: u32, status: i32) {
        if self.is_ender(pid) {
            self.ender_ended(status);
        } else {
            self.alert_commands.ended(pid, self.tracked_pid());
        }
    }

    /// Whether the tree is being ended now.
    pub(crate) fn is_ending_tree(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.end.is_none())
    }

    /// Whether the launcher was told that the tree is empty.
    pub(crate) fn is_wait_over(&self) -> bool {
        self.is_wait_over
    }

    /// Handles the end of the ender, with this wait status. If it was killed before its work was done, another one is started.
    fn ender_ended(&mut self, status: i32) {
        let Some(ending) = &mut self.ending else { return };
        ending.ender = None;
        ending.end = tree_end_of(ExitStatus::from_raw(status).code());
        if ending.end.is_none() {
            self.start_ender();
        }
    }

    /// What came of ending the tree. `None`: it was not ended, or that is not over.
    pub(crate) fn tree_end(&self) -> Option<TreeEnd> {
        self.ending.as_ref()?.end
    }

    /// Tells the user if processes could not be ended.
    pub(crate) fn tell_of_left(&self, end: TreeEnd) {
        if end.left > 0 && !self.is_quiet {
            console::message(format_args!(
                "{} could not be ended: the report names what still runs",
                processes_in_words(end.left.into())
            ));
        }
    }

    /// How the launcher ends where a limit has ended the tree. `None`: none has.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        let ending = self.ending.as_ref()?;
        // The launcher waits for the enders before it ends, so it is known by then whether SIGKILL was needed.
        let is_killed = ending.end.is_none_or(|end| end.is_killed);
        Some(ExitStatus::from_raw(if is_killed { STATUS_KILLED } else { STATUS_TERMINATED } << 8))
    }

    /// Begins to end the tree because of a limit, and tells the user. Does nothing if another limit has done so.
    fn end_tree(&mut self, limit: &Rule, exceeded: &Exceeded) -> OrderResult {
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

    /// Starts an ender. Where no process can be made (`ulimit -u`), or enders are killed again and again, the launcher ends the tree
    /// itself, and does nothing else meanwhile.
    fn start_ender(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        let tree = TreeToEnd {
            launcher: Some(std::process::id()),
            inherits_orphans: self.inherits_orphans,
            main: self.main.map(|main| main.pid),
            segment: self.segment.clone(),
            kill_after: self.kill_after.saturating_sub(ending.since.elapsed()),
            // An earlier ender, which was killed, may have sent SIGTERM.
            is_told: ending.enders > 0,
            known: Vec::new(),
        };
        ending.enders += 1;
        ending.ender =
            if ending.enders <= MOST_ENDERS { tree.start().ok().map(|child| child.id()) } else { None };
        if ending.ender.is_none() {
            ending.end = Some(tree.end());
        }
    }
}

impl WallLimit {
    /// The shortest of these limits that end the tree after a wall time. Its order is the one that the collector would issue: the
    /// limit's number in the list, and epoch 0. `None`: there is no such limit.
    fn first(limits: &[Rule]) -> Option<Self> {
        let mut first: Option<Self> = None;
        for (number, limit) in (0..).zip(limits) {
            let (true, Threshold::Amount(allowed_ns)) = (limit.is_held_by_timer(), limit.threshold) else {
                continue;
            };
            if first.as_ref().is_none_or(|first| allowed_ns < first.allowed_ns) {
                let order = OrderId { by: OrderedBy::Limit(number), epoch: 0 };
                first = Some(Self { order, limit: limit.clone(), allowed_ns });
            }
        }
        first
    }
}

/// The line that an action has for the user. `None`: it has none.
pub(crate) fn words_of(action: &Action, tells_no_events: bool) -> Option<String> {
    match action {
        Action::Tell(text) => Some(text.clone()),
        Action::TellEvent(event) if !tells_no_events => Some(event_in_words(event)),
        _ => None,
    }
}

/// Writes a line to stderr for the user. `None`: stderr has no room for it now.
fn tell(text: &str) -> Option<OrderResult> {
    match console::message_without_waiting(text) {
        Ok(()) => Some(OrderResult::Done),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(OrderResult::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) }),
    }
}
