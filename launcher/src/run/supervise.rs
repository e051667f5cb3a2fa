//! The launcher while the command runs: it forwards signals, stops and continues with the command, and reaps. It tells the
//! run's [`Account`] what happens.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpu_track_collector::model::config::{Layer, Message};
use gpu_track_collector::model::io_calls::IoCalls;
use gpu_track_collector::model::run_end::CommandExit;
use gpu_track_collector::model::signal::SignalTold;
use gpu_track_collector::{KnownFile, ProcRoot, clock};

use crate::cli::Options;
use crate::collector_process::Collector;
use crate::console;
use crate::nodes::NodeRun;
use crate::process::exit;
use crate::process::reap::{self, ChildChange, usage_of};
use crate::process::signals::{self, Received, SignalSet};
use crate::run::orders::OrderExecutor;
use crate::run::started::{Started, Subject};
use crate::run::wakeups::Wakeups;

/// How long the launcher waits for orphans that were killed together with the command. Their usage is known only when
/// they have ended; the kernel needs tens of milliseconds to free 1 GB.
const KILLED_ORPHANS_WAIT_NS: u64 = 500_000_000;
/// How long it waits for orphans that nothing killed. Helpers end when they see that the command has ended, such as the resource
/// tracker of Python's multiprocessing. That one needs some 20 ms where other processes keep the cores busy. A run that leaves a
/// daemon behind ends later by this time.
const ENDING_ORPHANS_WAIT_NS: u64 = 20_000_000;
/// How often the launcher looks at orphans that may end.
const ENDING_ORPHANS_INTERVAL: Duration = Duration::from_millis(5);

/// What accounts for a run: a collector, or the launcher itself where there can be none.
pub(crate) trait Account {
    /// The run's collector. `None`: there is none, or none any more.
    fn collector(&self) -> Option<&Collector>;
    /// What the account was told so far.
    fn messages(&self) -> &[Message];
    /// Tells the account what happens to the command.
    fn tell(&mut self, message: Message);
    /// Whether this child of the launcher is not the run's: a collector, a proxy of docker, what starts agents, or a child from
    /// before this program's exec.
    fn is_foreign(&self, pid: u32) -> bool;
    /// A child for which [`Self::is_foreign`] holds has ended, with this pid and wait status.
    fn foreign_ended(&mut self, pid: u32, status: i32);
    /// A child of the run has ended. `is_main`: it was the command's first process.
    fn child_ended(&mut self, ended: &ChildChange, is_main: bool);
    /// Does what is due before each wait of the launcher, and has `executor` carry out the orders that have come. Returns the time until
    /// something is due again; `None`: nothing has a time.
    fn attend(&mut self, executor: &mut OrderExecutor) -> Option<Duration>;
    /// The segment. `None`: there is no session.
    fn segment(&self) -> Option<KnownFile>;
    /// Has the report written, and waits for it. The account must have been told that the run has ended.
    fn conclude(&mut self, wakeups: &Wakeups) -> io::Result<()>;
    /// Takes the part of the run that is on other nodes, if the account has it. To be called at the end.
    fn take_nodes(&mut self) -> Option<NodeRun>;
    /// Whether a collector has written the report.
    fn is_reported_by_collector(&self) -> bool;
}

/// The state of the launcher while the command runs.
pub(crate) struct Supervisor<A> {
    pub(super) account: A,
    subject: Subject,
    /// How the run's subject, such as the command, ended. `None`: it has not.
    exit: Option<CommandEnd>,
    /// `--wait-all`: the run lasts until the tree is empty.
    wait_all: bool,
    /// The launcher is a subreaper.
    inherits_orphans: bool,
    wakeups: Wakeups,
    executor: OrderExecutor,
    /// CPU time in RUSAGE_CHILDREN that is not the run's, microseconds. It is of collectors, enders and commands of `--on-alert`,
    /// and of children from before the run (exec keeps it).
    foreign_cpu_us: u64,
    /// What those that ended during the run had passed by calls.
    helper_calls: IoCalls,
    exit_manner: exit::Manner,
}

/// How and when the command ended.
#[derive(Debug, Clone, Copy)]
struct CommandEnd {
    /// Wait status. `None`: the process is another program's child.
    status: Option<i32>,
    /// Tracking of an attached process was ended, and the process runs on.
    runs_on: bool,
    /// CLOCK_MONOTONIC when the launcher saw it.
    at_ns: u64,
}

impl<A: Account> Supervisor<A> {
    /// Makes the supervisor of what was started. Tells the account of the command's start, and hands signals from before it on to
    /// the command. `signals` are blocked.
    pub(crate) fn new(account: A, started: Started, options: &Options, signals: SignalSet) -> Self {
        let executor = OrderExecutor::new(&started, account.segment(), options);
        let Started { subject, at_ns, children_before, early_signals, .. } = started;
        let mut supervisor = Self {
            account,
            subject,
            exit: None,
            wait_all: options.command.wait_all,
            inherits_orphans: options.discovery.uses(Layer::Subreaper),
            wakeups: Wakeups::new(signals),
            executor,
            foreign_cpu_us: children_before.cpu_us(),
            helper_calls: IoCalls::default(),
            exit_manner: options.exit_manner,
        };
        if let Subject::Command(main) = supervisor.subject {
            supervisor.account.tell(Message::Started { pid: main.pid, monotonic_ns: at_ns });
            for received in early_signals {
                match received.sender {
                    Some(_) => supervisor.signal_received(received),
                    // The terminal sent it to the process group before the command was in there.
                    None => main.send(received.signal),
                }
            }
        }
        supervisor
    }

    /// Waits until the run has ended and the report is written. Returns how the launcher ends, as a wait status.
    pub(crate) fn run(&mut self) -> io::Result<ExitStatus> {
        let mut end_is_requested = false;
        loop {
            self.reap();
            self.note_end_without_command();
            self.tell_end_of_tree();
            if let Some(exit) = self.exit
                && !self.executor.is_ending_tree()
            {
                // The run ends with the command, or with --wait-all when its tree is empty or the wait was interrupted.
                if !self.wait_all || end_is_requested || !self.is_tree_left() {
                    self.reap_ending_orphans();
                    // With --wait-all, the run has lasted until now.
                    let at_ns = if self.wait_all { clock::monotonic_ns() } else { exit.at_ns };
                    self.finish(CommandEnd { at_ns, ..exit })?;
                    return Ok(self.own_status(exit));
                }
                self.note_waiting(exit);
            }
            // This comes after the check for the run's end: a run that ended while the launcher was stopped has not exceeded the
            // limit.
            self.enforce_wall_limit();
            let due = self.account.attend(&mut self.executor);
            self.tell_failures();
            self.executor.alert_commands.write_lines();
            let due = due.into_iter().chain(self.executor.due(clock::monotonic_ns())).min();
            let received = self.wakeups.wait(self.account.collector(), due)?;
            let Some(received) = received else { continue };
            if self.exit.is_none() {
                self.signal_received(received);
            } else {
                // With --wait-all, a request to end that comes after the command's end ends the wait for its tree.
                end_is_requested |= signals::requests_end(received.signal);
            }
        }
    }

    /// How the launcher ends: as the command did, or as timeout(1) does at a limit. If the run attached to a process, the status is 0.
    fn own_status(&self, exit: CommandEnd) -> ExitStatus {
        if let Some(status) = self.executor.exit_status() {
            return status;
        }
        let status = if let Subject::Attached { .. } = self.subject { None } else { exit.status };
        ExitStatus::from_raw(status.unwrap_or(0))
    }

    /// Ends the tree when the limit of wall time is reached. Tells the account as if the launcher had obeyed an order of the
    /// collector.
    fn enforce_wall_limit(&mut self) {
        if let Some((id, result, excess)) = self.executor.enforce_wall_limit(clock::monotonic_ns()) {
            self.account.tell(Message::OrderAnswered { id, result, excess: Some(excess) });
        }
    }

    /// Tells the account and the user once what came of ending the tree.
    fn tell_end_of_tree(&mut self) {
        let is_told = self.account.messages().iter().any(|message| matches!(message, Message::TreeEnded(_)));
        if !is_told && let Some(end) = self.executor.tree_end() {
            self.executor.tell_of_left(end);
            self.account.tell(Message::TreeEnded(end));
        }
    }

    /// Tells the account of failures of the command of `--on-alert`.
    fn tell_failures(&mut self) {
        for failure in self.executor.alert_commands.take_failures() {
            self.account.tell(failure);
        }
    }

    /// Notes the end of the input, or of the attached process, if it has come. A run without a command lasts as long as that.
    fn note_end_without_command(&mut self) {
        let (has_ended, status) = match &self.subject {
            Subject::Command(_) => return,
            Subject::Input(has_ended) => (has_ended, Some(0)),
            Subject::Attached { has_ended, .. } => (has_ended, None),
        };
        if has_ended.load(Ordering::Acquire) {
            // An attached process can be this process's child: a shell started it, and became gpu-track-run by exec. Then the reaping
            // notes its end with the wait status, and `get_or_insert` changes nothing.
            self.reap();
            let at_ns = clock::monotonic_ns();
            self.exit.get_or_insert(CommandEnd { status, runs_on: false, at_ns });
        }
    }

    /// Tells the account once that the command has ended, and since when the run waits for its tree.
    fn note_waiting(&mut self, exit: CommandEnd) {
        if !self.account.messages().iter().any(|message| matches!(message, Message::WaitingForTree { .. })) {
            self.account.tell(Message::WaitingForTree { since_ns: exit.at_ns });
        }
    }

    /// Handles all children that have ended or stopped.
    fn reap(&mut self) {
        while let Some(change) = reap::next() {
            self.child_changed(&change);
        }
    }

    /// Reaps orphans that were killed together with the command, or end because it has ended. Their usage is known only when they
    /// have ended. Waits only while there are orphans.
    fn reap_ending_orphans(&mut self) {
        let since_ns = clock::monotonic_ns();
        let proc_root = ProcRoot::default();
        let is_killed = |pid: u32| {
            proc_root.stat(pid).is_some_and(|stat| stat.is_ending())
                || proc_root.status(pid).is_some_and(|status| status.is_killed)
        };
        loop {
            let waited_ns = clock::monotonic_ns().saturating_sub(since_ns);
            let may_end = |pid: u32| {
                waited_ns < ENDING_ORPHANS_WAIT_NS || (waited_ns < KILLED_ORPHANS_WAIT_NS && is_killed(pid))
            };
            if !self.children().into_iter().any(may_end) {
                return;
            }
            signals::wait_for_child(ENDING_ORPHANS_INTERVAL);
            self.reap();
        }
    }

    /// Handles a child that has ended or stopped: the command, an orphan, or one that is not of the run. If the command has stopped,
    /// the launcher stops with it.
    fn child_changed(&mut self, change: &ChildChange) {
        // After the command's end, its pid can be another child's.
        let main = self.subject.main().filter(|main| main.pid == change.pid && self.exit.is_none());
        if libc::WIFSTOPPED(change.status) {
            match main {
                Some(main) => main.stop_with_it(libc::WSTOPSIG(change.status)),
                None => self.executor.child_stopped(change.pid),
            }
            return;
        }
        // A helper is an ender, or a process of the command of `--on-alert`.
        if self.executor.is_helper(change.pid) {
            self.note_helper(change);
            self.executor.helper_ended(change.pid, change.status);
            return;
        }
        if self.account.is_foreign(change.pid) {
            self.note_helper(change);
            self.account.foreign_ended(change.pid, change.status);
            return;
        }
        let status = Some(change.status);
        let exit = CommandEnd { status, runs_on: false, at_ns: clock::monotonic_ns() };
        if let Subject::Attached { pid, .. } = self.subject {
            // The attached process can be this process's child. Other children are not of the run.
            if pid == change.pid {
                self.exit.get_or_insert(exit);
            }
            return;
        }
        self.account.child_ended(change, main.is_some());
        if main.is_some() {
            self.executor.main_was_reaped();
            self.exit = Some(exit);
        }
    }

    /// Notes what a child that is not of the run used, so that [`Self::finish`] can take it off. It has ended, and is not reaped yet.
    fn note_helper(&mut self, ended: &ChildChange) {
        self.foreign_cpu_us += ended.usage.cpu_us();
        let calls = ProcRoot::default().io(ended.pid).map(|io| io.calls);
        self.helper_calls = self.helper_calls.plus(calls.unwrap_or_default());
    }

    /// Forwards a signal that another process sent, and tells the account of the first of each kind. The terminal's signals, which
    /// have no sender, go to the whole process group, so the command has got them already. Without a command nothing is forwarded,
    /// and the signal ends nothing: only the end of the input ends the run. The account is told all the same, so that the collector
    /// writes the report so far. For a run that attached to a process, see [`Self::signal_of_attached`].
    fn signal_received(&mut self, received: Received) {
        // Read before the signal is forwarded, so that what it causes is later.
        let at_ns = clock::monotonic_ns();
        // A SIGCHLD is about a child of the launcher, not of the command.
        if received.signal == libc::SIGCHLD {
            return;
        }
        if let Subject::Attached { .. } = self.subject {
            self.signal_of_attached(received.signal, at_ns);
            return;
        }
        let Some((sender_pid, sender_uid)) = received.sender else { return };
        if let Some(main) = self.subject.main() {
            main.send(received.signal);
        }
        // A program may send the same signal again and again: only the first one is a cause of anything.
        let is_known =
            |message: &Message| matches!(message, Message::Signalled(told) if told.signal == received.signal);
        if !self.account.messages().iter().any(is_known) {
            let signal = received.signal;
            self.account.tell(Message::Signalled(SignalTold { signal, at_ns, sender_pid, sender_uid }));
        }
    }

    /// Obeys a signal in a run that attached to a process, which gets no signal. A request to end ends the run; a stop of the
    /// terminal's job stops the launcher.
    fn signal_of_attached(&mut self, signal: i32, at_ns: u64) {
        if signals::requests_end(signal) {
            self.exit.get_or_insert(CommandEnd { status: None, runs_on: true, at_ns });
        } else if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
            // SAFETY: raise has no preconditions; this returns after a SIGCONT.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }

    /// Lists the launcher's children that belong to the run: a subreaper inherits every orphan of the tree. A run that attached to a
    /// process has none.
    fn children(&self) -> Vec<u32> {
        if let Subject::Attached { .. } = self.subject {
            return Vec::new();
        }
        self.listed_children().unwrap_or_default()
    }

    /// Lists the launcher's children that belong to the run, if there is a /proc that shows them.
    fn listed_children(&self) -> Option<Vec<u32>> {
        // The first thread has forked all children, and inherits the orphans.
        let mut children = ProcRoot::default().own_children()?;
        children.retain(|pid| !self.account.is_foreign(*pid) && !self.executor.is_helper(*pid));
        Some(children)
    }

    /// Whether a process of the run is left, as far as the launcher knows: a child, or where it inherits no orphans, what the collector
    /// has not said to be over. Without /proc, a child that does not belong to the run counts, too.
    fn is_tree_left(&self) -> bool {
        let is_left_elsewhere =
            !self.inherits_orphans && self.account.collector().is_some() && !self.executor.is_wait_over();
        is_left_elsewhere
            || self.listed_children().map_or_else(reap::has_children, |children| !children.is_empty())
    }

    /// Writes gpu_tracker's last line to stdout if this is gpu_tracker. Gives up the alerts that wait, and tells the account what
    /// failed of `--on-alert`, and that the run has ended. Then waits for the report.
    fn finish(&mut self, exit: CommandEnd) -> io::Result<()> {
        if let Some(line) = self.exit_manner.line(self.own_status(exit)) {
            console::print(&line);
        }
        self.executor.alert_commands.give_up();
        self.tell_failures();
        let is_wait_interrupted = self.wait_all && self.is_tree_left();
        self.account.tell(Message::Ended(CommandExit {
            status: exit.status,
            runs_on: exit.runs_on,
            is_wait_interrupted,
            at_ns: exit.at_ns,
            children_cpu_us: usage_of(libc::RUSAGE_CHILDREN).cpu_us().saturating_sub(self.foreign_cpu_us),
            helper_calls: self.helper_calls,
        }));
        self.account.conclude(&self.wakeups)
    }
}
