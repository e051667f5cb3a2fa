//! Processes by pidfd, which is safe against pid reuse.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub use gpu_track_collector::pidfd::open;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits for the end of a process; its parent still has to reap it. After that it holds no file and no lock. (Its memory,
/// and so its environment in /proc, is freed earlier.)
pub fn ends_within(process: &OwnedFd, limit: Duration) -> bool {
    is_readable_within(process, limit)
}

/// Waits until there is something to read, or no writer any more.
pub fn is_readable_within(fd: &impl AsFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    matches!(poll(&mut [PollFd::new(fd, PollFlags::IN)], limit.as_ref()), Ok(1..))
}
