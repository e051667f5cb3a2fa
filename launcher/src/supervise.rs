//! The launcher while the command runs: forward signals, stop and go on with it, reap, and see its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use gpu_track_abi::record::Usage;
use gpu_track_collector::clock;
use gpu_track_collector::config::Message;
use gpu_track_collector::proc_fs::ProcRoot;

use crate::cli::Options;
use crate::reap::{self, Reaped};
use crate::signals::{self, Arrived, SignalSet};
use crate::tracking::{Collector, Session, children_usage};

/// A collector that lives shorter than this was not killed by chance.
const SHORT_LIFE_NS: u64 = 20_000_000;
/// So many of those in a row, and there is no other.
const MOST_SHORT_LIVES: u32 = 100;

/// A running command and those who watch it.
pub struct Supervisor {
    session: Session,
    collector: Option<Collector>,
    short_lives: u32,
    main_pid: u32,
    /// What a collector is to know, besides its configuration.
    told: Vec<Message>,
    wait_all: bool,
    signals: SignalSet,
    /// CPU time of children that we had before the run (it survives exec) or that are not the command's.
    foreign_cpu_us: u64,
    is_quiet: bool,
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
            main_pid,
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
        let mut status = None;
        loop {
            while let Some(reaped) = reap::next() {
                self.child_changed(&reaped, &mut status);
            }
            if let Some(status) = status
                && (!self.wait_all || !self.has_children())
            {
                self.finish(status)?;
                return Ok(ExitStatus::from_raw(status));
            }
            self.signal_arrived(signals::wait(&self.signals)?);
        }
    }

    fn child_changed(&mut self, reaped: &Reaped, status: &mut Option<i32>) {
        let is_main = reaped.pid == self.main_pid && status.is_none();
        if libc::WIFSTOPPED(reaped.status) {
            if is_main {
                self.stop_with_command(libc::WSTOPSIG(reaped.status));
            }
            return;
        }
        if self.is_collector(reaped) {
            self.foreign_cpu_us += cpu_us(&reaped.usage);
            self.collector_ended(reaped.status);
            return;
        }
        self.session.record(reaped, is_main);
        if is_main {
            *status = Some(reaped.status);
        }
    }

    fn is_collector(&self, reaped: &Reaped) -> bool {
        self.collector.as_ref().is_some_and(|collector| collector.pid == reaped.pid)
    }

    /// Who was killed is replaced. Who ended without that has done its work, or has said why it can't.
    fn collector_ended(&mut self, status: i32) {
        let Some(ended) = self.collector.take() else { return };
        if !libc::WIFSIGNALED(status) {
            return;
        }
        let is_short = clock::monotonic_ns().saturating_sub(ended.started_ns) < SHORT_LIFE_NS;
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        if self.short_lives >= MOST_SHORT_LIVES {
            let signal = libc::WTERMSIG(status);
            self.say(&format!(
                "the collector is ended by signal {signal} again and again; there is no report"
            ));
            return;
        }
        match self.session.replace_collector() {
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

    /// Whether any child but the collector is left: as subreaper we inherit every orphan of the tree.
    fn has_children(&self) -> bool {
        let collector = self.collector.as_ref().map(|collector| collector.pid);
        ProcRoot::default().children(std::process::id(), 1).into_iter().any(|pid| Some(pid) != collector)
    }

    /// Tell the collector, and wait for the report.
    fn finish(&mut self, status: i32) -> io::Result<()> {
        self.tell(Message::Ended {
            status,
            monotonic_ns: clock::monotonic_ns(),
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
        loop {
            while let Some(reaped) = reap::next() {
                if self.is_collector(&reaped) {
                    self.collector_ended(reaped.status);
                }
            }
            // Who asks twice has waited long enough; the collector goes on by itself.
            if self.collector.is_none() || impatient >= 2 {
                return Ok(());
            }
            let arrived = signals::wait(&self.signals)?;
            impatient += i32::from(matches!(arrived.signal, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT));
        }
    }

    fn say(&self, text: &str) {
        if !self.is_quiet {
            eprintln!("gpu-track-run: {text}");
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
