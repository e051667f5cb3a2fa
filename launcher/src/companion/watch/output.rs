//! Output for the terminal. It is gathered first, then written as far as the terminal takes it. So signals still end the program
//! where the terminal takes nothing, as over a dead connection.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

/// Most bytes of a write to a descriptor that blocks. The kernel says that a terminal takes output if it has room for any.
const SMALL_BYTES: usize = 64;

/// Bytes for the terminal. Clones gather into the same place.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathered(Rc<RefCell<Vec<u8>>>);

impl Gathered {
    /// Takes what was gathered.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal of stdout.
#[derive(Debug)]
pub(super) struct Output {
    /// The terminal, opened anew with O_NONBLOCK, which on stdout itself would hold for all programs that share it. `None`: it
    /// can't be opened, as the terminal of another user after su.
    own: Option<OwnedFd>,
}

impl Output {
    /// Opens the terminal of stdout anew, for writing. If that fails, [`Self::write`] uses stdout itself.
    pub(super) fn open() -> Self {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Self { own: rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()).ok() }
    }

    /// Writes what the terminal takes now. If that is nothing, it waits until the terminal takes some, `signal` can be read, or
    /// `limit` is over. Returns how many bytes were written.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn write(
        &self,
        bytes: &[u8],
        signal: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> io::Result<usize> {
        let stdout = io::stdout();
        let (fd, most) = match &self.own {
            Some(own) => (own.as_fd(), bytes.len()),
            None => (stdout.as_fd(), bytes.len().min(SMALL_BYTES)),
        };
        let room = PollFd::from_borrowed_fd(fd, PollFlags::OUT);
        let signal = signal.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = [room].into_iter().chain(signal).collect();
        match poll(&mut fds, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) if fds[0].revents().is_empty() => return Ok(0),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
        match rustix::io::write(fd, &bytes[..most]) {
            Ok(written) => Ok(written),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
