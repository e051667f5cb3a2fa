//! What the kernel still says of a process after its end: its account of the exit, and what its zombie shows.

use serde::{Deserialize, Serialize};

/// The kernel's account of a process that exited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitAccount {
    /// CPU time of all its threads, nanoseconds. `None`: the kernel was built without it (CONFIG_TASK_DELAY_ACCT).
    pub cpu_ns: Option<u64>,
    /// `cpu_ns` lacks only the time that the kernel takes to tear the process down. If this is false, `cpu_ns` also lacks the time
    /// since a clock tick before the exit.
    pub is_cpu_whole: bool,
    /// Peak RSS of the address space that it had last, bytes. `None`: the kernel was built without it (CONFIG_TASK_XACCT), or
    /// the process was so small that its pages were still in counters by CPU, which the kernel adds up in batches.
    pub peak_rss_bytes: Option<u64>,
    /// Figures of its only thread. `None`: it had several.
    pub thread: Option<ThreadAccount>,
}

/// Figures that the kernel accounts for each thread alone, of a process that had one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// User CPU time by clock ticks, microseconds.
    pub user_us: u64,
    /// System CPU time by clock ticks, microseconds.
    pub system_us: u64,
    /// Minor faults of all programs that the process ran, times the page size, bytes. A write to a new page is a minor fault, so the
    /// process wrote to no more memory than this, except in huge pages.
    pub faulted_bytes: u64,
}

/// What /proc/PID/stat counts of a process, without its waited-for children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatCounts {
    /// User part of the CPU time, clock ticks.
    pub user_ticks: u64,
    /// System part of the CPU time, clock ticks.
    pub system_ticks: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
}

impl StatCounts {
    /// These counts less earlier ones.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

/// Final figures of a process, read from its zombie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// CPU time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// What else is counted.
    pub counts: StatCounts,
}
