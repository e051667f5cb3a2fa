//! The launcher while the command runs: it forwards signals, stops and continues with the command, and reaps.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use gpu_track_abi::record::Usage;
use gpu_track_collector::{Message, ProcRoot, clock};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::cli::Options;
use crate::collector::Collector;
use crate::old_shims::Upkeep;
use crate::reap::{self, ChildChange, usage_of};
use crate::restart::{KilledCollectors, MAX_SHORT_LIVES, Successor};
use crate::session::Session;
use crate::signals::{self, Received, SignalSet};
use crate::wakeups::Wakeups;
use crate::{console, exit, orders};

/// How long the launcher waits for orphans that were killed together with the command. Their usage is known only when
/// they have ended; the kernel needs tens of milliseconds to free 1 GB.
const KILLED_ORPHANS_WAIT_NS: u64 = 500_000_000;
/// How long it waits for orphans that nobody killed. Helpers end when they see that the command has ended, such as the resource
/// tracker of Python's multiprocessing, which needs some 20 ms where others keep the cores busy. Whoever leaves a daemon behind waits as long.
const ENDING_ORPHANS_WAIT_NS: u64 = 20_000_000;
/// How often the launcher looks at orphans that may end.
const ENDING_ORPHANS_INTERVAL: Duration = Duration::from_millis(5);
/// How often the launcher checks the collector while it waits for the report. SIGCHLD comes only from a collector that
/// can be reaped.
const COLLECTOR_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of requests to end (Ctrl-C) after which the launcher stops waiting for the report. The collector still writes
/// it.
const MAX_END_REQUESTS: u32 = 2;

/// A command that was started, and its session.
pub(crate) struct Started {
    pub(crate) session: Session,
    pub(crate) collector: Collector,
    pub(crate) main_pid: u32,
    /// CLOCK_MONOTONIC just before the fork.
    pub(crate) started_ns: u64,
}

/// The state of the launcher while the command runs.
pub(crate) struct Supervisor {
    session: Session,
    collector: Option<Collector>,
    killed_collectors: KilledCollectors,
    main_pid: u32,
    exit: Option<CommandExit>,
    /// Messages that each collector gets after its configuration.
    messages: Vec<Message>,
    wait_all: bool,
    shim_upkeep: Option<Upkeep>,
    wakeups: Wakeups,
    /// CPU time in RUSAGE_CHILDREN that is not the command's: of collectors, and from before the run (exec keeps it).
    foreign_cpu_us: u64,
    is_quiet: bool,
    exit_manner: exit::Manner,
}

/// How and when the command ended.
#[derive(Debug, Clone, Copy)]
struct CommandExit {
    /// Wait status.
    status: i32,
    /// CLOCK_MONOTONIC when the launcher saw it.
    at_ns: u64,
}

fn cpu_us(usage: &Usage) -> u64 {
    usage.user_us + usage.system_us
}

impl Supervisor {
    /// `signals` are blocked; `children_before` is RUSAGE_CHILDREN before the run.
    pub(crate) fn new(
        started: Started,
        options: &Options,
        signals: SignalSet,
        children_before: &Usage,
    ) -> Self {
        let Started { session, collector, main_pid, started_ns } = started;
        let mut supervisor = Self {
            shim_upkeep: session.shim_upkeep(),
            session,
            collector: Some(collector),
            killed_collectors: KilledCollectors::default(),
            main_pid,
            exit: None,
            messages: Vec::new(),
            wait_all: options.command.wait_all,
            wakeups: Wakeups::new(signals),
            foreign_cpu_us: cpu_us(children_before),
            is_quiet: options.tracking.disable_logs,
            exit_manner: options.exit_manner,
        };
        supervisor.send(Message::Started { pid: main_pid, monotonic_ns: started_ns });
        supervisor
    }

    /// Sends a message to this collector and to those that replace it.
    fn send(&mut self, message: Message) {
        self.messages.push(message);
        if let Some(collector) = &mut self.collector {
            collector.messages.send(&message);
        }
    }

    /// Waits until the command has ended and the report is written. Returns the command's wait status.
    pub(crate) fn run(mut self) -> io::Result<ExitStatus> {
        let mut end_is_requested = false;
        loop {
            self.reap();
            if let Some(exit) = self.exit {
                if !self.wait_all || end_is_requested || self.children().is_empty() {
                    self.reap_ending_orphans();
                    let at_ns = if self.wait_all { clock::monotonic_ns() } else { exit.at_ns };
                    self.finish(CommandExit { at_ns, ..exit })?;
                    return Ok(ExitStatus::from_raw(exit.status));
                }
                self.note_waiting(exit);
            }
            self.attend_collector();
            let until_upkeep = self.shim_upkeep.as_mut().map(Upkeep::attend);
            let received = self.wakeups.wait(self.collector.as_ref(), until_upkeep)?;
            let Some(received) = received else { continue };
            if self.exit.is_none() {
                self.signal_received(received);
            } else {
                // With --wait-all, a request to end that comes after the command's end ends the wait for its tree.
                end_is_requested |= signals::requests_end(received.signal);
            }
        }
    }

    /// Tells the collector that the command has ended, and that the run goes on.
    fn note_waiting(&mut self, exit: CommandExit) {
        if !self.messages.iter().any(|message| matches!(message, Message::WaitingForTree { .. })) {
            self.send(Message::WaitingForTree { since_ns: exit.at_ns });
        }
    }

    /// Sends what has found the collector's pipe full, and obeys the orders that have come.
    fn attend_collector(&mut self) {
        if let Some(collector) = &mut self.collector {
            collector.messages.flush();
        }
        while let Some(order) = self.collector.as_mut().and_then(|collector| collector.orders.next()) {
            let is_its =
                |message: &&Message| matches!(message, Message::OrderAnswered { id, .. } if *id == order.id);
            let answer = self.messages.iter().find(is_its).copied();
            match (answer, &mut self.collector) {
                // The collector that got the answer was killed, or this one had issued the order before it came.
                (Some(answer), Some(collector)) => collector.messages.send(&answer),
                _ => {
                    if let Some(result) = orders::obey(&order.action) {
                        self.send(Message::OrderAnswered { id: order.id, result });
                    }
                }
            }
        }
    }

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

    fn child_changed(&mut self, change: &ChildChange) {
        let is_main = change.pid == self.main_pid && self.exit.is_none();
        if libc::WIFSTOPPED(change.status) {
            if is_main {
                self.stop_with_command(libc::WSTOPSIG(change.status));
            }
            return;
        }
        if self.is_collector(change) {
            self.foreign_cpu_us += cpu_us(&change.usage);
            self.collector_ended(change.status);
            return;
        }
        self.session.record(change, is_main);
        if is_main {
            self.exit = Some(CommandExit { status: change.status, at_ns: clock::monotonic_ns() });
        }
    }

    fn is_collector(&self, change: &ChildChange) -> bool {
        self.collector.as_ref().is_some_and(|collector| collector.pid == change.pid)
    }

    /// Replaces a collector that a signal ended. One that exited has written the report, or a message that says why not.
    fn collector_ended(&mut self, status: i32) {
        let Some(ended) = self.collector.take() else { return };
        if !libc::WIFSIGNALED(status) {
            return;
        }
        let signal = libc::WTERMSIG(status);
        let life_ns = clock::monotonic_ns().saturating_sub(ended.started_ns);
        let is_finishing = self.messages.iter().any(|message| matches!(message, Message::Ended { .. }));
        let crashed_by = match self.killed_collectors.add(signal, life_ns, is_finishing) {
            Successor::Same => None,
            Successor::WithoutNvml => Some(signal),
            Successor::None => {
                let times = MAX_SHORT_LIVES;
                self.warn(&format!(
                    "signal {signal} ended the collector {times} times in a row; there is no report"
                ));
                return;
            }
        };
        match self.session.restart_collector(self.main_pid, crashed_by) {
            Ok(mut collector) => {
                for message in &self.messages {
                    collector.messages.send(message);
                }
                self.collector = Some(collector);
            }
            Err(error) => {
                self.warn(&format!("signal {signal} ended the collector; there is no report: {error}"));
            }
        }
    }

    /// Stops the launcher after the command (Ctrl-Z): the shell waits for the launcher. When the shell continues the
    /// launcher, that continues the command.
    fn stop_with_command(&self, signal: i32) {
        let is_job_control = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        // Some programs handle SIGTSTP and then send SIGSTOP to themselves. Outside a foreground job, whoever sent a
        // SIGSTOP will continue only the command, so a stopped launcher would stay stopped.
        if is_job_control || (signal == libc::SIGSTOP && is_foreground()) {
            // SAFETY: raise has no preconditions; SIGSTOP can't be blocked, so this returns after a SIGCONT.
            unsafe { libc::raise(libc::SIGSTOP) };
            self.forward(libc::SIGCONT);
        }
    }

    /// Forwards a signal that another process sent to the launcher alone. The terminal's signals go to the whole process
    /// group, so the command has got them already.
    fn signal_received(&mut self, received: Received) {
        let Some((sender_pid, sender_uid)) = received.sender.filter(|_| received.signal != libc::SIGCHLD)
        else {
            return;
        };
        let monotonic_ns = clock::monotonic_ns();
        self.forward(received.signal);
        // A program may send the same signal again and again: only the first one is a cause of anything.
        let is_known = |message: &Message| matches!(message, Message::Signalled { signal, .. } if *signal == received.signal);
        if !self.messages.iter().any(is_known) {
            self.send(Message::Signalled { signal: received.signal, monotonic_ns, sender_pid, sender_uid });
        }
    }

    fn forward(&self, signal: i32) {
        // SAFETY: the command is a child that is not reaped yet, so the pid is its own. If it has changed its user, the
        // kernel may refuse the signal, and nothing else can be done.
        unsafe { libc::kill(self.main_pid.cast_signed(), signal) };
    }

    /// The launcher's children without the collector: a subreaper inherits every orphan of the tree.
    fn children(&self) -> Vec<u32> {
        let collector = self.collector.as_ref().map(|collector| collector.pid);
        let mut children = ProcRoot::default().children(std::process::id(), 1);
        children.retain(|pid| Some(*pid) != collector);
        children
    }

    /// Tells the collector that the command has ended, and waits for the report.
    fn finish(&mut self, exit: CommandExit) -> io::Result<()> {
        if let Some(line) = self.exit_manner.line(ExitStatus::from_raw(exit.status)) {
            console::print(&line);
        }
        let is_wait_interrupted = self.wait_all && !self.children().is_empty();
        self.send(Message::Ended {
            status: exit.status,
            is_wait_interrupted,
            monotonic_ns: exit.at_ns,
            children_cpu_us: cpu_us(&usage_of(libc::RUSAGE_CHILDREN)).saturating_sub(self.foreign_cpu_us),
        });
        self.session.wake_collector();
        self.wait_for_report()?;
        self.session.clean_up();
        Ok(())
    }

    fn wait_for_report(&mut self) -> io::Result<()> {
        // The signal that ended the command (Ctrl-C) was sent to the launcher too. It must not end the wait.
        self.wakeups.discard_pending();
        let mut end_requests = 0;
        let mut was_dead = false;
        loop {
            while let Some(change) = reap::next() {
                if self.is_collector(&change) {
                    self.collector_ended(change.status);
                }
            }
            if end_requests >= MAX_END_REQUESTS {
                return Ok(());
            }
            let Some(collector) = &mut self.collector else { return Ok(()) };
            collector.messages.flush();
            // The run is over, and with it what an order can be about.
            collector.orders.close();
            match self.wakeups.wait(Some(collector), Some(COLLECTOR_CHECK_INTERVAL))? {
                Some(received) => end_requests += u32::from(signals::requests_end(received.signal)),
                None => {
                    let is_dead = self.is_collector_dead();
                    if is_dead && was_dead {
                        // The collector's status cannot be read. Without a report, it was killed.
                        self.collector_ended(if self.session.is_reported() { 0 } else { libc::SIGKILL });
                    }
                    was_dead = is_dead;
                }
            }
        }
    }

    /// Whether the collector's main thread is dead. It cannot be reaped while another thread is in an uninterruptible
    /// call (state D) of a GPU driver. Such a call may never return, so the launcher does not wait for it.
    fn is_collector_dead(&self) -> bool {
        let stat = self.collector.as_ref().and_then(|collector| ProcRoot::default().stat(collector.pid));
        stat.is_some_and(|stat| stat.is_dead())
    }

    fn warn(&self, text: &str) {
        if !self.is_quiet {
            console::message(text);
        }
    }
}

/// Whether the launcher belongs to the foreground process group of its terminal.
fn is_foreground() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}
