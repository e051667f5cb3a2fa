//! Whether a collector that was killed gets a successor.

use crate::process::signals::is_fault;

/// A collector that lived shorter than this, or was writing the report when it was killed, counts as a short life. A signal that is
/// sent by chance rarely comes in so short a time.
const SHORT_LIFE_NS: u64 = 20_000_000;
/// Number of short lives in a row after which no other collector is started: something ends every one at once.
pub(crate) const MAX_SHORT_LIVES: u32 = 100;
/// A collector that a fault's signal ends within this time after its start counts as crashed.
const CRASH_LIFE_NS: u64 = 60_000_000_000;
/// Number of crashes in a row after which the next collector does not load NVIDIA's library. That is the only library that a
/// collector opens with dlopen(3), and the likeliest cause.
const MAX_CRASHES: u32 = 3;

/// Counts the collectors of a run that were killed.
#[derive(Debug, Default)]
pub(crate) struct KilledCollectors {
    /// Short lives in a row, up to the collector that was killed last.
    short_lives: u32,
    /// Crashes in a row, in the same way.
    crashes: u32,
}

/// What follows a killed collector.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// A collector that works in the same way.
    Same,
    /// A collector that does not load NVIDIA's library.
    WithoutNvml,
    /// No collector.
    None,
}

impl KilledCollectors {
    /// Counts a collector that `signal` ended `life_ns` after its start, and says what follows it. `is_finishing`: the command
    /// had ended, so the collector was writing the report.
    pub(crate) fn add(&mut self, signal: i32, life_ns: u64, is_finishing: bool) -> Successor {
        let is_short = life_ns < SHORT_LIFE_NS || is_finishing;
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        self.crashes = if is_fault(signal) && life_ns < CRASH_LIFE_NS { self.crashes + 1 } else { 0 };
        if self.short_lives >= MAX_SHORT_LIVES {
            Successor::None
        } else if self.crashes >= MAX_CRASHES {
            Successor::WithoutNvml
        } else {
            Successor::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_in_a_row_end_the_use_of_nvml() {
        let mut killed = KilledCollectors::default();
        let second = 1_000_000_000;
        for (signal, life_ns) in
            [(libc::SIGSEGV, second), (libc::SIGSEGV, second), (libc::SIGSEGV, CRASH_LIFE_NS)]
        {
            assert_eq!(killed.add(signal, life_ns, false), Successor::Same);
        }
        for signal in [libc::SIGSEGV, libc::SIGABRT] {
            assert_eq!(killed.add(signal, second, false), Successor::Same);
        }
        assert_eq!(killed.add(libc::SIGBUS, second, false), Successor::WithoutNvml);
        assert_eq!(killed.add(libc::SIGKILL, second, false), Successor::Same);
    }

    #[test]
    fn short_lives_in_a_row_end_the_restarts() {
        let mut killed = KilledCollectors::default();
        for _ in 1..MAX_SHORT_LIVES {
            assert_eq!(killed.add(libc::SIGKILL, 0, false), Successor::Same);
        }
        assert_eq!(killed.add(libc::SIGKILL, SHORT_LIFE_NS, true), Successor::None);
        assert_eq!(killed.add(libc::SIGKILL, SHORT_LIFE_NS, false), Successor::Same);
    }
}
