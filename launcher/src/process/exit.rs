//! How the processes of this executable end.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

use gpu_track_collector::own_stdout;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::process::signals;

/// How the launcher's own end follows from the command's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The launcher ends as the command ended, or as a shell does if the command can't be executed.
    #[default]
    Command,
    /// The launcher ends as gpu_tracker ends: with 0, however the command ended.
    GpuTracker,
}

impl Manner {
    /// The launcher's exit code after a command that ended with `status`. Where the launcher has to end by a signal, this does
    /// not return.
    pub(crate) fn end(self, status: ExitStatus) -> ExitCode {
        match self {
            Self::Command => as_command(status),
            Self::GpuTracker => as_gpu_tracker(status),
        }
    }

    /// The launcher's exit code if the command could not be executed. `status`: that of a shell.
    pub(crate) fn not_executed(self, status: u8) -> ExitCode {
        match self {
            Self::Command => ExitCode::from(status),
            Self::GpuTracker => ExitCode::FAILURE,
        }
    }

    /// The line for the user that says that the command can't be executed, and why.
    pub(crate) fn cannot_run(self, program: &str, error: &io::Error, hint: Option<&str>) -> String {
        let hint = hint.map(|hint| format!(": {hint}")).unwrap_or_default();
        match (self, error.kind()) {
            (Self::Command, io::ErrorKind::NotFound) if hint.is_empty() && !program.contains('/') => {
                format!("cannot run '{program}': not found in PATH")
            }
            (Self::Command, _) => format!("cannot run '{program}': {error}{hint}"),
            (Self::GpuTracker, io::ErrorKind::NotFound) => format!("Command not found: \"{program}\"{hint}"),
            (Self::GpuTracker, _) => {
                format!("The following error occurred when starting the command \"{program}\": {error}{hint}")
            }
        }
    }

    /// The line that gpu_tracker writes to stdout before the report. Signal N is the code -N, as in Python's `returncode`.
    /// `None`: no line is written.
    pub(crate) fn line(self, status: ExitStatus) -> Option<String> {
        let code = status.code().or(status.signal().map(|signal| -signal)).unwrap_or_default();
        let line = || format!("Resource tracking complete. Process completed with status code: {code}\n");
        (self == Self::GpuTracker).then(line)
    }
}

/// The command's exit status. If a signal ended the command, ends the launcher by the same signal.
fn as_command(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => by_signal(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

/// Returns 0, as gpu_tracker does. But if a signal that ends whole jobs (Ctrl-C) ended the command, ends the launcher by it, too.
fn as_gpu_tracker(status: ExitStatus) -> ExitCode {
    match status.signal() {
        Some(signal) if signals::requests_end(signal) => by_signal(signal),
        _ => ExitCode::SUCCESS,
    }
}

/// Ends this process by `signal`, without a core dump: the only useful one is the command's.
pub(crate) fn by_signal(signal: i32) -> ! {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).ok();
    // The kernel ignores the limit if core_pattern is a pipe.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    signals::raise_default(signal);
    // Reached by the first process of a pid namespace, which ignores its own signals with the default action
    // (pid_namespaces(7)). The status is that of a shell.
    std::process::exit(128 + signal)
}

/// The status after a panic, which is that of Rust's runtime.
const PANICKED: i32 = 101;

/// Ends this process with the status that `work` returns, or with [`PANICKED`], without exit handlers. `None`: 1.
pub(crate) fn after(work: impl FnOnce() -> Option<i32>) -> ! {
    let status = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(Some(PANICKED));
    without_handlers(status.unwrap_or(1))
}

/// Makes `exit` a crash of this process from now on, by SIGABRT. In a process that ends [`after`] its work, only a GPU driver's library
/// can call it. Children that the library forks exit as before.
pub(crate) fn by_library_is_a_crash() {
    static PID: AtomicU32 = AtomicU32::new(0);
    extern "C" fn crash() {
        if PID.load(Ordering::Relaxed) == std::process::id() {
            std::process::abort();
        }
    }
    PID.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the handler uses nothing but a static number. If it can't be registered, nothing changes.
    unsafe { libc::atexit(crash) };
}

/// Ends this process without exit handlers: those of a GPU driver's library can wait for a thread that never returns.
pub(crate) fn without_handlers(status: i32) -> ! {
    let _ = std::io::stdout().flush();
    // A thread that is stuck in the driver keeps this process and its open files alive. A reader of a pipe must still
    // see its end.
    let own_stdout = own_stdout::descriptor().as_raw_fd();
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO, own_stdout] {
        // SAFETY: nothing uses these descriptors after this, and all output is flushed. One that is there twice is closed by then.
        unsafe { libc::close(stream) };
    }
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}
