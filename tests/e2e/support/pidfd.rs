//! Processes by descriptors, which no other process is ever mistaken for.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that has this pid now, if there is one.
pub fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process, which leaves the reaping to whoever owns it. From then on it holds no file, nor a lock
/// on one (its memory, and so its environment in /proc, goes before).
pub fn ends_within(process: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], limit.as_ref()), Ok(1..))
}
