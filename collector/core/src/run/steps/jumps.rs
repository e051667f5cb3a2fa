//! Jumps of RAM: between two samples, the RAM of the tree rose by a large part of what the run may use. Two samples that are far apart
//! show no jump, because the rise may have been slow. Jumps on GPUs are in `run/gpu/usage/memory_steps.rs`.

use serde::{Deserialize, Serialize};

use super::policy::StepPolicy;
use super::{MemoryStep, StepsTold};

/// Finds jumps: the RAM at the last sample, and which jumps were told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Jumps {
    /// Time of the last sample, CLOCK_MONOTONIC nanoseconds, and its RAM, bytes. `None`: there was none.
    last: Option<(u64, u64)>,
    told: StepsTold,
}

impl Jumps {
    /// Takes in the RAM `to`, bytes, of a sample at `at_ns`. Returns the jump to it, if there is one. `allowed`: what the run may use,
    /// bytes, if that is known. `interval_ns`: the sampling interval.
    pub(crate) fn add_sample(
        &mut self,
        at_ns: u64,
        to: u64,
        allowed: Option<u64>,
        interval_ns: u64,
    ) -> Option<MemoryStep> {
        let (from_ns, from) = self.last.replace((at_ns, to))?;
        let most_apart_ns =
            interval_ns.saturating_mul(StepPolicy::MOST_APART).max(StepPolicy::SHORTEST_APART_NS);
        let least = StepPolicy::least_jump(allowed)?;
        let is_jump = to.saturating_sub(from) >= least && at_ns.saturating_sub(from_ns) <= most_apart_ns;
        let is_told = is_jump && self.told.tells(at_ns, from, to, least);
        is_jump.then_some(MemoryStep { process: None, from_ns, at_ns, from, to, is_told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Where the jumps at these samples lead to, bytes: seconds and RAM. Samples are 1 s apart.
    fn jumps(allowed: Option<u64>, samples: &[(u64, u64)]) -> Vec<u64> {
        let mut jumps = Jumps::default();
        let all = samples.iter().filter_map(|(at_s, ram)| jumps.add_sample(at_s * S, *ram, allowed, S));
        all.map(|jump| jump.to).collect()
    }

    // Requirement: ALERT-14
    #[test]
    fn tenth_of_what_may_be_used_within_an_interval_is_a_jump() {
        let samples = [(1, 500), (2, 599), (3, 699), (4, 100)];
        assert_eq!(jumps(Some(1000), &samples), [699]);
        assert_eq!(jumps(None, &samples), [0; 0], "a part of what is not known");
        assert_eq!(jumps(Some(1000), &[(1, 900)]), [0; 0], "nothing is known before the first sample");
        assert_eq!(jumps(Some(1000), &[(1, 0), (4, 900)]), [0; 0], "nobody looked for 3 s");
    }
}
