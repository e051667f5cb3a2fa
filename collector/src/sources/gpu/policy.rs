//! When GPUs are read, and how long anything waits for a driver.

use std::time::Duration;

/// Intervals and limits of reading, each with its reason.
pub(super) struct ReadingPolicy {
    /// The facts of /proc about a process outside the run are read again after this time: 800 such processes cost 0.6% of a core.
    pub stranger_interval: Duration,
    /// Maximum number of processes outside the run whose facts are kept, which bounds the memory.
    pub most_strangers: usize,
    /// Shortest time between two readings of a backend: a driver call can take milliseconds.
    pub shortest_interval: Duration,
    /// After a reading of a backend without a plan of its own the worker pauses. So readings take at most one part in this many
    /// of its time.
    pub pause_factor: u32,
    /// Devices are listed again this often: they can appear and disappear.
    pub list_interval: Duration,
    /// Listing devices takes at most one part in this many of the time: a device handle can cost milliseconds.
    pub list_pause_factor: u32,
    /// A driver call that takes longer makes the driver unresponsive in the report, nanoseconds.
    pub unresponsive_ns: u64,
    /// Maximum number of readings that wait to be taken. If there are more, the oldest is dropped, which bounds the memory.
    pub most_waiting: usize,
    /// At the end of the run the report waits this long for a last reading. It does not wait for a driver that is unresponsive, or
    /// still being initialised.
    pub last_reading_wait: Duration,
    /// After a longer run the report waits for up to one part in this many of the run. With calls of 4.5 ms, the energy of
    /// eight devices takes 37 ms; what is not read is missing.
    pub last_reading_part: u32,
    /// The report never waits for a last reading for longer than this.
    pub longest_last_wait: Duration,
    /// The report warns if the last reading is older than this, and older than two intervals.
    pub late_reading: Duration,
    /// How long the report waits at the end for the next driver setting to be restored.
    pub restore_wait: Duration,
}

pub(super) const POLICY: ReadingPolicy = ReadingPolicy {
    stranger_interval: Duration::from_secs(1),
    most_strangers: 65_536,
    shortest_interval: Duration::from_millis(20),
    pause_factor: 10,
    list_interval: Duration::from_millis(500),
    list_pause_factor: 100,
    unresponsive_ns: 1_000_000_000,
    most_waiting: 8192,
    last_reading_wait: Duration::from_millis(20),
    last_reading_part: 100,
    longest_last_wait: Duration::from_millis(100),
    late_reading: Duration::from_millis(500),
    restore_wait: Duration::from_millis(20),
};
