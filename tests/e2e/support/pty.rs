//! A command on a terminal of its own: the test types text and waits for output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use super::{leftovers, wait_until};

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
        let (mut master, mut slave) = (-1, -1);
        // SAFETY: two ints to write to; name, modes and size may be null.
        let result = unsafe {
            libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), std::ptr::null())
        };
        assert_eq!(result, 0, "openpty: {}", std::io::Error::last_os_error());
        // SAFETY: both descriptors were just opened and have no other owner.
        let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        for fd in [&master, &slave] {
            // SAFETY: the descriptor is open; only its flag changes.
            unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: the descriptor is open; only its flag changes.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        let mark = leftovers::new_mark();
        command
            .env(leftovers::VARIABLE, &mark)
            .env("TERM", "dumb")
            .env("XDG_CACHE_HOME", super::run::cache_home());
        command.stdin(slave.try_clone().unwrap());
        command.stdout(slave.try_clone().unwrap());
        command.stderr(slave.try_clone().unwrap());
        // SAFETY: setsid and ioctl are async-signal-safe; nothing else is called.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        Self { master: master.into(), child, mark, seen: String::new(), reaped: false }
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
