//! What is kept of the records about a process's end.

use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, FLAG_GPU_LIBRARY, FLAG_NO_STATUS, Origin};
use serde::{Deserialize, Serialize};

use super::rusage::Rusage;
use super::tolerance::Tolerance;
use crate::model::attached::UsedBefore;

/// Converts KiB to bytes. Records hold KiB, as getrusage(2) and /proc do. What is too large gives `u64::MAX`.
pub(super) fn bytes(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

/// An EXIT record.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Argument of exit.
    pub status: i32,
    /// VmHWM, bytes, if it was read.
    pub vm_hwm_bytes: Option<u64>,
    /// RUSAGE_SELF.
    pub own_usage: Rusage,
    /// RUSAGE_CHILDREN.
    pub children_usage: Rusage,
    /// Its parent's pid then, in its own pid namespace: the pid of the process that adopted it, if it was an orphan.
    pub parent_pid: u32,
    /// `FLAG_*`.
    pub flags: u8,
}

impl ExitRecord {
    /// Gives the record of this event, if it is an EXIT.
    pub(super) fn of_event(origin: &Origin, event: &Event) -> Option<Self> {
        let Event::Exit { status, vm_hwm_kib, ref own, ref children } = *event else { return None };
        Some(Self {
            status,
            vm_hwm_bytes: (vm_hwm_kib > 0).then_some(bytes(vm_hwm_kib)),
            own_usage: Rusage::from(own),
            children_usage: Rusage::from(children),
            parent_pid: origin.parent,
            flags: origin.flags,
        })
    }

    /// Gives the record without what the process had used before the run. Which children it had waited for by then is not known,
    /// so it has none.
    pub(super) fn since(self, before: &UsedBefore, tick_us: u64) -> Self {
        let own = self.own_usage;
        let cpu_us = own.cpu_us().saturating_sub(before.cpu_ns / 1000);
        let user_us = own.user_us.saturating_sub(before.user_ticks.saturating_mul(tick_us)).min(cpu_us);
        let own_usage = Rusage {
            user_us,
            system_us: cpu_us - user_us,
            minor_faults: own.minor_faults.saturating_sub(before.minor_faults),
            major_faults: own.major_faults.saturating_sub(before.major_faults),
            ..own
        };
        Self { own_usage, children_usage: Rusage::default(), ..self }
    }

    /// Gives how far the CPU time of a REAPED record differs, microseconds. `None`: the record can't be about this process,
    /// by status or sums, or its reaper is in its pid namespace. There, its parent's pid would not be 0.
    pub(super) fn fits(&self, reaped: &ReapRecord) -> Option<u64> {
        // The kernel keeps the lowest 8 bits of what exit(3) is given.
        let is_status =
            self.flags & FLAG_NO_STATUS != 0 || libc::WEXITSTATUS(reaped.status) == self.status & 0xff;
        let is_reaped_outside = self.parent_pid == 0;
        let sum_us = self.own_usage.cpu_us().saturating_add(self.children_usage.cpu_us());
        let all_us = reaped.usage.cpu_us();
        let is_within = sum_us <= all_us.saturating_add(Tolerance::CHILD_ROUNDING_US);
        let can_be = is_reaped_outside && is_status && libc::WIFEXITED(reaped.status) && is_within;
        can_be.then(|| all_us.abs_diff(sum_us))
    }

    /// Whether it ran in its parent's memory (vfork), or was made by a raw clone, which looks the same to the shim.
    pub(super) fn has_borrowed_memory(&self) -> bool {
        self.flags & FLAG_BORROWED_MEMORY != 0
    }

    /// Whether a library of a GPU's driver was loaded when the process ended. False, too, where the loader's list could
    /// not be read.
    pub(super) fn had_gpu_library(&self) -> bool {
        self.flags & FLAG_GPU_LIBRARY != 0
    }
}

/// A REAPED record, from the child's point of view.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ReapRecord {
    /// Wait status.
    pub status: i32,
    /// The child and what it waited for.
    pub usage: Rusage,
    /// The child's own CPU time, nanoseconds, if its clock was read after its end.
    pub clock_ns: Option<u64>,
    /// The reaper's ru_maxrss, bytes.
    pub reaper_max_rss_bytes: u64,
}

impl ReapRecord {
    /// Gives the record of this event, if it is a REAPED.
    pub(super) fn of_event(event: &Event) -> Option<Self> {
        let Event::Reaped { status, reaper_max_rss_kib, ref usage, clock_ns, .. } = *event else {
            return None;
        };
        let reaper_max_rss_bytes = bytes(reaper_max_rss_kib);
        let usage = Rusage::from(usage);
        // A clock above the usage, which has the child's own part, too, would be a false claim.
        let most_ns = usage.cpu_us().saturating_mul(1000);
        let clock_ns = Some(clock_ns.min(most_ns)).filter(|_| clock_ns > 0);
        Some(Self { status, usage, clock_ns, reaper_max_rss_bytes })
    }
}
