//! Whether samples know the figure of a rule. A rule whose figure is unknown has no effect, and the user is told so.

use serde::{Deserialize, Serialize};

/// If a figure is unknown for this long, its rule is not watched, and the user is told, nanoseconds. A GPU driver that takes 20 ms a call
/// gives the memory of 8 GPUs every 3 s.
pub(super) const UNKNOWN_FOR_NS: u64 = 5_000_000_000;

/// For how long samples knew the figure of a rule.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Watch {
    /// A sample knew it.
    pub(super) was_known: bool,
    /// The time before samples that did not know it, nanoseconds. The open stretch of such samples is left out.
    unknown_ns: u64,
    /// The time of the open stretch of such samples, nanoseconds. 0: the last sample knew the figure.
    open_ns: u64,
    /// The last sample, CLOCK_MONOTONIC nanoseconds. `None`: none could know it yet.
    sampled_ns: Option<u64>,
}

impl Watch {
    /// Takes in whether the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds, knows the figure. A stretch of unknown samples of less than
    /// `bridged_ns` has no effect on the rule, if a known one follows.
    pub(super) fn note(&mut self, at_ns: u64, is_known: bool, bridged_ns: u64) {
        let passed_ns = self.sampled_ns.replace(at_ns).map_or(0, |before_ns| at_ns.saturating_sub(before_ns));
        if is_known {
            self.was_known = true;
            let open_ns = std::mem::take(&mut self.open_ns);
            self.unknown_ns += if open_ns < bridged_ns { 0 } else { open_ns };
        } else {
            self.open_ns += passed_ns;
        }
    }

    /// Whether no sample of the last `ns` nanoseconds knew the figure.
    pub(super) fn is_unknown_for(&self, ns: u64) -> bool {
        self.open_ns >= ns
    }

    /// For how long the figure was unknown, nanoseconds.
    pub(super) fn unknown_ns(&self) -> u64 {
        self.unknown_ns + self.open_ns
    }

    /// For how long the rule was not watched, seconds; `Some(None)`: all the time. `None`: for less than [`UNKNOWN_FOR_NS`] in all, or no
    /// sample could know its figure (`could_be_known`).
    pub(super) fn unwatched_s(&self, could_be_known: bool) -> Option<Option<f64>> {
        let ns = self.unknown_ns();
        match self.was_known {
            false => could_be_known.then_some(None),
            true => (ns >= UNKNOWN_FOR_NS).then_some(Some(ns as f64 / 1e9)),
        }
    }
}
