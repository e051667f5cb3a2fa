//! The last reading of a live process's /proc files.

use crate::model::observation::{ProcessLimits, Rollup, Size, Vitals};
use crate::run::tree::tolerance::Tolerance;

/// How its memory was shared when that was last read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    /// smaps_rollup then.
    pub rollup: Rollup,
    /// statm right after it.
    pub size: Size,
    /// The shared memory of all other processes of the tree then, bytes: what they map, too, is shared with more.
    pub others_shared_bytes: u64,
    /// Minor faults then.
    pub minor_faults: u64,
    /// The image group's epoch then.
    pub epoch: u64,
}

/// The last reading of a live process's /proc files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastReading {
    /// When it was last read in full, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// stat and clock.
    pub vitals: Vitals,
    /// statm.
    pub size: Size,
    /// VmHWM when it was last read, bytes.
    pub vm_hwm_bytes: Option<u64>,
    /// When that was, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub peak_at_ns: u64,
    /// Minor faults at that time.
    pub faults_at_peak: u64,
    /// Memory in huge pages of hugetlbfs, bytes.
    pub hugetlb_bytes: u64,
    /// Its resource limits when they were last read.
    pub limits: ProcessLimits,
    /// smaps_rollup, if it was read since the image began.
    pub sharing: Option<Sharing>,
    /// smaps_rollup can't be read (another user's process).
    pub is_sharing_denied: bool,
}

impl Sharing {
    /// The process may have exec'd between the two readings: then one is of another program.
    pub(super) fn is_of_one_program(&self) -> bool {
        let (rss, of_rollup) = (self.size.rss_bytes, self.rollup.rss_bytes);
        rss.abs_diff(of_rollup) <= rss.max(of_rollup) / 2 + Tolerance::rss(rss)
    }
}
