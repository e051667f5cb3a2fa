//! Where the counted tree begins: a process that tells the recorder that it is there, waits until it was moved into
//! the run's cgroup, and then becomes the command.
//!
//! It calls by an abstract socket, so that it works for every user, whatever descriptors were closed before; the
//! kernel, not the caller, says which process called.

use std::ffi::{OsStr, OsString};
use std::io::{Error, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first argument of our own executable that asks for this.
pub const MODE: &str = "enter";

/// In the counted process: becomes the command; returns only if that fails.
pub fn enter(address: &OsStr, command: &[OsString]) -> String {
    let Some((program, args)) = command.split_first() else { return "no command".into() };
    let called = SocketAddr::from_abstract_name(address.as_bytes())
        .and_then(|address| UnixStream::connect_addr(&address))
        .and_then(|mut stream| stream.read_exact(&mut [0]));
    match called {
        // The socket is closed by exec.
        Ok(()) => format!("{}: {}", program.display(), Command::new(program).args(args).exec()),
        Err(error) => format!("the recorder does not answer: {error}"),
    }
}

/// In the recorder: waits for the process.
pub struct Entrance {
    listener: UnixListener,
    name: String,
}

/// A process that stands still until it is let in.
pub struct Waiting {
    stream: UnixStream,
    /// Its pid as we see it.
    pub pid: u32,
}

impl Entrance {
    /// Opens it.
    pub fn open() -> Result<Self, String> {
        let name = format!("gpu-track-truth.{}", std::process::id());
        let open = || UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?);
        Ok(Self { listener: open().map_err(|error| format!("a socket: {error}"))?, name })
    }

    /// The words that start the process, to be put before the command.
    pub fn words(&self) -> Result<[OsString; 3], String> {
        let program = std::env::current_exe().map_err(|error| format!("our own executable: {error}"))?;
        Ok([program.into(), MODE.into(), self.name.clone().into()])
    }

    /// Who called; to be used when there is a call.
    pub fn accept(&self) -> Result<Waiting, String> {
        let (stream, _) = self.listener.accept().map_err(|error| error.to_string())?;
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of_val(&peer) as libc::socklen_t;
        // SAFETY: buffer and length live through the call and belong together.
        let result = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(format!("SO_PEERCRED: {}", Error::last_os_error()));
        }
        Ok(Waiting { stream, pid: peer.pid.cast_unsigned() })
    }
}

impl AsFd for Entrance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Waiting {
    /// CPU time that it has used so far, seconds.
    pub fn cpu_s(&self) -> Result<f64, String> {
        self.read("schedstat", running_ns).map(|ns| ns / 1e9)
    }

    /// Its largest RSS so far.
    pub fn peak_rss_bytes(&self) -> Result<u64, String> {
        self.read("status", hwm_kib).map(|kib| kib * 1024)
    }

    fn read<T>(&self, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let path = format!("/proc/{}/{file}", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        parse(&text).ok_or_else(|| format!("{path} says {text:?}"))
    }

    /// Lets it go on.
    pub fn let_in(mut self) -> Result<(), String> {
        self.stream.write_all(b"!").map_err(|error| format!("the command is gone: {error}"))
    }
}

fn running_ns(schedstat: &str) -> Option<f64> {
    schedstat.split(' ').next()?.parse().ok()
}

fn hwm_kib(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_thread_ran_is_the_first_number() {
        assert_eq!(running_ns("1234567 89 10\n"), Some(1_234_567.0));
        assert_eq!(running_ns("\n"), None);
    }

    #[test]
    fn the_peak_is_a_line_of_the_status() {
        assert_eq!(hwm_kib("VmPeak:\t    9000 kB\nVmHWM:\t    2100 kB\nVmRSS:\t 1 kB\n"), Some(2100));
        assert_eq!(hwm_kib("VmPeak:\t    9000 kB\n"), None);
    }
}
