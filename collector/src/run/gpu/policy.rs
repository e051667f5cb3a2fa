//! Tolerances and limits of the GPU figures, each with its reason.

/// Times in nanoseconds of CLOCK_MONOTONIC unless the name says otherwise.
pub(super) struct GpuPolicy {
    /// A process exists a little before the time of its first record.
    pub start_slack_ns: u64,
    /// Drivers date accounting entries up to this much off, microseconds.
    pub accounting_slack_us: u64,
    /// How long an ended process stays in the pid table: readings arrive one tick later, and a slow driver's later still.
    pub ended_kept_ns: u64,
    /// Most ended processes in the pid table, which bounds the memory of a run of many short processes.
    pub most_ended: usize,
    /// Most processes with GPU figures of their own, which bounds the state file; the sums count all.
    pub most_processes: usize,
    /// How long the times of readings are kept: until the processes that ended before are forgotten.
    pub times_kept_ns: u64,
    /// Power of a device whose power is not known, watts: above that of any single one (NVIDIA's GB300: 1.4 kW).
    pub most_w: f64,
    /// What a PCIe link carries one way if its speed is not known, bytes a second: 16 lanes of generation 6.
    pub fastest_link_bytes_per_s: u64,
    /// A process that lived for less can't have used a GPU: to make a CUDA context takes longer.
    pub shortest_gpu_use_ns: u64,
    /// A driver reports a process that runs on its device at least this often.
    pub process_sample_interval_ns: u64,
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
};
