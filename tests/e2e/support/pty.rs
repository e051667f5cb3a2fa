//! Terminals for tests. A command can have one of its own, where the test types text and waits for output.

use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use super::signals::with_default_signals;
use super::{leftovers, pidfd, wait_until};

/// Opens a terminal: the test's end, and the end for processes. Without `columns` its size is unknown.
///
/// Both are close-on-exec from the start. A process of another test that inherited one would keep it open.
pub fn open(columns: Option<u16>) -> (File, OwnedFd) {
    let master =
        File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/ptmx").unwrap();
    let fd = master.as_raw_fd();
    let size = libc::winsize { ws_row: 24, ws_col: columns.unwrap_or(0), ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open, and `size` lives until the call returns.
    let slave = unsafe {
        assert_eq!(libc::unlockpt(fd), 0, "unlockpt: {}", Error::last_os_error());
        assert_eq!(libc::ioctl(fd, libc::TIOCSWINSZ, &raw const size), 0, "{}", Error::last_os_error());
        libc::ioctl(fd, libc::TIOCGPTPEER, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC)
    };
    assert!(slave >= 0, "TIOCGPTPEER: {}", Error::last_os_error());
    // SAFETY: the descriptor was just opened and has no other owner.
    (master, unsafe { OwnedFd::from_raw_fd(slave) })
}

/// All that is written to a pipe or a terminal, until no process has it open.
pub fn read_all(mut from: File) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        assert!(pidfd::is_readable_within(&from, super::WATCHDOG), "still open after {bytes:?}");
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            // A terminal has no end of file.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A terminal and the leader of its session.
pub struct Terminal {
    master: File,
    child: Child,
    mark: String,
    seen: String,
    reaped: bool,
}

impl Terminal {
    /// Starts a command as the leader of a new session with a new terminal.
    pub fn start(mut command: Command) -> Self {
        let (master, slave) = open(None);
        // SAFETY: the descriptor is open; only its flag changes.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let mark = leftovers::new_mark();
        command
            .env(leftovers::VARIABLE, &mark)
            .env("TERM", "dumb")
            .env("XDG_CACHE_HOME", super::run::cache_home())
            .env("GPU_TRACK_KEEP", "0");
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap());
        command.stderr(slave.try_clone().unwrap());
        with_default_signals(&mut command);
        // SAFETY: setsid and ioctl are async-signal-safe; nothing else is called.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        Self { master, child, mark, seen: String::new(), reaped: false }
    }

    /// Types text. `\x03` is Ctrl-C, `\x1a` is Ctrl-Z, `\x04` is end of file.
    pub fn write(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        // EAGAIN: no output now. EIO: no process has the other side open.
        while let Ok(n @ 1..) = self.master.read(&mut buffer) {
            self.seen += &String::from_utf8_lossy(&buffer[..n]);
        }
    }

    /// Waits until `text` appears after the text of the previous call.
    pub fn expect(&mut self, text: &str) {
        let start = std::time::Instant::now();
        loop {
            self.read();
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            assert!(start.elapsed() < super::WATCHDOG, "no {text:?} on the terminal, only {:?}", self.seen);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits until the leader sleeps. Before a shell waits for its command, Ctrl-C would end the shell itself.
    pub fn until_leader_waits(&self) {
        let path = format!("/proc/{}/stat", self.child.id());
        wait_until("the shell's wait", || std::fs::read_to_string(&path).unwrap().contains(") S "));
    }

    /// Waits for the leader's end. Gives its status and the rest of the terminal's output.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait_until("the end of the terminal's session", || {
            self.read();
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        self.read();
        self.reaped = true;
        assert_eq!(leftovers::processes(&self.mark), [], "left running");
        (status.unwrap(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Terminal {
    /// After a failed test no process of the session remains.
    fn drop(&mut self) {
        if !self.reaped {
            for (pid, _) in leftovers::processes(&self.mark) {
                // SAFETY: kill has no memory preconditions. A process that has ended meanwhile is no error.
                unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
            }
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
