//! Tolerances and limits of the GPU figures, each with its reason.

/// Times are in nanoseconds unless the name says otherwise.
pub(super) struct GpuPolicy;

impl GpuPolicy {
    /// A process can exist for this long before its known start, since its first record comes a little late.
    pub const START_SLACK_NS: u64 = 20_000_000;
    /// Drivers date accounting entries up to this much too early or too late, microseconds.
    pub const ACCOUNTING_SLACK_US: u64 = 1_000_000;
    /// How long an ended process stays in the pid table: readings arrive one tick of the sampling grid later, a slow
    /// driver's later still.
    pub const ENDED_KEPT_NS: u64 = 2_000_000_000;
    /// Maximum number of ended processes in the pid table, which bounds the memory of a run of many short processes.
    pub const MOST_ENDED: usize = 16_384;
    /// Maximum number of processes with GPU figures of their own, which bounds the state file; the sums count all.
    pub const MOST_PROCESSES: usize = 10_000;
    /// How long the times of readings are kept. When a process is forgotten, they tell whether its device was read while it lived.
    pub const TIMES_KEPT_NS: u64 = 60_000_000_000;
    /// The most that a device of unknown power is taken to draw, watts: more than any single device does (NVIDIA's GB300: 1.4 kW).
    pub const MOST_W: f64 = 1500.0;
    /// A device draws no more than this many times the largest power that was read so far, which may be that of an idle one.
    pub const MOST_TIMES_READ: f64 = 20.0;
    /// A device that draws power all the time can draw this many times what its readings of power show. Each reading is a mean of up to a
    /// second.
    pub const POWER_SLACK: f64 = 2.0;
    /// The counters of PCIe are read twice in the time in which the link can wrap them. They count no more than this many times what it can
    /// carry meanwhile, and so can't step back unseen.
    pub const LINK_SLACK: f64 = 1.1;
    /// The most that a PCIe link of unknown speed is taken to carry one way, bytes per second: 16 lanes of generation 6.
    pub const FASTEST_LINK_BYTES_PER_S: u64 = 128_000_000_000;
    /// A process that lived for less than this can't have used a GPU: to make a CUDA context takes longer.
    pub const SHORTEST_GPU_USE_NS: u64 = 50_000_000;
    /// A driver reports a process that runs on its device at least this often.
    pub const PROCESS_SAMPLE_INTERVAL_NS: u64 = 2_000_000_000;
    /// A driver that samples devices takes a sample of a busy one at least this often.
    pub const LONGEST_SAMPLE_NS: u64 = 1_000_000_000;
    /// If a driver samples a device by itself, its newest sample is at most this old when it is read.
    pub const LONGEST_SAMPLE_AGE_NS: u64 = 2_500_000_000;
    /// How long the utilization of a device waits for that of the others. Drivers keep samples for less, and reading all devices
    /// takes less.
    pub const BUSY_KEPT_NS: u64 = 10_000_000_000;
    /// Maximum number of changes that a sum of utilization keeps, which bounds the state file: 16 devices cause 800 in a second.
    pub const MOST_BUSY_STEPS: usize = 4096;
    /// A device counts as unread after two intervals without a reading, but not before this time: a busy machine delays a thread by
    /// as much.
    pub const SHORTEST_UNREAD_NS: u64 = 250_000_000;
}

/// How long a device may be left unread before that counts as a gap, nanoseconds. `interval_ns`: the interval at which
/// devices are read.
pub(crate) fn most_unread_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(2).max(GpuPolicy::SHORTEST_UNREAD_NS)
}
