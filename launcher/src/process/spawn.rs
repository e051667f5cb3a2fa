//! Starting the command, with the signal state and the descriptors that the launcher was started with.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

use thiserror::Error;

use crate::process::signals::{self, SignalSet};
use crate::process::{before_main, reap};

/// Environment variables: names and values.
pub(crate) type Environment = Vec<(OsString, OsString)>;

/// Why there is no command.
#[derive(Debug, Error)]
pub(crate) enum SpawnError {
    #[error("cannot create a process for it: {0}")]
    NoProcess(#[from] io::Error),
    #[error("cannot execute it: {0}")]
    Exec(io::Error),
}

/// Signal state that the launcher changed for itself and the command gets back.
#[derive(Clone, Copy)]
pub(crate) struct InheritedState {
    mask: SignalSet,
    sigchld_ignored: bool,
}

impl InheritedState {
    /// Sets up the launcher's own signal state, and returns the one before. `blocked` are blocked, for [`signals::wait`]. SIGCHLD is
    /// not ignored: otherwise the kernel would reap the command before the launcher can.
    pub(crate) fn replace(blocked: &SignalSet) -> Self {
        let sigchld_ignored = signals::is_ignored(libc::SIGCHLD);
        let mask = signals::block(blocked);
        signals::set_ignored(libc::SIGCHLD, false);
        Self { mask, sigchld_ignored }
    }

    /// Restores the mask of blocked signals that this process was started with.
    pub(crate) fn unblock(&self) {
        signals::restore(&self.mask);
    }

    /// Undoes [`Self::replace`]. Async-signal-safe.
    pub(crate) fn undo(&self) {
        signals::set_ignored(libc::SIGCHLD, self.sigchld_ignored);
        self.unblock();
    }

    /// Restores the signal state in a child, with that of SIGPIPE, which Rust's runtime changes. Async-signal-safe.
    pub(crate) fn restore_signals(&self) {
        signals::set_ignored(libc::SIGPIPE, before_main::was_sigpipe_ignored());
        self.undo();
    }

    /// Restores the signal state and the closed descriptors for the command. Async-signal-safe.
    fn restore(&self) {
        for fd in before_main::closed_descriptors() {
            // SAFETY: Rust's runtime opened /dev/null under this number before `main` ([`before_main`]). This process is about to exec
            // and does not use the descriptor any more.
            unsafe { libc::close(fd) };
        }
        self.restore_signals();
    }
}

/// What is executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    /// Its arguments. The first one also names its file, unless `behind` does.
    pub(crate) words: &'a [OsString],
    /// The file of a program behind a [stand-in](crate::stand_in). A SIGKILL to the stand-in is meant for the program, so the program is
    /// killed with its launcher.
    pub(crate) behind: Option<&'a OsStr>,
}

/// The arguments of exec, prepared before fork: the child of a fork must not allocate.
struct ExecArgs {
    program: CString,
    args: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

impl ExecArgs {
    /// Prepares the arguments and the environment. Fails if one has a NUL byte in it.
    fn new(program: Program, env: Environment) -> io::Result<Self> {
        let Program { words, behind } = program;
        let c_string = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let named = words.first().map_or(OsStr::new(""), OsString::as_os_str);
        let in_path = in_own_path(named, &env);
        let program = c_string(behind.or(in_path.as_deref()).unwrap_or(named))?;
        let args = words.iter().map(|arg| c_string(arg)).collect::<io::Result<Vec<_>>>()?;
        let env = env
            .into_iter()
            .map(|(mut pair, value)| {
                pair.push("=");
                pair.push(value);
                c_string(&pair)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let pointers =
            |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self {
            program,
            args: pointers(&args),
            env: pointers(&env),
            // Moving a CString does not move its bytes.
            _owned: args.into_iter().chain(env).collect(),
        })
    }

    /// Executes the command in place of this process. Returns only if that fails.
    fn exec(&self) -> io::Error {
        // SAFETY: NUL-terminated strings and null-terminated arrays that live as long as self.
        unsafe { libc::execvpe(self.program.as_ptr(), self.args.as_ptr(), self.env.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// The file of this program in the first directory of the PATH in `env`. exec looks along this process's own PATH, which lacks that
/// directory. `None`: both are the same, or the directory has no such program.
fn in_own_path(program: &OsStr, env: &Environment) -> Option<OsString> {
    let (_, path) = env.iter().find(|(name, _)| name == "PATH")?;
    let first = std::env::split_paths(path).next()?;
    let is_own = std::env::var_os("PATH").is_none_or(|own| own != *path);
    let file = first.join(program);
    (is_own && !program.as_bytes().contains(&b'/') && file.is_file()).then(|| file.into_os_string())
}

/// Sets a variable.
pub(crate) fn set(env: &mut Environment, name: impl Into<OsString>, value: OsString) {
    let name = name.into();
    env.retain(|(known, _)| *known != name);
    env.push((name, value));
}

/// Starts the command as a child, and waits for its exec. `cgroup_procs`: the cgroup.procs of the cgroup that the child moves into. If
/// that fails, the child stays in the launcher's cgroup. Returns the child's pid.
pub(crate) fn spawn(
    program: Program,
    env: Environment,
    inherited: &InheritedState,
    cgroup_procs: Option<&File>,
) -> Result<u32, SpawnError> {
    let exec_args = ExecArgs::new(program, env)?;
    let launcher = program.behind.map(|_| std::process::id());
    // Both ends are close-on-exec: the pipe closes without a byte if the exec succeeds.
    let (reader, writer) = io::pipe()?;
    // SAFETY: the child calls only async-signal-safe functions until it execs, so a thread that waits for a file system
    // (`time_limit`) can hold any lock.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            if let Some(procs) = cgroup_procs {
                // SAFETY: a plain write. "0" stands for the writing process.
                unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
            }
            if let Some(launcher) = launcher {
                die_with(launcher);
            }
            inherited.restore();
            let error = exec_args.exec().raw_os_error().unwrap_or(libc::EIO);
            let bytes = error.to_ne_bytes();
            // SAFETY: a plain write of our own bytes, and the end of the child without any handlers.
            unsafe {
                libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                libc::_exit(127)
            }
        }
        pid => {
            drop(writer);
            let pid = pid.cast_unsigned();
            exec_error(reader).map_or(Ok(pid), |error| {
                reap::wait_for(pid);
                Err(SpawnError::Exec(error))
            })
        }
    }
}

/// Has the kernel kill this process when its parent, of this pid, is killed. Async-signal-safe.
fn die_with(parent: u32) {
    // SAFETY: these calls have no preconditions, and neither allocates.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The parent was killed before.
        if libc::getppid() != parent.cast_signed() {
            libc::raise(libc::SIGKILL);
        }
    }
}

/// Waits until the child execs or fails. Returns the error of its exec. `None`: it succeeded, which closes the pipe without a byte.
fn exec_error(mut reader: PipeReader) -> Option<io::Error> {
    let mut bytes = [0; size_of::<i32>()];
    reader.read_exact(&mut bytes).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)))
}

/// Replaces this process by the command, untracked. Returns only if that fails.
pub(crate) fn become_command(program: Program, inherited: &InheritedState) -> io::Error {
    become_command_with(program, std::env::vars_os().collect(), inherited)
}

/// As [`become_command`], with this environment.
pub(crate) fn become_command_with(
    program: Program,
    env: Environment,
    inherited: &InheritedState,
) -> io::Error {
    match ExecArgs::new(program, env) {
        Ok(exec_args) => {
            inherited.restore();
            exec_args.exec()
        }
        Err(error) => error,
    }
}
