//! Processes by descriptors, which no other process is ever mistaken for.

use std::os::fd::OwnedFd;
use std::time::Duration;

pub use gpu_track_collector::sys::pidfd::open;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits for the end of a process, which leaves the reaping to whoever owns it. From then on it holds no file, nor a lock
/// on one (its memory, and so its environment in /proc, goes before).
pub fn ends_within(process: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], limit.as_ref()), Ok(1..))
}
