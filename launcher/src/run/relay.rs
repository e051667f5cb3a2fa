//! The relay: a process between the caller and the launcher, where the launcher would inherit processes that are not of the run.
//!
//! A shell that has jobs can become gpu-track-run by exec. The first process of a pid namespace inherits all orphans of the
//! namespace. Such a process goes on as the relay, and its child is the launcher. So every process that the launcher inherits is of
//! the run. Orphans of jobs go where they go without gpu-track-run.
//!
//! To the caller, the relay is gpu-track-run: it hands signals on, stops and continues with the launcher, and ends as the launcher
//! ends. It reaps its other children. If it is killed, the launcher is killed with it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, child_subreaper, set_parent_process_death_signal};

use crate::process::exit::Manner;
use crate::process::main_process::MainProcess;
use crate::process::reap;
use crate::process::signals::{self, Received, SignalSet};
use crate::process::spawn::InheritedState;

/// Where signals can't be taken, the launcher is looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What this process is from now on.
pub(crate) enum Part {
    /// The launcher. `relay`: the pid of its relay, if it has one.
    Launcher { relay: Option<u32> },
    /// It was the relay, and ends with this status.
    Relay(ExitCode),
}

/// Makes a child the launcher, if this process has children or inherits orphans. The child returns from here at once, and this
/// process when the child has ended. It must have no thread yet.
///
/// # Errors
/// If no process can be made.
pub(crate) fn take_part() -> io::Result<Part> {
    let own = std::process::id();
    let is_reaper = own == 1 || child_subreaper().ok().flatten().is_some();
    if !is_reaper && !reap::has_children() {
        return Ok(Part::Launcher { relay: None });
    }
    // Before the fork: a signal that comes now waits for the relay.
    let signals = signals::all_but_faults();
    let inherited = InheritedState::replace(&signals);
    // SAFETY: this process has one thread, so the child can do all that this process can.
    let child = unsafe { libc::fork() };
    if child > 0 {
        return Ok(Part::Relay(serve(MainProcess { pid: child.cast_unsigned() }, &signals)));
    }
    // The fork's error, if it failed. It is read before another call replaces it.
    let error = io::Error::last_os_error();
    inherited.undo();
    if child < 0 {
        return Err(error);
    }
    // For the caller, the relay is gpu-track-run: if it is killed, the launcher must end with it.
    set_parent_process_death_signal(Some(Signal::KILL)).ok();
    Ok(Part::Launcher { relay: Some(own) })
}

/// Does the work of the relay until the launcher has ended: hands signals on, reaps, and stops and continues with the launcher.
/// Returns the exit status, unless a signal ended the launcher: then the same signal ends this process.
fn serve(launcher: MainProcess, signals: &SignalSet) -> ExitCode {
    // The launcher alone has the program's name.
    rustix::thread::set_name(c"gpu-track-relay").ok();
    loop {
        while let Some(change) = reap::next() {
            let status = change.status;
            let is_launcher = change.pid == launcher.pid;
            drop(change);
            if is_launcher && libc::WIFSTOPPED(status) {
                launcher.stop_with_it(libc::WSTOPSIG(status));
            } else if is_launcher {
                return Manner::Command.end(ExitStatus::from_raw(status));
            }
        }
        match signals::wait(signals, None) {
            Ok(received) => received.into_iter().for_each(|received| hand_on(launcher, received)),
            // Signals can't be taken (a seccomp filter), but the launcher's end is seen.
            Err(_) => thread::sleep(LOOK_INTERVAL),
        }
    }
}

/// Hands on a signal that a process has sent, with its sender. Other signals are not handed on: the terminal sends its own to the
/// launcher, too, and a SIGCHLD is about a child of this process.
fn hand_on(launcher: MainProcess, received: Received) {
    let Some(sender) = received.sender.filter(|_| received.signal != libc::SIGCHLD) else { return };
    if signals::send_as(launcher.pid, received.signal, sender).is_err() {
        launcher.send(received.signal);
    }
}
