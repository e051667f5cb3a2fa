//! The root of the counted tree: a process that connects to the recorder. It waits until it was moved into the run's
//! cgroup, then execs the command.
//!
//! It connects to an abstract socket, which works for every user and whatever descriptors were closed before. The kernel
//! gives the pid of the connecting process.

use std::ffi::{OsStr, OsString};
use std::io::{Error, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first argument of our own executable that selects this mode.
pub const MODE: &str = "enter";

/// In the counted process: execs the command. Returns only if that fails.
pub fn enter(address: &OsStr, command: &[OsString]) -> String {
    let Some((program, args)) = command.split_first() else { return "no command".into() };
    let released = SocketAddr::from_abstract_name(address.as_bytes())
        .and_then(|address| UnixStream::connect_addr(&address))
        .and_then(|mut stream| stream.read_exact(&mut [0]));
    match released {
        // The socket is closed by exec.
        Ok(()) => format!("{}: {}", program.display(), Command::new(program).args(args).exec()),
        Err(error) => format!("the recorder does not answer: {error}"),
    }
}

/// In the recorder: the socket to which the process connects.
pub struct Entrance {
    listener: UnixListener,
    name: String,
}

/// A process that waits until it is released.
pub struct Waiting {
    stream: UnixStream,
    /// The process's pid in the recorder's pid namespace.
    pub pid: u32,
}

impl Entrance {
    /// Opens the socket.
    pub fn open() -> Result<Self, String> {
        let name = format!("gpu-track-truth.{}", std::process::id());
        let open = || UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?);
        Ok(Self { listener: open().map_err(|error| format!("a socket: {error}"))?, name })
    }

    /// The words to put before the command, which start the process.
    pub fn words(&self) -> Result<[OsString; 3], String> {
        let program = std::env::current_exe().map_err(|error| format!("our own executable: {error}"))?;
        Ok([program.into(), MODE.into(), self.name.clone().into()])
    }

    /// Accepts the process's connection; blocks if there is none.
    pub fn accept(&self) -> Result<Waiting, String> {
        let (stream, _) = self.listener.accept().map_err(|error| error.to_string())?;
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of_val(&peer) as libc::socklen_t;
        // SAFETY: the buffer lives through the call and has the length given.
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
    /// The process's CPU time so far.
    pub fn cpu_s(&self) -> Result<f64, String> {
        self.read("schedstat", running_ns).map(|ns| ns / 1e9)
    }

    /// The process's largest RSS so far.
    pub fn peak_rss_bytes(&self) -> Result<u64, String> {
        self.read("status", hwm_kib).map(|kib| kib * 1024)
    }

    fn read<T>(&self, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let path = format!("/proc/{}/{file}", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        parse(&text).ok_or_else(|| format!("{path} contains {text:?}"))
    }

    /// Lets it exec the command.
    pub fn release(mut self) -> Result<(), String> {
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
    fn schedstat_begins_with_the_cpu_time() {
        assert_eq!(running_ns("1234567 89 10\n"), Some(1_234_567.0));
        assert_eq!(running_ns("\n"), None);
    }

    #[test]
    fn vmhwm_is_read_from_status() {
        assert_eq!(hwm_kib("VmPeak:\t    9000 kB\nVmHWM:\t    2100 kB\nVmRSS:\t 1 kB\n"), Some(2100));
        assert_eq!(hwm_kib("VmPeak:\t    9000 kB\n"), None);
    }
}
