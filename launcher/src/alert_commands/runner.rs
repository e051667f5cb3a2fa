//! The process that runs the command of `--on-alert` (CMD) beside the tracked tree.
//!
//! This process, the runner, is this executable, in a session of its own. It is the subreaper of all that CMD starts, so no process of
//! CMD becomes the launcher's child, where it would be an orphan of the run. The runner ends when all processes of CMD have ended, and
//! ends them itself after [`TIME_LIMIT`]. On its stdout it tells the launcher the [`Outcome`], as JSON. If the launcher ends, the runner
//! goes on, but closes the launcher's stderr.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::model::alert::AlertCommandFailure;
use gpu_track_collector::{TreeToEnd, own_program};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, getppid, set_child_subreaper, wait};
use serde::{Deserialize, Serialize};

use crate::alert_commands::output::Output;
use crate::process::before_main::close_inherited;
use crate::process::signals;
use crate::process::spawn::Environment;

/// The name of a runner. Its arguments are the segment, the launcher's pid, the time that CMD may take in milliseconds, and
/// CMD. Enders (processes that end the tree at a limit) know it by the segment.
pub(crate) const RUNNER: &str = "gpu-track-alert";
/// The time that CMD, and all that it starts, may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// From SIGTERM, after [`TIME_LIMIT`], to SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// How often the runner looks whether CMD or the launcher has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How often it looks whether those that were ended can be reaped.
const REAP_INTERVAL: Duration = Duration::from_millis(5);
/// Processes that were killed can be reaped within this time, unless they are stuck in the kernel.
const REAPED_WITHIN: Duration = Duration::from_secs(2);

/// What came of CMD.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Why it failed, if it did.
    pub(crate) failure: Option<AlertCommandFailure>,
    /// stderr did not get all that it wrote.
    pub(crate) is_cut: bool,
}

/// Starts a runner of CMD, in the launcher's environment. `removed`: variables that it must not inherit, since they are of an alert
/// of a run around this one. `added`: the variables of this alert.
///
/// # Errors
/// If no process can be made.
pub(crate) fn start(
    command: &OsStr,
    segment: &Path,
    removed: &[&str],
    added: Environment,
) -> io::Result<Child> {
    let mut runner = own_program::command_in_own_session(RUNNER);
    for name in removed {
        runner.env_remove(name);
    }
    runner.arg(segment).arg(std::process::id().to_string());
    runner.arg(TIME_LIMIT.as_millis().to_string()).arg(command).envs(added);
    runner.stdin(Stdio::null()).stdout(Stdio::piped());
    runner.spawn()
}

/// Runs CMD, writes what came of it to stdout, and returns the exit status. `None`: these are not the arguments of a runner.
pub(crate) fn serve(args: &[OsString]) -> Option<i32> {
    let [_segment, launcher, most_ms, command] = args else { return None };
    // Only the launcher starts a runner. If it is no longer the parent, it has ended, and nothing reads the outcome.
    let launcher =
        launcher.to_str()?.parse().ok().and_then(Pid::from_raw).filter(|pid| getppid() == Some(*pid))?;
    let most_ms = most_ms.to_str()?.parse().ok()?;
    close_inherited();
    // The launcher blocks all signals but those of faults, and CMD would inherit that.
    signals::restore(&signals::set(&[]));
    rustix::thread::set_name(c"gpu-track-alert").ok();
    // Otherwise orphans of CMD would become the launcher's children.
    set_child_subreaper(Some(getpid())).ok();
    let outcome = run(command, launcher, Duration::from_millis(most_ms));
    // The launcher may be gone.
    let _ = serde_json::to_vec(&outcome).map(|bytes| io::stdout().write_all(&bytes));
    Some(0)
}

/// Runs CMD until it and all that it starts have ended, or ends them after the time `most`.
fn run(command: &OsStr, launcher: Pid, most: Duration) -> Outcome {
    let deadline = Instant::now() + most;
    let (shell, pipe) = match start_shell(command) {
        Ok(started) => started,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            return Outcome { failure: Some(AlertCommandFailure::NotStarted(errno)), is_cut: false };
        }
    };
    let mut output = Output::new(pipe);
    let mut family = Family { shell: shell.id(), status: None };
    while family.reap_and_find_living() {
        if getppid() != Some(launcher) {
            output.let_go_of_stderr();
        }
        if Instant::now() >= deadline {
            // stderr is let go of first: to end CMD takes seconds. If the launcher ends meanwhile, the reader of stderr must see its end.
            let is_cut = output.finish();
            let left = family.end();
            let after_ms = most.as_millis() as u64;
            return Outcome { failure: Some(AlertCommandFailure::TooLong { after_ms, left }), is_cut };
        }
        output.pass_on(LOOK);
    }
    Outcome { failure: family.status.and_then(failure), is_cut: output.finish() }
}

/// Starts `/bin/sh -c CMD`. Returns the shell, and the pipe with the output of CMD.
fn start_shell(command: &OsStr) -> io::Result<(Child, PipeReader)> {
    let (output, pipe) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(pipe.try_clone()?).stderr(pipe);
    Ok((shell.spawn()?, output))
}

/// Why CMD failed, by its wait status. `None`: it exited with 0.
fn failure(status: WaitStatus) -> Option<AlertCommandFailure> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(AlertCommandFailure::Exited(code)),
        (None, Some(signal)) => Some(AlertCommandFailure::Killed(signal)),
        (None, None) => None,
    }
}

/// CMD's shell, and all that it starts.
struct Family {
    shell: u32,
    /// How the shell ended. `None`: it runs.
    status: Option<WaitStatus>,
}

impl Family {
    /// Reaps the processes that have ended, and notes how the shell ended. Returns whether any is left.
    fn reap_and_find_living(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid().cast_unsigned() == self.shell => {
                    self.status = Some(status);
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                // ECHILD: no child is left.
                Err(_) => return false,
            }
        }
    }

    /// Ends the processes that are left, by SIGTERM, then SIGKILL. Reaps them all, because the launcher would inherit their zombies.
    /// Returns how many could not be ended.
    fn end(&mut self) -> u32 {
        let shell_runs = self.status.is_none();
        // The runner is in the launcher's place: all processes of CMD are its descendants, so no segment is needed to find them.
        let all = TreeToEnd {
            launcher: Some(std::process::id()),
            inherits_orphans: true,
            main: shell_runs.then_some(self.shell),
            kill_after: KILL_AFTER,
            ..TreeToEnd::default()
        };
        let left = all.end().left;
        let deadline = Instant::now() + REAPED_WITHIN;
        while self.reap_and_find_living() {
            if left > 0 || Instant::now() >= deadline {
                // Where /proc is of another pid namespace, only the shell could be ended, and nothing is known of others.
                return left.max(1);
            }
            thread::sleep(REAP_INTERVAL);
        }
        0
    }
}
