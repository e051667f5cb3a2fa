//! Processes by pidfd, which is safe against pid reuse.

use std::os::fd::OwnedFd;
use std::time::Duration;

pub use gpu_track_collector::pidfd::open;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits for the end of a process; its parent still has to reap it. After that it holds no file and no lock. (Its memory,
/// and so its environment in /proc, is freed earlier.)
pub fn ends_within(process: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], limit.as_ref()), Ok(1..))
}
