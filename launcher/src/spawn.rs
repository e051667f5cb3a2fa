//! Starting the command: with everything of its world as the launcher found it, and the session in its environment.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use crate::early;
use crate::signals::{self, SignalSet};

/// What the command gets back that the launcher changed for itself.
pub struct World {
    /// Blocked signals.
    pub mask: SignalSet,
    /// SIGCHLD was ignored.
    pub sigchld_ignored: bool,
}

/// A command that could not be executed.
#[derive(Debug)]
pub struct ExecFailed {
    /// Why.
    pub source: io::Error,
}

impl ExecFailed {
    /// The status that a shell gives: 127 not found, 126 found and not executable.
    pub fn status(&self) -> i32 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// Prepared arguments: nothing may allocate between fork and exec.
struct Prepared {
    program: CString,
    args: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

fn c_string(bytes: &OsStr) -> io::Result<CString> {
    CString::new(bytes.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

impl Prepared {
    fn new(command: &[OsString], env: &[(OsString, OsString)]) -> io::Result<Self> {
        let program = c_string(command.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        let args = command.iter().map(|arg| c_string(arg)).collect::<io::Result<Vec<_>>>()?;
        let env = env
            .iter()
            .map(|(name, value)| {
                let mut pair = name.clone();
                pair.push("=");
                pair.push(value);
                c_string(&pair)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let pointers = |strings: &[CString]| {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        Ok(Self {
            program,
            args: pointers(&args),
            env: pointers(&env),
            // The bytes stay where they are when their owner moves.
            _owned: args.into_iter().chain(env).collect(),
        })
    }

    fn exec(&self) -> io::Error {
        // SAFETY: NUL-terminated strings and null-terminated arrays that live as long as self.
        unsafe { libc::execvpe(self.program.as_ptr(), self.args.as_ptr(), self.env.as_ptr()) };
        io::Error::last_os_error()
    }
}

impl World {
    /// Give it back to this process.
    fn restore(&self) {
        signals::set_ignored(libc::SIGCHLD, self.sigchld_ignored);
        signals::set_ignored(libc::SIGPIPE, early::was_sigpipe_ignored());
        for fd in early::closed_descriptors() {
            // SAFETY: the descriptor is the runtime's /dev/null, of which this process makes no more use.
            unsafe { libc::close(fd) };
        }
        signals::restore(&self.mask);
    }
}

/// Start the command as a child, in the cgroup that `entrance` leads to. Gives its pid once it has exec'd.
///
/// # Errors
/// The outer one if no process could be made, the inner one if the command could not be executed in it.
pub fn spawn(
    command: &[OsString],
    env: &[(OsString, OsString)],
    world: &World,
    entrance: Option<&File>,
) -> io::Result<Result<u32, ExecFailed>> {
    let prepared = Prepared::new(command, env)?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the launcher has one thread, and the child calls only async-signal-safe functions until it execs.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            if let Some(entrance) = entrance {
                // SAFETY: a plain write; "0" is the writer itself. Where it is refused, the command runs outside.
                unsafe { libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) };
            }
            world.restore();
            let error = prepared.exec().raw_os_error().unwrap_or(libc::EIO);
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
            match exec_error(reader) {
                None => Ok(Ok(pid)),
                Some(source) => {
                    crate::reap::wait_for(pid);
                    Ok(Err(ExecFailed { source }))
                }
            }
        }
    }
}

/// The pipe closes without a byte when the exec succeeds.
fn exec_error(reader: OwnedFd) -> Option<io::Error> {
    let mut bytes = [0; size_of::<i32>()];
    std::fs::File::from(reader).read_exact(&mut bytes).ok()?;
    Some(io::Error::from_raw_os_error(i32::from_ne_bytes(bytes)))
}

/// Become the command, untracked. Returns only if that fails.
pub fn become_command(command: &[OsString], world: &World) -> ExecFailed {
    let env: Vec<_> = std::env::vars_os().collect();
    match Prepared::new(command, &env) {
        Ok(prepared) => {
            world.restore();
            ExecFailed { source: prepared.exec() }
        }
        Err(source) => ExecFailed { source },
    }
}
