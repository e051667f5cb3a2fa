//! The launcher while the command runs: forward signals, stop and go on with it, reap, and see its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use gpu_track_abi::record::Usage;
use gpu_track_collector::model::config::Message;
use gpu_track_collector::sys::clock;
use gpu_track_collector::sys::proc_fs::ProcRoot;

use crate::cli::Options;
use crate::reap::{self, Changed};
use crate::signals::{self, Arrived, SignalSet};
use crate::tracking::{Collector, Session, children_usage};

/// A collector that lives shorter than this, or can't finish, was not killed by chance.
const SHORT_LIFE_NS: u64 = 20_000_000;
/// So many of those in a row, and there is no other.
const MOST_SHORT_LIVES: u32 = 100;
/// So many in a row that ended by a fault of their own within this time, and the next goes without the GPU driver's library.
const MOST_CRASHES: u32 = 3;
const CRASHES_SOON_NS: u64 = 60_000_000_000;

/// While the report is awaited, the collector is looked at this often.
const LOOK_AT_COLLECTOR: Duration = Duration::from_millis(100);

/// A running command and those who watch it.
pub struct Supervisor {
    session: Session,
    collector: Option<Collector>,
    short_lives: u32,
    crashes: u32,
    main_pid: u32,
    /// Of the command.
    end: Option<End>,
    /// What a collector is to know, besides its configuration.
    told: Vec<Message>,
    wait_all: bool,
    signals: SignalSet,
    /// CPU time of children that we had before the run (it survives exec) or that are not the command's.
    foreign_cpu_us: u64,
    is_quiet: bool,
}

/// How and when the command ended.
#[derive(Debug, Clone, Copy)]
struct End {
    /// Wait status.
    status: i32,
    /// CLOCK_MONOTONIC when that was seen, nanoseconds.
    at_ns: u64,
}

/// Signals that people and batch systems end programs with.
fn ends_programs(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT | libc::SIGHUP)
}

/// Signals that a program gets for what it did itself.
pub fn is_fault(signal: i32) -> bool {
    use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    matches!(signal, SIGSEGV | SIGBUS | SIGABRT | SIGILL | SIGFPE | SIGSYS | SIGTRAP)
}

fn cpu_us(usage: &Usage) -> u64 {
    usage.user_us + usage.system_us
}

impl Supervisor {
    /// Watch over a command that was started just after `started_ns` (CLOCK_MONOTONIC, nanoseconds).
    pub fn new(
        session: Session,
        collector: Collector,
        main_pid: u32,
        started_ns: u64,
        options: &Options,
        signals: SignalSet,
        children_before: Usage,
    ) -> Self {
        let mut supervisor = Self {
            session,
            collector: Some(collector),
            short_lives: 0,
            crashes: 0,
            main_pid,
            end: None,
            told: Vec::new(),
            wait_all: options.wait_all,
            signals,
            foreign_cpu_us: cpu_us(&children_before),
            is_quiet: options.disable_logs,
        };
        supervisor.tell(Message::Started { pid: main_pid, monotonic_ns: started_ns });
        supervisor
    }

    /// Tell the collector, and any that comes after it. One that is gone already shows as a child that ended.
    fn tell(&mut self, message: Message) {
        self.told.push(message);
        if let Some(collector) = &mut self.collector {
            let _ = collector.send(&message);
        }
    }

    /// Until the command has ended; gives its wait status.
    pub fn run(mut self) -> io::Result<ExitStatus> {
        let mut is_asked_to_end = false;
        loop {
            self.reap();
            if let Some(end) = self.end
                && (!self.wait_all || is_asked_to_end || !self.has_children())
            {
                self.reap_the_dying();
                let at_ns = if self.wait_all { clock::monotonic_ns() } else { end.at_ns };
                self.finish(End { at_ns, ..end })?;
                return Ok(ExitStatus::from_raw(end.status));
            }
            let arrived = signals::wait(&self.signals)?;
            if self.end.is_none() {
                self.signal_arrived(arrived);
            } else {
                // The command is over: what is meant to end it ends the waiting for others.
                is_asked_to_end |= ends_programs(arrived.signal);
            }
        }
    }

    fn reap(&mut self) {
        while let Some(changed) = reap::next() {
            self.child_changed(&changed);
        }
    }

    /// Orphans that were killed together with the command are about to end: what they used is only told when they
    /// have. Nobody who lives on is waited for.
    fn reap_the_dying(&mut self) {
        const AT_MOST_NS: u64 = 500_000_000;
        let until_ns = clock::monotonic_ns().saturating_add(AT_MOST_NS);
        let proc = ProcRoot::default();
        let is_dying = |pid: u32| {
            proc.stat(pid).is_some_and(|stat| stat.is_ending())
                || proc.status(pid).is_some_and(|status| status.is_killed)
        };
        while clock::monotonic_ns() < until_ns && self.children().into_iter().any(is_dying) {
            signals::wait_for_child(Duration::from_millis(5));
            self.reap();
        }
    }

    fn child_changed(&mut self, changed: &Changed) {
        let is_main = changed.pid == self.main_pid && self.end.is_none();
        if libc::WIFSTOPPED(changed.status) {
            if is_main {
                self.stop_with_command(libc::WSTOPSIG(changed.status));
            }
            return;
        }
        if self.is_collector(changed) {
            self.foreign_cpu_us += cpu_us(&changed.usage);
            self.collector_ended(changed.status);
            return;
        }
        self.session.record(changed, is_main);
        if is_main {
            self.end = Some(End { status: changed.status, at_ns: clock::monotonic_ns() });
        }
    }

    fn is_collector(&self, changed: &Changed) -> bool {
        self.collector.as_ref().is_some_and(|collector| collector.pid == changed.pid)
    }

    /// Who was killed is replaced. Who ended without that has done its work, or has said why it can't.
    fn collector_ended(&mut self, status: i32) {
        let Some(ended) = self.collector.take() else { return };
        if !libc::WIFSIGNALED(status) {
            return;
        }
        let is_finishing = self.told.iter().any(|message| matches!(message, Message::Ended { .. }));
        let life_ns = clock::monotonic_ns().saturating_sub(ended.started_ns);
        let is_short = life_ns < SHORT_LIFE_NS || is_finishing;
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        let signal = libc::WTERMSIG(status);
        self.crashes = if is_fault(signal) && life_ns < CRASHES_SOON_NS { self.crashes + 1 } else { 0 };
        if self.short_lives >= MOST_SHORT_LIVES {
            self.say(&format!(
                "the collector is ended by signal {signal} again and again; there is no report"
            ));
            return;
        }
        let running_pid = self.end.is_none().then_some(self.main_pid);
        let crashed_by = (self.crashes >= MOST_CRASHES).then_some(signal);
        match self.session.replace_collector(running_pid, crashed_by) {
            Ok(mut another) => {
                for message in &self.told {
                    let _ = another.send(message);
                }
                self.collector = Some(another);
            }
            Err(error) => self.say(&format!("the collector was killed; there is no report: {error}")),
        }
    }

    /// Ctrl-Z stops the command, and the shell waits for us: stop too, and let it go on when we do.
    fn stop_with_command(&self, signal: i32) {
        let is_job_control = matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        // Some programs answer SIGTSTP with a SIGSTOP of their own. Away from a terminal a SIGSTOP is somebody's
        // who will continue the command alone: to stop then would be for ever.
        if is_job_control || (signal == libc::SIGSTOP && is_foreground()) {
            // SAFETY: raise has no preconditions; SIGSTOP can't be blocked, so this returns after a SIGCONT.
            unsafe { libc::raise(libc::SIGSTOP) };
            self.forward(libc::SIGCONT);
        }
    }

    /// What a process sent to us alone is meant for the command. What the terminal sent, it got itself.
    fn signal_arrived(&self, arrived: Arrived) {
        if arrived.signal != libc::SIGCHLD && arrived.by_other {
            self.forward(arrived.signal);
        }
    }

    fn forward(&self, signal: i32) {
        // SAFETY: the command is our child and not reaped while this runs, so the pid is its own. Where it may not
        // be signalled (it changed its user), there is nothing to be done.
        unsafe { libc::kill(self.main_pid.cast_signed(), signal) };
    }

    /// Whether any child but the collector is left.
    fn has_children(&self) -> bool {
        !self.children().is_empty()
    }

    /// Our children but the collector: as subreaper we inherit every orphan of the tree.
    fn children(&self) -> Vec<u32> {
        let collector = self.collector.as_ref().map(|collector| collector.pid);
        let mut children = ProcRoot::default().children(std::process::id(), 1);
        children.retain(|pid| Some(*pid) != collector);
        children
    }

    /// Tell the collector, and wait for the report.
    fn finish(&mut self, end: End) -> io::Result<()> {
        self.tell(Message::Ended {
            status: end.status,
            monotonic_ns: end.at_ns,
            children_cpu_us: cpu_us(&children_usage()).saturating_sub(self.foreign_cpu_us),
        });
        self.session.wake_collector();
        self.wait_for_report()?;
        self.session.clean_up();
        Ok(())
    }

    fn wait_for_report(&mut self) -> io::Result<()> {
        // What ended the command was sent to us too (Ctrl-C): it is not meant for the report.
        signals::discard_pending(&self.signals);
        let mut impatient = 0;
        let mut was_over = false;
        loop {
            while let Some(changed) = reap::next() {
                if self.is_collector(&changed) {
                    self.collector_ended(changed.status);
                }
            }
            // Who asks twice has waited long enough; the collector goes on by itself.
            if self.collector.is_none() || impatient >= 2 {
                return Ok(());
            }
            match signals::wait_for(&self.signals, LOOK_AT_COLLECTOR)? {
                Some(arrived) => impatient += i32::from(ends_programs(arrived.signal)),
                None => {
                    let is_over = self.is_collector_over();
                    if is_over && was_over {
                        // Without a report it was killed.
                        self.collector_ended(if self.session.is_reported() { 0 } else { libc::SIGKILL });
                    }
                    was_over = is_over;
                }
            }
        }
    }

    /// Whether the collector is dead. If it can't be reaped then, a thread of it is in a call of a GPU's driver that
    /// can't be interrupted (state D). That can be for ever, and nobody is kept waiting for it.
    fn is_collector_over(&self) -> bool {
        let stat = self.collector.as_ref().and_then(|collector| ProcRoot::default().stat(collector.pid));
        stat.is_some_and(|stat| stat.is_dead())
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            crate::say(&format!("gpu-track-run: {text}"));
        }
    }
}

/// Whether we belong to the foreground job of a terminal.
fn is_foreground() -> bool {
    let Ok(terminal) = rustix::fs::open("/dev/tty", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())
    else {
        return false;
    };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}
