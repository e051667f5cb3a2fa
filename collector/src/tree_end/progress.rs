//! Whether SIGKILL still ends processes, or finds others.

use std::time::{Duration, Instant};

use super::members::Member;

/// Processes that SIGKILL has not ended by then are left: they are in a system call that does not return.
pub(super) const WITHIN: Duration = Duration::from_secs(10);
/// Processes that start faster than they are killed are left after this time.
const AT_ALL_WITHIN: Duration = Duration::from_secs(120);

/// The progress of ending a tree: which processes are left, and since when they are the same.
pub(super) struct Progress {
    /// When the processes last changed, or when SIGKILL was due if that is later.
    since: Instant,
    /// When SIGKILL has been tried for too long in all.
    until: Instant,
    /// The processes that are left.
    left: Vec<Member>,
}

impl Progress {
    /// `deadline`: when SIGKILL is sent first.
    pub(super) fn new(deadline: Instant) -> Self {
        Self { since: deadline, until: deadline + AT_ALL_WITHIN, left: Vec::new() }
    }

    /// Takes in what is left now. False: nothing has changed for [`WITHIN`], or it has taken too long in all.
    pub(super) fn is_made(&mut self, now: Instant, left: &[Member]) -> bool {
        if self.left != left {
            self.left = left.to_vec();
            self.since = self.since.max(now);
        }
        now < self.since + WITHIN && now < self.until
    }
}
