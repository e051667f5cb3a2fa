//! What the kernel still says of a process after its end: its account of the exit, and what its zombie shows.

use serde::{Deserialize, Serialize};

/// The kernel's account of a process that exited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitAccount {
    /// CPU time of all its threads, nanoseconds. `None`: the kernel was built without it (CONFIG_TASK_DELAY_ACCT).
    pub cpu_ns: Option<u64>,
    /// It lacks only what the kernel takes to tear the process down. Else it is as of a clock tick before the exit.
    pub is_cpu_whole: bool,
    /// Peak RSS of the address space that it had last, bytes. `None`: the kernel was built without it (CONFIG_TASK_XACCT), or
    /// its CPUs had not added up the few pages of a small process.
    pub peak_rss_bytes: Option<u64>,
    /// `None` if it had several threads.
    pub thread: Option<ThreadAccount>,
}

/// What the kernel adds up for each thread only; of the only thread of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// User CPU time by clock ticks, microseconds.
    pub user_us: u64,
    /// System CPU time by clock ticks, microseconds.
    pub system_us: u64,
    /// Minor faults of all images of the process, in bytes: it wrote no more memory, but for huge pages.
    pub faulted_bytes: u64,
}

/// Final figures of a process, read from its zombie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// CPU time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// User CPU time, clock ticks.
    pub user_ticks: u64,
    /// System CPU time, clock ticks.
    pub system_ticks: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
}
