//! Steps of memory: large changes between two readings. [`jumps`] finds those of the tree's RAM, `run/gpu/usage/memory_steps.rs` those
//! on GPUs.

pub(super) mod jumps;
pub(super) mod policy;

use serde::{Deserialize, Serialize};

use policy::StepPolicy;

/// A step of memory from one reading to another. Times are CLOCK_MONOTONIC nanoseconds, amounts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryStep {
    /// The id of the process in the run, for memory on a GPU; `None`: it is a jump of all processes together.
    pub process: Option<u64>,
    /// When the amount `from` was read, or is known to have been 0.
    pub from_ns: u64,
    /// When the amount `to` was read.
    pub at_ns: u64,
    pub from: u64,
    pub to: u64,
    /// It is told as an event. Otherwise it is only counted.
    pub is_told: bool,
}

/// Decides which steps of one amount of memory are told: reported to the user as events. The others are only counted.
///
/// A step is told if its level is at least a step above all earlier levels. Such steps are few, and they show how a program fills its
/// memory. Another step is told if none in its direction was told for a while ([`policy::StepPolicy::AGAIN_NS`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepsTold {
    /// The highest level of any step, bytes.
    highest: u64,
    /// When a fall was last told, CLOCK_MONOTONIC nanoseconds.
    fall_ns: Option<u64>,
    /// When a rise was last told.
    rise_ns: Option<u64>,
}

impl StepsTold {
    /// Decides whether a step at `at_ns`, from and to this many bytes, is told, and notes the step. `least`: the smallest change that is
    /// a step.
    pub(crate) fn tells(&mut self, at_ns: u64, from: u64, to: u64, least: u64) -> bool {
        let is_high = to >= self.highest.saturating_add(least);
        self.highest = self.highest.max(from).max(to);
        let last_ns = if to > from { &mut self.rise_ns } else { &mut self.fall_ns };
        let is_told =
            is_high || last_ns.is_none_or(|last| at_ns.saturating_sub(last) >= StepPolicy::AGAIN_NS);
        if is_told {
            *last_ns = Some(at_ns);
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    // Requirement: ALERT-5
    #[test]
    fn program_that_allocates_and_frees_all_the_time_is_told_seldom_and_each_new_height_always() {
        let mut told = StepsTold::default();
        let mut of_day = 0;
        for at_s in 0..86_400 {
            let (low, high) = (100, 200);
            of_day += u32::from(told.tells(at_s * S, low, high, 50));
            of_day += u32::from(told.tells(at_s * S, high, low, 50));
        }
        assert_eq!(of_day, 2 * 86_400 / 30);
        let heights = (4..8).map(|level| told.tells(86_380 * S, (level - 1) * 50, level * 50, 50));
        assert_eq!(heights.collect::<Vec<_>>(), [false, true, true, true], "200 was reached before");
    }
}
