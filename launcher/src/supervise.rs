//! The launcher while the command runs: forward signals, stop and go on with it, reap, and see its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use gpu_track_collector::clock;
use gpu_track_collector::config::Message;
use gpu_track_collector::proc_fs::ProcRoot;

use crate::reap::{self, Reaped};
use crate::signals::{self, Arrived, SignalSet};
use crate::tracking::{Collector, Session, children_usage};

/// A running command and those who watch it.
pub struct Supervisor {
    session: Session,
    collector: Option<Collector>,
    main_pid: u32,
    wait_all: bool,
    signals: SignalSet,
    /// CPU time of children that we had before the run (it survives exec) or that are not the command's.
    foreign_cpu_us: u64,
    is_quiet: bool,
}

fn cpu_us(usage: &gpu_track_abi::record::Usage) -> u64 {
    usage.user_us + usage.system_us
}

impl Supervisor {
    /// Watch over a command that was just started.
    pub fn new(
        session: Session,
        collector: Option<Collector>,
        main_pid: u32,
        wait_all: bool,
        signals: SignalSet,
        children_before_us: u64,
        is_quiet: bool,
    ) -> Self {
        Self { session, collector, main_pid, wait_all, signals, foreign_cpu_us: children_before_us, is_quiet }
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
        if self.collector.as_ref().is_some_and(|collector| collector.pid == reaped.pid) {
            self.foreign_cpu_us += cpu_us(&reaped.usage);
            self.collector = None;
            self.say("the collector ended before the command did; there will be no report");
            return;
        }
        self.session.record(reaped, is_main);
        if is_main {
            *status = Some(reaped.status);
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
        let ended = Message::Ended {
            status,
            monotonic_ns: clock::monotonic_ns(),
            children_cpu_us: cpu_us(&children_usage()).saturating_sub(self.foreign_cpu_us),
        };
        if let Some(collector) = &mut self.collector {
            let sent = collector.send(&ended);
            let pid = collector.pid;
            self.session.wake_collector();
            if let Err(error) = sent {
                self.say(&format!("the collector does not listen: {error}"));
            }
            self.wait_for_report(pid)?;
        }
        self.session.clean_up();
        Ok(())
    }

    fn wait_for_report(&self, pid: u32) -> io::Result<()> {
        // What ended the command was sent to us too (Ctrl-C): it is not meant for the report.
        signals::discard_pending(&self.signals);
        let mut impatient = 0;
        loop {
            while let Some(reaped) = reap::next() {
                if reaped.pid == pid {
                    if libc::WIFSIGNALED(reaped.status) {
                        self.say(&format!(
                            "the collector was ended by signal {}; there is no report",
                            libc::WTERMSIG(reaped.status)
                        ));
                    }
                    return Ok(());
                }
            }
            let arrived = signals::wait(&self.signals)?;
            // Who asks twice has waited long enough; the collector goes on by itself.
            impatient += i32::from(matches!(arrived.signal, libc::SIGINT | libc::SIGTERM | libc::SIGQUIT));
            if impatient >= 2 {
                return Ok(());
            }
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
