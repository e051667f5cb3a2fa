//! What is kept of the records about a process's end.

use gpu_track_abi::record::{FLAG_BORROWED_MEMORY, FLAG_GPU_LIBRARY, FLAG_NO_STATUS, Usage};
use serde::{Deserialize, Serialize};

use super::tolerance::Tolerance;
use crate::model::attached::UsedBefore;

/// Converts KiB, the unit of records, getrusage(2) and /proc, to bytes. If the result is too large, it is `u64::MAX`.
pub(super) fn bytes(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

/// An EXIT record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ExitRecord {
    /// What exit(3) or _exit(2) was given.
    pub status: i32,
    /// VmHWM, bytes. `None`: the process could not read it.
    pub vm_hwm_bytes: Option<u64>,
    /// RUSAGE_SELF.
    pub own_usage: Usage,
    /// RUSAGE_CHILDREN.
    pub children_usage: Usage,
    /// Its parent's pid at that time, in its own pid namespace: that of the process that adopted it, if it was an orphan.
    pub parent_pid: u32,
    /// `FLAG_*`.
    pub flags: u8,
}

impl ExitRecord {
    /// The record without what the process had used before the run. How much of the children's usage is from before is not
    /// known, so none of that is left. The block I/O before the run includes that of children, so what is left is a lower bound.
    /// `tick_us`: microseconds of a clock tick.
    pub(super) fn since(self, before: &UsedBefore, tick_us: u64) -> Self {
        let own = self.own_usage;
        let cpu_us = own.cpu_us().saturating_sub(before.cpu_ns / 1000);
        let user_us =
            own.user_us.saturating_sub(before.counts.user_ticks.saturating_mul(tick_us)).min(cpu_us);
        let blocks = before.of_blocks(Some((own.input_blocks, own.output_blocks)));
        let (input_blocks, output_blocks) = blocks.unwrap_or_default();
        let own_usage = Usage {
            user_us,
            system_us: cpu_us - user_us,
            minor_faults: own.minor_faults.saturating_sub(before.counts.minor_faults),
            major_faults: own.major_faults.saturating_sub(before.counts.major_faults),
            input_blocks,
            output_blocks,
            ..own
        };
        Self { own_usage, children_usage: Usage::default(), ..self }
    }

    /// How far the CPU times of this EXIT record and of a REAPED record from outside its pid namespace differ,
    /// microseconds. `None`: status or CPU time show that the two are about different processes, or the parent is in the
    /// namespace (its pid is not 0).
    pub(super) fn cpu_difference_us(&self, reaped: &ReapRecord) -> Option<u64> {
        // The kernel keeps the lowest 8 bits of what exit(3) is given.
        let has_same_status =
            self.flags & FLAG_NO_STATUS != 0 || libc::WEXITSTATUS(reaped.status) == self.status & 0xff;
        let is_parent_outside = self.parent_pid == 0;
        let sum_us = self.own_usage.cpu_us().saturating_add(self.children_usage.cpu_us());
        let all_us = reaped.usage.cpu_us();
        let is_within = sum_us <= all_us.saturating_add(Tolerance::CHILD_ROUNDING_US);
        let can_be = is_parent_outside && has_same_status && libc::WIFEXITED(reaped.status) && is_within;
        can_be.then(|| all_us.abs_diff(sum_us))
    }

    /// Whether it ran in its parent's memory (vfork), or was made by a raw clone, which looks the same to the shim.
    pub(super) fn has_borrowed_memory(&self) -> bool {
        self.flags & FLAG_BORROWED_MEMORY != 0
    }

    /// Whether a library of a GPU's driver was loaded when the process ended. Also false if the loader's list could not
    /// be read.
    pub(super) fn had_gpu_library(&self) -> bool {
        self.flags & FLAG_GPU_LIBRARY != 0
    }
}

/// What a REAPED record says of the child.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReapRecord {
    /// Wait status.
    pub status: i32,
    /// What the child and the children that it waited for used.
    pub usage: Usage,
    /// The child's own CPU time of the run, nanoseconds, if its clock was read after its end.
    pub clock_ns: Option<u64>,
    /// ru_maxrss of the process that made it, bytes; `u64::MAX` if another one reaped it, whose maximum is no bound.
    pub maker_max_rss_bytes: u64,
}

impl ReapRecord {
    /// The record without what the process had used before the run. How much of the children's usage is from before is not
    /// known. So only the process's own CPU time is left, by its clock; it is 0 if that was not read.
    pub(super) fn since(self, before: &UsedBefore) -> Self {
        let clock_ns = self.clock_ns.map(|clock_ns| clock_ns.saturating_sub(before.cpu_ns));
        let usage = Usage::default().with_cpu_us(clock_ns.unwrap_or(0) / 1000);
        Self { usage, clock_ns, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> UsedBefore {
        UsedBefore { cpu_ns: 2_000_000_000, blocks: Some((10, 100)), ..UsedBefore::default() }
    }

    // Requirement: ATTACH-2
    #[test]
    fn exit_record_has_no_block_io_from_before() {
        let own_usage = Usage { input_blocks: 12, output_blocks: 100, ..Usage::default() };
        let record = ExitRecord {
            status: 0,
            vm_hwm_bytes: None,
            own_usage,
            children_usage: own_usage,
            parent_pid: 1,
            flags: 0,
        };
        let blocks = |before: &UsedBefore| {
            let since = record.since(before, 10_000).own_usage;
            (since.input_blocks, since.output_blocks)
        };
        assert_eq!(blocks(&before()), (2, 0));
        let unread = UsedBefore { blocks: None, ..before() };
        assert_eq!(blocks(&unread), (0, 0), "how much of it is the run's is unknown");
    }

    // Requirement: ATTACH-2
    #[test]
    fn reaped_record_has_only_the_own_cpu_time_since() {
        let usage = Usage { user_us: 5_000_000, max_rss_kib: 1 << 20, output_blocks: 7, ..Usage::default() };
        let record = ReapRecord { status: 0, usage, clock_ns: Some(2_300_000_000), maker_max_rss_bytes: 0 };
        let since = record.since(&before());
        let own = Usage { user_us: 300_000, ..Usage::default() };
        assert_eq!((since.usage, since.clock_ns), (own, Some(300_000_000)));
        let unread = ReapRecord { clock_ns: None, ..record }.since(&before());
        assert_eq!((unread.usage, unread.clock_ns), (Usage::default(), None));
    }
}
