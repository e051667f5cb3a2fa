//! Limits of what is asked of NVML and believed of it, each with its reason.

use std::ffi::c_uint;

use super::figure_kind::Kind;

// What is read when.

/// The part of the thread's time that memory and the process lists may take, 1 for all of it. Theirs is the largest, since a peak
/// that they miss is lost. Together with [`SHARES`] it is [`WHOLE_SHARE`]. With calls of 50 us, eight devices take 7% at an
/// interval of 0.1 s.
pub(super) const MEMORY_SHARE: f64 = 0.50;
/// The part of that share, of all the thread's time, for the calls that ask how much memory is in use. Such a call shows
/// whether the lists must be read. With calls of 4.5 ms, eight devices can be asked every 105 ms.
pub(super) const IN_USE_SHARE: f64 = 0.35;
/// [`MEMORY_SHARE`] and [`IN_USE_SHARE`] where the driver may be kept busy for less than [`WHOLE_SHARE`]. Memory in use shows a
/// change, so the lists are read less often. The time saved goes to the other figures.
pub(super) const SHARES_AT_LESS: [f64; 2] = [0.42, 0.38];
/// The least part of the budget that pays back no debt, once the first readings of all devices are paid back. To list the devices
/// again and again takes up to 4% of the budget.
pub(super) const FREE_PART_AT_REST: f64 = 0.95;
/// The part of the thread's time that each other kind of figures may take. That of [`Kind::Gpm`] is that of [`Kind::Pcie`], which is not
/// read where there is GPM: it is not counted in [`WHOLE_SHARE`].
pub(super) const SHARES: [(Kind, f64); 10] = [
    (Kind::AllLists, 0.03),
    (Kind::Utilization, 0.055),
    (Kind::ProcessUtilization, 0.025),
    (Kind::Energy, 0.05),
    (Kind::Power, 0.035),
    (Kind::Pcie, 0.02),
    (Kind::Gpm, 0.02),
    (Kind::Gauges, 0.02),
    (Kind::Accounting, 0.01),
    (Kind::Events, 0.005),
];
/// The sum of [`MEMORY_SHARE`] and [`SHARES`]. Where the driver may be kept busy for less, all shares shrink in proportion, those of
/// memory from [`SHARES_AT_LESS`].
pub(super) const WHOLE_SHARE: f64 = 0.75;
/// The part of the time that is kept for the last reading, which may take a hundredth of the run.
pub(super) const SHARE_AT_END: f64 = 0.01;
/// The debt of readings that came at once, such as the list of devices, is paid back within this time, nanoseconds.
pub(super) const REPAID_WITHIN_NS: u64 = 5_000_000_000;
/// Longest pause after a reading that took too long, and for how long unused time is saved, nanoseconds.
pub(super) const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// A reading is counted with at most this many times the usual cost of its kind. If it took longer, it was preempted, or the driver
/// waited for others.
pub(super) const MAX_USUAL_COSTS: u64 = 4;
/// How many of the latest costs of a kind are kept, for their median.
pub(super) const COSTS_KEPT: usize = 9;
/// Fewer costs of a kind do not show that its calls always take so long.
pub(super) const LEAST_COSTS: usize = 3;
/// While fewer than half of the [`COSTS_KEPT`] costs of a kind are known, it is read after this many intervals at the latest. Smaller
/// shares lengthen that in proportion.
pub(super) const FIRST_INTERVALS: f64 = 4.0;
/// A visit reads several kinds of figures of a device if they take less than this, nanoseconds: the lists of the others
/// wait meanwhile.
pub(super) const LONGEST_VISIT_NS: u64 = 10_000_000;
/// Where calls are slow, devices that the command does not see by its environment are read once in this many intervals of
/// visible ones.
pub(super) const HIDDEN_FACTOR: f64 = 3.0;
/// Readings of the utilization samples need not be closer together than this to lose none, nanoseconds. The shortest time seen in
/// which a driver overwrites its samples is 2 s (some 100 samples, 20 ms apart).
pub(super) const SHORTEST_SAMPLE_MEMORY_NS: u64 = 250_000_000;
/// Where little may be read, utilization comes before first readings of other kinds. The exception is an interval longer than
/// this many times the longest one that loses no samples. Then most are lost in any case.
pub(super) const MAX_KEPT_UP: u64 = 3;
/// A counter that does not wrap is read so often that a last reading that fails costs one part in this many of the time.
pub(super) const LOST_PART: u64 = 20;
/// The most time that such a failed last reading may cost, nanoseconds.
pub(super) const LONGEST_LOSS_NS: u64 = 500_000_000;
/// A counter that can wrap is read after this part of the time in which the link can fill it. The rest is a reserve for a
/// thread that wakes late.
pub(super) const WRAP_PART: f64 = 0.5;
/// A counter that can wrap is read at most this many times as often as asked for: a long interval is set to save calls.
pub(super) const WRAP_FACTOR: f64 = 4.0;

// What is believed of the driver's utilization samples.

/// The driver samples itself at least this often while the device is in use, microseconds: a longer gap was idle.
pub(super) const LONGEST_SAMPLE_US: u64 = 1_000_000;
/// After this long without a new sample the driver's present rate is used instead, microseconds.
pub(super) const LONGEST_GAP_US: u64 = 2_000_000;
/// A sample of the run is at most this much newer than the driver's clock is expected to be, microseconds.
pub(super) const SAMPLE_CLOCK_SLACK_US: u64 = 10_000_000;
/// The driver's clock is at most this far ahead of the machine's, microseconds: a day, as if set by another time zone. Used
/// until a sample of the run was read.
pub(super) const CLOCK_SLACK_US: u64 = 86_400_000_000;
/// A utilisation between 100 percent and this is due to rounding. A larger value is none.
pub(super) const MAX_PERCENT: c_uint = 110;
/// The utilisation of a process can be larger, as some drivers add up. A value above this is uninitialised memory of the driver.
pub(super) const MAX_PROCESS_PERCENT: c_uint = 1000;
/// A larger number of a critical error is none: NVIDIA's list ends below 200.
pub(super) const LARGEST_XID: u64 = 0xffff;
/// No PCIe link has more lanes.
pub(super) const MOST_LANES: c_uint = 64;
/// A driver that counts more devices is wrong: no machine has as many.
pub(super) const MOST_DEVICES: c_uint = 1024;
/// An account of 0% counts if the process lived for this long, milliseconds: two of the driver's rounds.
pub(super) const ACCOUNTED_MS: u64 = 2000;
/// Least time between two GPM samples, nanoseconds: the metrics are differences of counters.
pub(super) const GPM_INTERVAL_NS: u64 = 100_000_000;
/// Least time from one reading of GPM to the next that the plan asks for, nanoseconds: a reading that comes a little late must not make
/// the next one come too soon.
pub(super) const GPM_WANTED_NS: u64 = 125_000_000;
/// A larger rate over PCIe or NVLink is no figure, MiB a second: eighteen NVLinks of Blackwell carry 1.8 TB a second.
pub(super) const MOST_MIB_PER_S: f64 = 1e7;

// How much is asked of a call, and of the memory that the library takes.

/// Capacity of a list of processes at first, entries.
pub(super) const FIRST_PROCESSES: usize = 64;
/// Capacity for the driver's own samples at first: it keeps some 100 to 120.
pub(super) const FIRST_SAMPLES: usize = 128;
/// Largest capacity of a list, entries, which bounds the memory.
pub(super) const MAX_ENTRIES: usize = 1 << 16;
/// Maximum number of MIG instances that are asked for; a device has seven at most.
pub(super) const MAX_INSTANCES: c_uint = 64;
/// How long a call for the next event may wait, milliseconds. It is not 0, whose meaning is not documented: cuda-python's
/// cuda.core says that 0 waits indefinitely.
pub(super) const EVENT_WAIT_MS: c_uint = 1;
/// Maximum number of events that are taken at a reading: a device that fails again and again must not hold the thread.
pub(super) const MAX_EVENTS: usize = 256;
/// If memory in use grows by this much more than the compute list shows, bytes, another list may show the rest.
pub(super) const UNLISTED_BYTES: u64 = 64 << 20;
