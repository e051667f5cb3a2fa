//! Tolerances and limits of the GPU figures, each with its reason.

/// The tolerances and limits. Times are in nanoseconds unless the name says otherwise.
pub(super) struct GpuPolicy {
    /// A process can exist this long before its start as far as that is known: its first record comes a little later.
    pub start_slack_ns: u64,
    /// Drivers date accounting entries up to this much too early or too late, microseconds.
    pub accounting_slack_us: u64,
    /// How long an ended process stays in the pid table: readings arrive one tick later, and a slow driver's later still.
    pub ended_kept_ns: u64,
    /// Maximum number of ended processes in the pid table, which bounds the memory of a run of many short processes.
    pub most_ended: usize,
    /// Maximum number of processes with GPU figures of their own, which bounds the state file; the sums count all.
    pub most_processes: usize,
    /// How long the times of readings are kept. When a process is forgotten, they tell whether its device was read while it lived.
    pub times_kept_ns: u64,
    /// The most that a device of unknown power is taken to draw, watts: more than any single device does (NVIDIA's GB300: 1.4 kW).
    pub most_w: f64,
    /// The most that a PCIe link of unknown speed is taken to carry one way, bytes per second: 16 lanes of generation 6.
    pub fastest_link_bytes_per_s: u64,
    /// A process that lived for less than this can't have used a GPU: to make a CUDA context takes longer.
    pub shortest_gpu_use_ns: u64,
    /// A driver reports a process that runs on its device at least this often.
    pub process_sample_interval_ns: u64,
    /// A driver that samples devices takes a sample of a busy one at least this often.
    pub longest_sample_ns: u64,
    /// If a driver samples a device, its newest sample is at most this old.
    pub longest_sample_age_ns: u64,
    /// How long the utilization of a device waits for that of the others. Drivers keep samples for less, and reading all devices
    /// takes less.
    pub busy_kept_ns: u64,
    /// Maximum number of steps of a sum of utilization, which bounds the state file: 16 devices take 800 in a second.
    pub most_busy_steps: usize,
    /// A device that was not read for two intervals is unread, but not before this time. A busy machine delays a thread for that
    /// long.
    pub shortest_unread_ns: u64,
}

/// How long a device may be left unread before that counts as a gap, nanoseconds. `interval_ns`: the interval at which
/// devices are read.
pub(crate) fn most_unread_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(2).max(POLICY.shortest_unread_ns)
}

pub(super) const POLICY: GpuPolicy = GpuPolicy {
    start_slack_ns: 20_000_000,
    accounting_slack_us: 1_000_000,
    ended_kept_ns: 2_000_000_000,
    most_ended: 16_384,
    most_processes: 10_000,
    times_kept_ns: 60_000_000_000,
    most_w: 1500.0,
    fastest_link_bytes_per_s: 128_000_000_000,
    shortest_gpu_use_ns: 50_000_000,
    process_sample_interval_ns: 2_000_000_000,
    longest_sample_ns: 1_000_000_000,
    longest_sample_age_ns: 2_500_000_000,
    busy_kept_ns: 10_000_000_000,
    most_busy_steps: 4096,
    shortest_unread_ns: 250_000_000,
};
