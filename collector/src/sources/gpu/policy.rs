//! When GPUs are read, and how long anything waits for a driver.

use std::time::Duration;

/// The facts of /proc about a process outside the run are read again after this time: 800 such processes cost 0.6% of a core.
pub(super) const STRANGER_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of processes outside the run whose facts are kept, which bounds the memory.
pub(super) const MAX_STRANGERS: usize = 65_536;
/// Shortest time between two readings of a backend: a driver call can take milliseconds.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_millis(20);
/// A worker whose backend has no plan of its own pauses after each reading. So readings take at most one part in this many of its
/// time.
pub(super) const PAUSE_FACTOR: u32 = 10;
/// Devices are listed again this often: they can appear and disappear.
pub(super) const LIST_INTERVAL: Duration = Duration::from_millis(500);
/// Listing devices takes at most one part in this many of the time: a device handle can cost milliseconds.
pub(super) const LIST_PAUSE_FACTOR: u32 = 100;
/// A driver call that takes longer makes the driver unresponsive in the report, nanoseconds.
pub(super) const UNRESPONSIVE_NS: u64 = 1_000_000_000;
/// Maximum number of readings that wait to be taken. If there are more, the oldest is dropped, which bounds the memory.
pub(super) const MAX_WAITING: usize = 8192;
/// At the end of the run the report waits this long for a last reading. It does not wait for a driver that is unresponsive, or
/// still being initialised.
pub(super) const LAST_READING_WAIT: Duration = Duration::from_millis(20);
/// After a longer run the report waits for up to one part in this many of the run. With calls of 4.5 ms, the energy of
/// eight devices takes 37 ms; what is not read is missing.
pub(super) const LAST_READING_PART: u32 = 100;
/// The report never waits for a last reading for longer than this.
pub(super) const LONGEST_LAST_WAIT: Duration = Duration::from_millis(100);
/// The report warns if the last reading is older than this, and older than two intervals.
pub(super) const LATE_READING: Duration = Duration::from_millis(500);
/// How long the report waits at the end for the next driver setting to be restored.
pub(super) const RESTORE_WAIT: Duration = Duration::from_millis(20);
