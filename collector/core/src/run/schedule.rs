//! When is the next sample? The grid of the sampling interval, and the samples beside it.

use crate::model::policy::SamplingPolicy;

/// Large ends delay a sample: see [`SamplingPolicy::together_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deferral {
    /// Those of processes that held so much.
    pub bytes: u64,
    /// For so long after the last of them.
    pub together_ns: u64,
}

/// A sample that was taken, as far as it decides on the next one.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The sample before.
    pub from_ns: u64,
    /// The command's start.
    pub start_ns: u64,
    /// CPU time that it took, nanoseconds.
    pub cost_ns: u64,
    /// The largest RAM before it, bytes.
    pub largest_before: u64,
    /// And with it.
    pub largest: u64,
}

/// When the next sample is due. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug)]
pub struct Schedule {
    policy: SamplingPolicy,
    interval_ns: u64,
    next_tick_ns: u64,
    /// A sample beside the grid.
    early_ns: u64,
    /// A sample for programs that have not reported.
    unreported_ns: u64,
    /// What such samples have cost is within their share by then.
    paid_ns: u64,
    /// The last sample.
    sampled_ns: u64,
    /// Not before this time.
    deferred_until_ns: u64,
    /// What the samples cost that did not count since the last one, nanoseconds.
    deferred_cost_ns: u64,
    grows_until_ns: u64,
}

impl Schedule {
    /// For a run that began at `start_ns`.
    #[must_use]
    pub fn new(policy: SamplingPolicy, interval_ns: u64, start_ns: u64) -> Self {
        Self {
            policy,
            interval_ns: interval_ns.max(1),
            next_tick_ns: start_ns,
            early_ns: u64::MAX,
            unreported_ns: u64::MAX,
            paid_ns: 0,
            sampled_ns: start_ns,
            deferred_until_ns: 0,
            deferred_cost_ns: 0,
            // Nearly every program grows at its start.
            grows_until_ns: start_ns.saturating_add(policy.growth_pause_ns),
        }
    }

    /// When the next sample is due.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.planned_ns().max(self.deferred_until_ns)
    }

    /// The same, however the sample is delayed.
    fn planned_ns(&self) -> u64 {
        self.next_tick_ns.min(self.early_ns).min(self.unreported_ns)
    }

    /// When the youngest program began that has not reported, if there is a young one.
    pub fn expect(&mut self, youngest_ns: Option<u64>) {
        let policy = &self.policy;
        let youngest_ns = youngest_ns.filter(|_| policy.unreported_rest_ns > 0);
        self.unreported_ns = youngest_ns.map_or(u64::MAX, |start_ns| {
            let age_ns = self.sampled_ns.saturating_sub(start_ns).max(policy.unreported_ns);
            let rest_ns = age_ns.min(policy.unreported_rest_ns);
            self.sampled_ns.max(start_ns).saturating_add(rest_ns).max(self.paid_ns)
        });
    }

    /// Whether a sample at this time is one of the grid.
    #[must_use]
    pub fn is_on_grid(&self, now_ns: u64) -> bool {
        now_ns >= self.next_tick_ns
    }

    /// Whether so many ended intervals wait that a sample must be taken at once.
    #[must_use]
    pub fn is_overfull(&self, waiting: usize) -> bool {
        waiting > self.policy.most_waiting
    }

    /// Which ends may delay the sample that is due; `sampled_ns` is the sample before, `largest` the largest RAM so far.
    #[must_use]
    pub fn deferral(&self, now_ns: u64, sampled_ns: u64, largest: u64) -> Option<Deferral> {
        let policy = &self.policy;
        let due_ns = self.planned_ns();
        let window_ns = due_ns.saturating_sub(sampled_ns);
        let longest_ns = window_ns.saturating_mul(policy.longest_delay).min(policy.longest_delay_ns);
        // Memory that does not grow from sample to sample can have grown since the last one.
        let longest_ns =
            if now_ns < self.grows_until_ns { longest_ns } else { policy.together_ns.min(longest_ns) };
        let may_wait = policy.together_ns > 0 && now_ns < due_ns.saturating_add(longest_ns);
        may_wait.then(|| Deferral {
            bytes: (largest / policy.notable_end.max(1)).max(policy.notable_end_bytes),
            together_ns: policy.together_ns.min(window_ns / 2),
        })
    }

    /// Delay the sample if a large process ended just before `now_ns`; `last_end_ns` tells when the last one that held so
    /// many bytes did. Whether it is delayed.
    pub fn defer(
        &mut self,
        deferral: Option<Deferral>,
        now_ns: u64,
        last_end_ns: impl FnOnce(u64) -> Option<u64>,
    ) -> bool {
        let until =
            |deferral: Deferral| Some(last_end_ns(deferral.bytes)?.saturating_add(deferral.together_ns));
        self.deferred_until_ns = deferral.and_then(until).unwrap_or(0);
        now_ns < self.deferred_until_ns
    }

    /// The sample itself found a large process dead: it does not count, and is taken again. Its CPU time, nanoseconds, counts
    /// with the next sample.
    pub fn defer_again(&mut self, deferral: Deferral, now_ns: u64, cost_ns: u64) {
        self.deferred_cost_ns = self.deferred_cost_ns.saturating_add(cost_ns);
        self.deferred_until_ns = now_ns.saturating_add(deferral.together_ns);
    }

    /// A sample was taken.
    pub fn taken(&mut self, taken: &Taken) {
        let deferred_cost_ns = std::mem::take(&mut self.deferred_cost_ns);
        let taken = &Taken { cost_ns: taken.cost_ns.saturating_add(deferred_cost_ns), ..*taken };
        self.sampled_ns = taken.at_ns;
        if taken.at_ns < self.next_tick_ns.min(self.early_ns) {
            self.pay(taken);
        }
        let policy = &self.policy;
        let growth = taken.largest.saturating_sub(taken.largest_before);
        let length_ns = taken.at_ns.saturating_sub(taken.from_ns).max(1);
        let in_interval = u128::from(growth) * u128::from(self.interval_ns) / u128::from(length_ns);
        if in_interval > u128::from(taken.largest_before / policy.notable_growth.max(1)) {
            self.grows_until_ns = taken.at_ns.saturating_add(policy.growth_pause_ns);
        }
        let age_ns = taken.at_ns.saturating_sub(taken.start_ns);
        let rest_ns = rest_ns(policy, age_ns, taken.at_ns < self.grows_until_ns, taken.cost_ns);
        self.early_ns = rest_ns.map_or(u64::MAX, |rest| taken.at_ns.saturating_add(rest));
        // Ticks keep their grid, and missed ones are left out. An early sample leaves the next tick where it is.
        if let Some(late) = taken.at_ns.checked_sub(self.next_tick_ns) {
            let next = (late / self.interval_ns + 1).saturating_mul(self.interval_ns);
            self.next_tick_ns = self.next_tick_ns.saturating_add(next);
        }
    }

    /// It was taken for a program that has not reported.
    fn pay(&mut self, taken: &Taken) {
        let time_for = |cost_ns: u64| cost_ns.saturating_mul(self.policy.share_of_unreported);
        let saved_ns = time_for(self.policy.saved_for_unreported_ns);
        let from_ns = self.paid_ns.max(taken.at_ns.saturating_sub(saved_ns));
        self.paid_ns = from_ns.saturating_add(time_for(taken.cost_ns));
    }
}

/// How long after a sample that cost this much the next one comes, if it does not wait for the grid.
fn rest_ns(policy: &SamplingPolicy, age_ns: u64, grows: bool, cost_ns: u64) -> Option<u64> {
    let rest_ns = |least_ns: u64, share: u64| least_ns.max(cost_ns.saturating_mul(share));
    if policy.youngest_ns > 0 && age_ns < policy.young_until_ns {
        Some(rest_ns(age_ns.max(policy.youngest_ns), policy.share_of_young))
    } else {
        (grows && policy.growing_ns > 0).then(|| rest_ns(policy.growing_ns, policy.share_of_growing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn young_and_growing_runs_are_sampled_beside_the_grid() {
        let policy = SamplingPolicy::default();
        let ages = |cost_ns: u64| {
            let next = |age: &u64| Some(age + rest_ns(&policy, *age, *age < 100 * MS, cost_ns)?);
            std::iter::successors(Some(0), next).map(|age| age / MS).collect::<Vec<_>>()
        };
        assert_eq!(ages(MS / 20), [0, 1, 2, 4, 8, 16, 32, 57, 82, 107]);
        assert_eq!(ages(MS / 2), [0, 5, 10, 20, 40, 90, 140], "expensive samples come less often");
    }

    // Requirement: RAM-21
    #[test]
    fn young_programs_that_do_not_report_are_sampled_within_their_share() {
        // From two seconds on there is always a program that has not reported, and it is half a second old at most.
        let samples = |interval_ns: u64, cost_ns: u64, until_ns: u64| {
            let mut schedule = Schedule::new(SamplingPolicy::default(), interval_ns, 0);
            let (mut times, mut from_ns) = (Vec::new(), 0u64);
            loop {
                let begin_ns = 2000 * MS + from_ns.saturating_sub(2000 * MS) / (500 * MS) * (500 * MS);
                schedule.expect(Some(begin_ns));
                let at_ns = schedule.due_ns();
                if at_ns >= until_ns {
                    return times;
                }
                times.push(at_ns / MS);
                schedule.taken(&Taken {
                    at_ns,
                    from_ns,
                    start_ns: 0,
                    cost_ns,
                    largest_before: 1,
                    largest: 1,
                });
                from_ns = at_ns;
            }
        };
        let after =
            |times: &[u64], from: u64| times.iter().copied().filter(|at| *at >= from).collect::<Vec<_>>();
        let cheap = samples(1500 * MS, MS / 10, 2060 * MS);
        assert_eq!(after(&cheap, 600), [1500, 2003, 2006, 2012, 2022, 2032, 2042, 2052]);
        let hour = 3_600_000;
        let expensive = samples(1000 * MS, 4 * MS, hour * MS).len() as u64;
        assert!(expensive * 4 < hour / 100 + hour / 1000 * 4 + 1000, "{expensive} samples of 4 ms");
    }

    #[test]
    fn ticks_keep_their_grid_and_missed_ones_are_left_out() {
        let mut schedule = Schedule::new(SamplingPolicy::default(), 100 * MS, 0);
        let taken =
            |at_ns| Taken { at_ns, from_ns: 0, start_ns: 0, cost_ns: 0, largest_before: 1, largest: 1 };
        schedule.taken(&taken(600 * MS));
        assert_eq!(schedule.due_ns(), 700 * MS);
        schedule.taken(&taken(955 * MS));
        assert_eq!(schedule.due_ns(), 1000 * MS);
    }

    // Requirement: RAM-72
    #[test]
    fn a_large_end_delays_a_sample_while_the_tree_grows() {
        let mut schedule = Schedule::new(SamplingPolicy::default(), 100 * MS, 0);
        let deferral = schedule.deferral(50 * MS, 0, 0);
        assert_eq!(deferral, None, "nothing is known of a window of no length");
        schedule.taken(&Taken {
            at_ns: 0,
            from_ns: 0,
            start_ns: 0,
            cost_ns: 0,
            largest_before: 0,
            largest: 9,
        });
        schedule.taken(&Taken {
            at_ns: 100 * MS,
            from_ns: 0,
            start_ns: 0,
            cost_ns: 0,
            largest_before: 9,
            largest: 100 << 20,
        });
        let deferral = schedule.deferral(125 * MS, 100 * MS, 100 << 20).unwrap();
        assert_eq!((deferral.bytes, deferral.together_ns), (16 << 20, 25 * MS / 2));
        assert!(schedule.defer(Some(deferral), 125 * MS, |_| Some(124 * MS)));
        assert!(!schedule.defer(Some(deferral), 125 * MS, |_| Some(100 * MS)));
        assert!(!schedule.defer(Some(deferral), 125 * MS, |_| None));
        assert_eq!(schedule.deferral(700 * MS, 100 * MS, 100 << 20), None, "no longer growing");
    }

    /// Developers set fields from the environment, and 0 is what they try first.
    #[test]
    fn policy_of_zeros_does_not_panic() {
        let policy = serde_json::from_str(
            r#"{"notable_growth": 0, "notable_end": 0, "growing_ns": 0, "youngest_ns": 0, "together_ns": 1,
                "unreported_rest_ns": 0, "share_of_unreported": 0}"#,
        );
        let mut schedule = Schedule::new(policy.unwrap(), 100 * MS, 0);
        let taken = Taken {
            at_ns: MS,
            from_ns: 0,
            start_ns: 0,
            cost_ns: 1,
            largest_before: 1 << 30,
            largest: 9 << 30,
        };
        schedule.taken(&taken);
        schedule.expect(Some(MS));
        assert_eq!(schedule.due_ns(), 100 * MS, "only the grid is left");
        assert_eq!(schedule.deferral(MS, 0, 1 << 30).map(|deferral| deferral.bytes), Some(1 << 30));
    }
}
