//! The clocks that times in records and samples come from.

use rustix::time::{ClockId, clock_gettime};

/// Reads a clock, nanoseconds.
fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Reads CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// Reads CLOCK_REALTIME, nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    now_ns(ClockId::Realtime)
}

/// Reads the CPU time of the calling thread, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    now_ns(ClockId::ThreadCPUTime)
}

/// Reads the CPU time of this process, nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    now_ns(ClockId::ProcessCPUTime)
}

/// The time since boot, in the clock ticks in which /proc/PID/stat has the start of a process.
pub(crate) fn boot_ticks() -> u64 {
    let ticks_per_second = u128::from(rustix::param::clock_ticks_per_second());
    let ticks = u128::from(now_ns(ClockId::Boottime)) * ticks_per_second / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// A timer that is due at its first use, and then again each time a period has passed.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    due_ns: u64,
}

impl Timer {
    /// Whether the timer is due at `now_ns`. If so, it is due next after `period_ns`.
    pub(crate) fn is_due(&mut self, now_ns: u64, period_ns: u64) -> bool {
        let is_due = self.would_be_due(now_ns);
        if is_due {
            self.start(now_ns, period_ns);
        }
        is_due
    }

    /// Whether the timer is due at `now_ns`. It stays so.
    pub(crate) fn would_be_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Makes the timer due `period_ns` after `now_ns`.
    pub(crate) fn start(&mut self, now_ns: u64, period_ns: u64) {
        self.due_ns = now_ns.saturating_add(period_ns);
    }
}

/// CLOCK_BOOTTIME - CLOCK_MONOTONIC, nanoseconds: how long the machine has been suspended since boot.
pub(crate) fn boot_offset_ns() -> i128 {
    i128::from(now_ns(ClockId::Boottime)) - i128::from(monotonic_ns())
}
