//! The process that runs the command of `--on-alert` (CMD) beside the tracked tree.
//!
//! This process, the runner, is this executable, in a session of its own. It is the subreaper of all that CMD starts, so no process of
//! CMD becomes the launcher's child, where it would be an orphan of the run. The runner ends when all processes of CMD have ended, and
//! ends them itself after [`MOST`]. On its stdout it tells the launcher why CMD failed, as JSON, or null. If the launcher ends, the
//! runner goes on, but closes the launcher's stderr.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::{AlertCommandFailure, TreeToEnd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, getppid, set_child_subreaper, wait};

use crate::before_main::close_inherited;
use crate::spawn::Environment;
use crate::{console, signals};

/// argv\[0\] of a runner. Its arguments are the segment, by which enders know it, the launcher's pid, the time that CMD may take in
/// milliseconds, and CMD.
const RUNNER: &str = "gpu-track-alert";
/// The time that CMD, and all that it starts, may take.
const MOST: Duration = Duration::from_secs(30);
/// From SIGTERM, after [`MOST`], to SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// How often the runner looks whether CMD or the launcher has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of CMD's output that stderr gets at most.
const MOST_OUTPUT: usize = 64 * 1024;

/// Starts a runner of CMD. Its environment is the launcher's without these `variables`, and with the `facts` of the alert.
///
/// # Errors
/// If no process can be made.
pub(crate) fn start(
    command: &OsStr,
    segment: &Path,
    variables: &[&str],
    facts: Environment,
) -> io::Result<Child> {
    let mut runner = Command::new("/proc/self/exe");
    for name in variables {
        runner.env_remove(name);
    }
    runner.arg0(RUNNER).arg(segment).arg(std::process::id().to_string());
    runner.arg(MOST.as_millis().to_string()).arg(command).envs(facts);
    runner.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: setsid(2) is async-signal-safe.
    unsafe {
        runner.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    runner.spawn()
}

/// Runs CMD, writes what came of it to stdout, and gives the exit status. `None`: these are not the arguments of a runner.
pub(crate) fn serve_if_started_as_runner(args: &[OsString]) -> Option<i32> {
    let [program, _segment, launcher, most_ms, command] = args else { return None };
    if program != RUNNER {
        return None;
    }
    let launcher = launcher.to_str()?.parse().ok().and_then(Pid::from_raw)?;
    let most_ms = most_ms.to_str()?.parse().ok()?;
    close_inherited();
    // The launcher blocks all signals, and CMD would inherit that.
    signals::restore(&signals::of(&[]));
    rustix::thread::set_name(c"gpu-track-alert").ok();
    // Otherwise orphans of CMD would become the launcher's children.
    set_child_subreaper(Some(getpid())).ok();
    let failure = run(command, launcher, Duration::from_millis(most_ms));
    // The launcher may be gone.
    let _ = serde_json::to_vec(&failure).map(|bytes| io::stdout().write_all(&bytes));
    Some(0)
}

/// Runs CMD until it and all that it starts have ended, or ends them after the time `most`. Gives why CMD failed, if it did.
fn run(command: &OsStr, launcher: Pid, most: Duration) -> Option<AlertCommandFailure> {
    let deadline = Instant::now() + most;
    let not_started =
        |error: io::Error| AlertCommandFailure::NotStarted(error.raw_os_error().unwrap_or(libc::EIO));
    let (shell, output) = match start_shell(command) {
        Ok(started) => started,
        Err(error) => return Some(not_started(error)),
    };
    let mut output = Output { pipe: Some(output), room: MOST_OUTPUT, is_cut: false };
    let mut family = Family { shell: shell.id(), status: None };
    while family.is_alive() {
        if getppid() != Some(launcher) {
            output.let_go_of_stderr();
        }
        if Instant::now() >= deadline {
            let left = family.end();
            return Some(AlertCommandFailure::TooLong { after_ms: most.as_millis() as u64, left });
        }
        output.pass_on(LOOK);
    }
    // The pipe can hold output of processes that have ended.
    while output.room > 0 && output.pass_on(Duration::ZERO) {}
    if output.is_cut {
        let kib = MOST_OUTPUT / 1024;
        let _ = console::message_without_waiting(format_args!(
            "not all that the command of --on-alert wrote is shown: {kib} KiB at most, and what stderr takes at once"
        ));
    }
    family.status.and_then(failure)
}

/// Starts `/bin/sh -c CMD`. Gives the shell, and the pipe with the output of CMD.
fn start_shell(command: &OsStr) -> io::Result<(Child, PipeReader)> {
    let (output, pipe) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(pipe.try_clone()?).stderr(pipe);
    Ok((shell.spawn()?, output))
}

/// Gives why CMD failed, by its wait status. `None`: it exited with 0.
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
    /// Reaps the processes that have ended. Gives whether any is left.
    fn is_alive(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid().cast_unsigned() == self.shell => {
                    self.status = Some(status);
                }
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Ends the processes that are left: SIGTERM, then SIGKILL. Gives how many could not be ended.
    fn end(&self) -> u32 {
        let shell_runs = self.status.is_none();
        let all = TreeToEnd {
            launcher: Some(std::process::id()),
            main: shell_runs.then_some(self.shell),
            segment: PathBuf::new(),
            kill_after: KILL_AFTER,
            ..TreeToEnd::default()
        };
        all.end().left
    }
}

/// What CMD writes to its stdout and stderr, which is passed on to stderr.
struct Output {
    /// `None`: no process has the other end any more.
    pipe: Option<PipeReader>,
    /// Bytes that may still be written to stderr.
    room: usize,
    /// Something was left out.
    is_cut: bool,
}

impl Output {
    /// Waits for output for the time `wait` at most, which is shorter than a second, and passes it on. Gives whether there was any.
    fn pass_on(&mut self, wait: Duration) -> bool {
        let Some(pipe) = &mut self.pipe else {
            thread::sleep(wait);
            return false;
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        if !matches!(poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)), Ok(1..)) {
            return false;
        }
        // If stderr is a pipe that poll(2) reports as writable, it takes this much (PIPE_BUF) without waiting.
        let mut bytes = [0; 4096];
        match pipe.read(&mut bytes) {
            Ok(length) if length > 0 => {
                self.write(bytes.get(..length).unwrap_or_default());
                true
            }
            _ => {
                self.pipe = None;
                false
            }
        }
    }

    /// Writes to stderr what there is room for, and drops the rest. If stderr takes nothing now, all is dropped: CMD's time is limited.
    fn write(&mut self, bytes: &[u8]) {
        let stderr = io::stderr();
        let part = bytes.get(..self.room).unwrap_or(bytes);
        let is_ready =
            matches!(poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec::default())), Ok(1..));
        if is_ready && stderr.lock().write_all(part).is_ok() {
            self.room -= part.len();
            self.is_cut |= part.len() < bytes.len();
        } else {
            self.is_cut = true;
        }
    }

    /// Closes the launcher's stderr: a program that reads it must see its end when the launcher has ended.
    fn let_go_of_stderr(&mut self) {
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stderr(null);
        }
    }
}
