//! What the launcher waits for while the command runs: signals, and its pipes with the collector.
//!
//! It polls a signalfd and the pipes. Where there is no signalfd, it takes signals by sigtimedwait and looks at the pipes now
//! and then.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::collector_process::Collector;
use crate::process::signals::{self, Received, SignalSet};

/// Where there is no signalfd (a seccomp filter, no free descriptor), the pipes are looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The blocked signals, and the signalfd(2) through which poll(2) sees them.
pub(crate) struct Wakeups {
    signals: SignalSet,
    signal_fd: Option<OwnedFd>,
}

impl Wakeups {
    /// Opens a signalfd for these blocked signals. It is made after the command's fork, so that the command does not get it. Its
    /// number is above 2, because Rust's runtime has opened the standard descriptors that were closed.
    pub(crate) fn new(signals: SignalSet) -> Self {
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const signals, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        // SAFETY: the call made the descriptor, and nothing else uses it.
        let signal_fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        Self { signals, signal_fd }
    }

    /// Waits for a signal, for an order of the collector, or for room in the pipe to it; at most for `timeout`. `None`:
    /// no signal came.
    pub(crate) fn wait(
        &self,
        collector: Option<&Collector>,
        timeout: Option<Duration>,
    ) -> io::Result<Option<Received>> {
        let orders = collector.and_then(|collector| collector.orders.open());
        let room = collector.and_then(|collector| collector.messages.blocked());
        match &self.signal_fd {
            Some(signal_fd) => poll_for(signal_fd, orders, room, timeout),
            None if orders.is_none() && room.is_none() => signals::wait(&self.signals, timeout),
            None => {
                let look = timeout.map_or(LOOK_INTERVAL, |timeout| timeout.min(LOOK_INTERVAL));
                signals::wait(&self.signals, Some(look))
            }
        }
    }

    /// The descriptor that poll(2) reports a signal on. `None`: there is no signalfd.
    #[cfg(feature = "watch")]
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.signal_fd.as_ref().map(AsFd::as_fd)
    }

    /// Takes the next pending signal. `None`: there is none.
    #[cfg(feature = "watch")]
    pub(crate) fn pending(&self) -> io::Result<Option<Received>> {
        match &self.signal_fd {
            Some(signal_fd) => take(signal_fd),
            None => signals::wait(&self.signals, Some(Duration::ZERO)),
        }
    }

    /// Discards all pending signals.
    pub(crate) fn discard_pending(&self) {
        signals::discard_pending(&self.signals);
    }
}

/// Waits until a signal comes, `orders` can be read, or `room` can be written to; at most for `timeout`. `orders` and `room` are the
/// pipes for orders and messages. Returns the signal, if one has come.
fn poll_for(
    signal_fd: &OwnedFd,
    orders: Option<BorrowedFd<'_>>,
    room: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Option<Received>> {
    let poll_fd = |fd, flags| PollFd::from_borrowed_fd(fd, flags);
    let signal = poll_fd(signal_fd.as_fd(), PollFlags::IN);
    let orders = orders.map(|fd| poll_fd(fd, PollFlags::IN));
    let room = room.map(|fd| poll_fd(fd, PollFlags::OUT));
    let mut fds: Vec<_> = [signal].into_iter().chain(orders).chain(room).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => take(signal_fd),
        Err(error) => Err(error.into()),
    }
}

/// Takes the next pending signal. `None`: there is none.
fn take(signal_fd: &OwnedFd) -> io::Result<Option<Received>> {
    // SAFETY: the struct has integers only, so zeroed is valid.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes, all of them ours.
    let length = unsafe { libc::read(signal_fd.as_raw_fd(), (&raw mut info).cast(), size) };
    if usize::try_from(length) == Ok(size) {
        return Ok(Some(Received::new(info.ssi_signo, info.ssi_code, info.ssi_pid, info.ssi_uid)));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}
