//! Checks that the segment's file is still in /dev/shm. When a user logs out, systemd removes that user's files there
//! (RemoveIPC).

use std::sync::Arc;

use crate::model::observation::Observation;
use crate::sys::clock::Timer;
use crate::sys::segment::Segment;

/// The name is looked for once in this time at most.
const PERIOD_NS: u64 = 100_000_000;

/// Watches the name of the segment's file.
#[derive(Debug)]
pub(crate) struct SegmentName {
    segment: Arc<Segment>,
    timer: Timer,
    /// The name was removed, which is reported once.
    is_gone: bool,
}

impl SegmentName {
    /// Makes a watch of the name of this segment.
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, timer: Timer::default(), is_gone: false }
    }

    /// Reports once that the name was removed. `now_ns`: CLOCK_MONOTONIC. `is_last`: looks in any case, since the run has
    /// ended. `None`: the name is there, it is not time to look, or the removal was reported.
    pub(crate) fn read(&mut self, now_ns: u64, is_last: bool) -> Option<Observation> {
        if self.is_gone || !(self.timer.is_due(now_ns, PERIOD_NS) || is_last) {
            return None;
        }
        // At the end of a run the collector itself closes the segment, and then removes the name.
        self.is_gone = self.segment.is_open() && !self.segment.named().is_linked();
        self.is_gone.then_some(Observation::SegmentUnlinked)
    }
}
