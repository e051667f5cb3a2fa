//! Limits of what is asked of NVML and believed of it, each with its reason.

use std::ffi::c_uint;

use super::figure_kind::Kind;

/// What is read when.
pub(super) struct PlanPolicy {
    /// The part of the thread's time that memory and the process lists may take, 1 for all of it. Theirs is the largest, since a peak
    /// that they miss is lost. Together with `shares` it is [`Self::whole_share`]. With calls of 50 us, eight devices take 7% at an
    /// interval of 0.1 s.
    pub memory_share: f64,
    /// The part of that share, of all the thread's time, for the calls that ask how much memory is in use. Such a call shows
    /// whether the lists must be read. With calls of 4.5 ms, eight devices can be asked every 105 ms.
    pub in_use_share: f64,
    /// `memory_share` and `in_use_share` where the driver may be kept busy for less than `whole_share`. Memory in use shows a
    /// change, so the lists are read less often. The time saved goes to the other figures.
    pub shares_at_less: [f64; 2],
    /// The part of the thread's time that each other kind of figures may take.
    pub shares: [(Kind, f64); 9],
    /// The sum of the shares. Where the driver may be kept busy for less, each is smaller by the same factor.
    pub whole_share: f64,
    /// The part of the time that is kept for the last reading, which may take a hundredth of the run.
    pub share_at_end: f64,
    /// The debt of readings that came at once, such as the list of devices, is paid back within this time, nanoseconds.
    pub repaid_within_ns: u64,
    /// Longest pause after a reading that took too long, and for how long unused time is saved, nanoseconds.
    pub longest_pause_ns: u64,
    /// A reading costs at most this many times the usual one of its kind. If it took longer, it was preempted, or the driver
    /// waited for others.
    pub most_usual_costs: u64,
    /// How many of the latest costs of a kind are kept, for their median.
    pub costs_kept: usize,
    /// The longest wait for a kind until half of those are known, in intervals asked for. Smaller shares lengthen it in
    /// proportion.
    pub first_intervals: f64,
    /// A visit reads several kinds of figures of a device if they take less than this, nanoseconds: the lists of the others
    /// wait meanwhile.
    pub longest_visit_ns: u64,
    /// Where calls are slow, devices that the command does not see by its environment are read once in this many intervals of
    /// visible ones.
    pub hidden_factor: f64,
    /// Readings of the utilization samples need not be closer than this to lose none, nanoseconds. The shortest time seen in
    /// which a driver overwrites its samples is 2 s (some 100 samples, 20 ms apart).
    pub shortest_sample_memory_ns: u64,
    /// Where little may be read, utilization comes before the first reading of other kinds. That holds up to this many times the
    /// interval that loses none of it, half of what the driver keeps. Beyond it, most is lost in any case.
    pub most_kept_up: u64,
    /// A counter that does not wrap is read so often that a last reading that fails costs one part in this many of the time.
    pub lost_part: u64,
    /// The most that it costs, nanoseconds.
    pub longest_loss_ns: u64,
    /// A counter that can wrap is read after this part of the time in which the link can fill it. The rest is a reserve for a
    /// thread that wakes late.
    pub wrap_part: f64,
    /// A counter that can wrap is read at most this many times as often as asked for: a long interval is set to save calls.
    pub wrap_factor: f64,
}

pub(super) const PLAN: PlanPolicy = PlanPolicy {
    memory_share: 0.50,
    in_use_share: 0.35,
    shares_at_less: [0.44, 0.38],
    shares: [
        (Kind::AllLists, 0.03),
        (Kind::Utilization, 0.055),
        (Kind::ProcessUtilization, 0.025),
        (Kind::Energy, 0.05),
        (Kind::Power, 0.035),
        (Kind::Pcie, 0.02),
        (Kind::Gauges, 0.02),
        (Kind::Accounting, 0.01),
        (Kind::Events, 0.005),
    ],
    whole_share: 0.75,
    share_at_end: 0.01,
    repaid_within_ns: 5_000_000_000,
    longest_pause_ns: 1_000_000_000,
    most_usual_costs: 4,
    costs_kept: 9,
    first_intervals: 4.0,
    longest_visit_ns: 10_000_000,
    hidden_factor: 3.0,
    shortest_sample_memory_ns: 250_000_000,
    most_kept_up: 3,
    lost_part: 20,
    longest_loss_ns: 500_000_000,
    wrap_part: 0.5,
    wrap_factor: 4.0,
};

/// What is believed of the driver's utilization samples.
pub(super) struct SamplesPolicy {
    /// The driver samples itself at least this often while the device is in use, microseconds: a longer gap was idle.
    pub longest_sample_us: u64,
    /// After this long without a new sample the driver's present rate is used instead, microseconds.
    pub longest_gap_us: u64,
    /// A sample of the run is at most this much newer than the driver's clock is expected to be, microseconds.
    pub sample_clock_slack_us: u64,
    /// The driver's clock is at most this far ahead of the machine's, microseconds: a day, as if set by another time zone. Used
    /// until a sample of the run was read.
    pub clock_slack_us: u64,
    /// A utilisation between 100 percent and this is due to rounding. A larger value is uninitialised memory of the driver.
    pub most_percent: c_uint,
    /// An account of 0% counts if the process lived for this long, milliseconds: two of the driver's rounds.
    pub accounted_ms: u64,
    /// Time between two GPM samples, nanoseconds: the metrics are differences of counters.
    pub gpm_interval_ns: u64,
}

pub(super) const SAMPLES: SamplesPolicy = SamplesPolicy {
    longest_sample_us: 1_000_000,
    longest_gap_us: 2_000_000,
    sample_clock_slack_us: 10_000_000,
    clock_slack_us: 86_400_000_000,
    most_percent: 1000,
    accounted_ms: 2000,
    gpm_interval_ns: 100_000_000,
};

/// How much is asked of a call, and of the memory that the library takes.
pub(super) struct CallPolicy {
    /// Capacity of a list of processes at first, entries.
    pub first_processes: usize,
    /// Capacity for the driver's own samples at first: it keeps some 100 to 120.
    pub first_samples: usize,
    /// Largest capacity of a list, entries, which bounds the memory.
    pub most_entries: usize,
    /// Maximum number of MIG instances that are asked for; a device has seven at most.
    pub most_instances: c_uint,
    /// How long a call for the next event may wait, milliseconds. It is not 0, whose meaning is not documented: cuda-python's
    /// cuda.core says that 0 waits indefinitely.
    pub event_wait_ms: c_uint,
    /// Maximum number of events that are taken at a reading: a device that fails again and again must not hold the thread.
    pub most_events: usize,
    /// If memory in use grows by this much more than the compute list shows, bytes, another list may show the rest.
    pub unlisted_bytes: u64,
}

pub(super) const CALLS: CallPolicy = CallPolicy {
    first_processes: 64,
    first_samples: 128,
    most_entries: 1 << 16,
    most_instances: 64,
    event_wait_ms: 1,
    most_events: 256,
    unlisted_bytes: 64 << 20,
};
