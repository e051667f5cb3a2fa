//! Limits of what is asked of NVML and believed of it, each with its reason.

use std::ffi::c_uint;

pub(super) struct NvmlPolicy {
    /// The library's memory is looked at once in so many readings.
    pub memory_check_readings: u64,
    /// The report warns when it has grown by this much, bytes: libraries of some drivers grow with every call.
    pub memory_growth_bytes: u64,
    /// How long a call for the next event may wait, milliseconds. What 0 means is not documented: cuda-python's cuda.core
    /// says "wait indefinitely" of it.
    pub event_wait_ms: c_uint,
    /// Most events taken at a reading: a device that fails again and again must not hold the thread.
    pub most_events: usize,
    /// Most MIG instances asked for; a device has seven at most.
    pub most_instances: c_uint,
    /// Capacity of a list of processes at first, entries.
    pub first_processes: usize,
    /// Capacity for the driver's own samples at first: it keeps some 100 to 120.
    pub first_samples: usize,
    /// Largest capacity of a list, entries, which bounds the memory.
    pub most_entries: usize,
    /// The driver samples itself at least this often while the device is in use, microseconds: a longer gap was idle.
    pub longest_sample_us: u64,
    /// After so long without a sample the driver's present rate is used instead, microseconds.
    pub longest_gap_us: u64,
    /// A sample of the run is at most this much newer than the driver's clock is expected to be, microseconds.
    pub sample_clock_slack_us: u64,
    /// A driver's clock is at most this far ahead of the machine's, microseconds: a day, as if set by another time zone.
    pub clock_slack_us: u64,
    /// Utilisation of more than 100 percent is rounding up to here; beyond, it is uninitialised memory of the driver.
    pub most_percent: c_uint,
}

const LONGEST_SAMPLE_US: u64 = 1_000_000;

pub(super) const POLICY: NvmlPolicy = NvmlPolicy {
    memory_check_readings: 64,
    memory_growth_bytes: 256 << 20,
    event_wait_ms: 1,
    most_events: 256,
    most_instances: 64,
    first_processes: 64,
    first_samples: 128,
    most_entries: 1 << 16,
    longest_sample_us: LONGEST_SAMPLE_US,
    longest_gap_us: 2 * LONGEST_SAMPLE_US,
    sample_clock_slack_us: 10_000_000,
    clock_slack_us: 86_400_000_000,
    most_percent: 1000,
};
