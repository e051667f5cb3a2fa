//! When the next sample is due: on the grid of the sampling interval, or beside it.
//!
//! [`Schedule::decide`] concludes from [`Situation`] and from earlier outcomes, which [`Schedule::sampled`] takes in. The rules, with
//! the values of [`SamplingPolicy`]:
//!
//! - Growth: while the tree's RAM grows notably, and at the start of the run, samples come more often. How large the others were
//!   when a process ended is known only from the sample before.
//! - Large ends: after the end of a large process the sample waits a little, since others may end with it. A sample amid ends
//!   would mix peaks with sizes of the sample before. While the tree does not grow, that delay is shorter.
//! - Unreported programs: only samples show the memory of a program that has not written its START record yet. The younger such
//!   a program is, the more often samples come.
//! - Many intervals (a process's life, or its memory) that wait for a sample cause one at once, since they take memory.

use super::tree::LiveInterval;
use crate::model::policy::SamplingPolicy;

/// The state of the run that a decision depends on. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// When the last sample was taken, or when the command started.
    pub sampled_ns: u64,
    /// The largest footprint of the tree so far, bytes.
    pub largest_bytes: u64,
    /// When the youngest program began that has written no START record. `None`: there is no young one.
    pub youngest_unreported_ns: Option<u64>,
    /// The intervals that ended since the last sample, which the next sample takes.
    pub ended: &'a [LiveInterval],
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// No sample before this time, CLOCK_MONOTONIC nanoseconds.
    Wait(u64),
    /// A sample now.
    Sample(Terms),
}

/// How a sample is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// The sample is one of the grid.
    pub is_on_grid: bool,
    /// If the sample finds a process dead that was this large, it is put off. `None`: the sample is taken in any case.
    pub large_end: Option<LargeEnd>,
}

/// Which ends delay a sample: see [`SamplingPolicy::together_ns`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeEnd {
    /// Ends of processes that added at least this much to footprints, bytes.
    pub bytes: u64,
    /// The sample comes this long after the last of these ends, nanoseconds.
    pub together_ns: u64,
}

impl LargeEnd {
    /// Until when these ends delay a sample, CLOCK_MONOTONIC nanoseconds. `None`: none of them is large enough.
    fn until_ns(&self, ended: &[LiveInterval]) -> Option<u64> {
        let large = ended.iter().filter(|interval| interval.memory.added_bytes >= self.bytes);
        large.map(|interval| interval.end_ns).max().map(|end_ns| end_ns.saturating_add(self.together_ns))
    }
}

/// Whether a sample was taken or put off.
#[derive(Debug, Clone, Copy)]
pub enum Outcome {
    /// It found a large process dead: it does not count, and is taken again.
    PutOff {
        /// When the sample was read, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// CPU time that the sample took, nanoseconds; it counts with the next sample.
        cost_ns: u64,
        /// The rule that put it off.
        large_end: LargeEnd,
    },
    /// It was taken.
    Taken(Taken),
}

/// A sample that was taken, as far as it decides on the next one.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// When it was taken, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// When the sample before was taken, CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// CPU time that it took, nanoseconds.
    pub cost_ns: u64,
    /// The largest footprint of the tree before it, bytes.
    pub largest_before: u64,
    /// The largest footprint with it, bytes.
    pub largest: u64,
}

/// When the next sample is due. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug)]
pub struct Schedule {
    policy: SamplingPolicy,
    /// The sampling interval, which is the distance of the grid, nanoseconds.
    interval_ns: u64,
    /// The next sample of the grid.
    next_tick_ns: u64,
    /// The next sample for growth. `u64::MAX`: none comes.
    early_ns: u64,
    /// No sample for unreported programs comes before this time, so that they take only a small part of a core: see
    /// [`Self::charge`].
    unreported_after_ns: u64,
    /// Large ends delay the next sample up to this time.
    delayed_until_ns: u64,
    /// What the samples that were put off since the last one cost, nanoseconds.
    put_off_cost_ns: u64,
    /// The tree counts as growing until this time.
    grows_until_ns: u64,
}

impl Schedule {
    /// Makes the schedule of a run that began at `start_ns`: the first sample is due at once.
    pub fn new(policy: SamplingPolicy, interval_ns: u64, start_ns: u64) -> Self {
        Self {
            policy,
            interval_ns: interval_ns.max(1),
            next_tick_ns: start_ns,
            early_ns: u64::MAX,
            unreported_after_ns: 0,
            delayed_until_ns: 0,
            put_off_cost_ns: 0,
            // Nearly every program grows at its start.
            grows_until_ns: start_ns.saturating_add(policy.growth_pause_ns),
        }
    }

    /// Decides whether to sample now or to wait. A sample is planned for the next tick, or earlier for growth or an unreported
    /// program. Large ends may delay it: that delay is kept for the next call. Nothing else changes.
    pub fn decide(&mut self, now_ns: u64, situation: &Situation) -> Decision {
        let is_on_grid = now_ns >= self.next_tick_ns;
        if situation.ended.len() > self.policy.most_waiting {
            return Decision::Sample(Terms { is_on_grid, large_end: None });
        }
        let planned_ns = self.next_tick_ns.min(self.early_ns).min(self.unreported_ns(situation));
        let due_ns = planned_ns.max(self.delayed_until_ns);
        if now_ns < due_ns {
            return Decision::Wait(due_ns);
        }
        let large_end = self.large_end(now_ns, planned_ns, situation);
        match large_end.and_then(|rule| rule.until_ns(situation.ended)) {
            Some(until_ns) if now_ns < until_ns => {
                self.delayed_until_ns = until_ns;
                Decision::Wait(until_ns)
            }
            _ => Decision::Sample(Terms { is_on_grid, large_end }),
        }
    }

    /// When a sample for unreported programs is due, CLOCK_MONOTONIC nanoseconds. `u64::MAX`: none is. The time since the last
    /// sample equals the age that the youngest such program had then, so its age doubles from sample to sample. The policy bounds
    /// that time, and the cost of earlier samples may make it longer.
    fn unreported_ns(&self, situation: &Situation) -> u64 {
        let policy = &self.policy;
        let is_wanted = policy.unreported_rest_ns > 0;
        let Some(start_ns) = situation.youngest_unreported_ns.filter(|_| is_wanted) else { return u64::MAX };
        let age_ns = situation.sampled_ns.saturating_sub(start_ns);
        let rest_ns = age_ns.max(policy.unreported_ns).min(policy.unreported_rest_ns);
        let rests_from_ns = situation.sampled_ns.max(start_ns);
        rests_from_ns.saturating_add(rest_ns).max(self.unreported_after_ns)
    }

    /// Which ends may delay the sample that was planned for `planned_ns`. `None`: none may, or it has been delayed for long
    /// enough.
    fn large_end(&self, now_ns: u64, planned_ns: u64, situation: &Situation) -> Option<LargeEnd> {
        let policy = &self.policy;
        let window_ns = planned_ns.saturating_sub(situation.sampled_ns);
        let longest_ns = window_ns.saturating_mul(policy.longest_delay).min(policy.longest_delay_ns);
        // Even if no sample shows growth, memory can have grown since the last one. So ends delay the sample, but for less time.
        let is_growing = now_ns < self.grows_until_ns;
        let delay_ns = if is_growing { longest_ns } else { policy.together_ns.min(longest_ns) };
        let is_delayed_enough = now_ns >= planned_ns.saturating_add(delay_ns);
        if policy.together_ns == 0 || is_delayed_enough {
            return None;
        }
        let notable_bytes = situation.largest_bytes / policy.notable_end.max(1);
        Some(LargeEnd {
            bytes: notable_bytes.max(policy.notable_end_bytes),
            // So an end delays the sample only if it is in the later half of the time since the last one.
            together_ns: policy.together_ns.min(window_ns / 2),
        })
    }

    /// Takes in whether a sample was taken or put off, which decides when the next one comes. The cost of those that were put off
    /// counts with the next one that is taken.
    pub fn sampled(&mut self, outcome: &Outcome) {
        match *outcome {
            Outcome::PutOff { at_ns, cost_ns, large_end } => {
                self.put_off_cost_ns = self.put_off_cost_ns.saturating_add(cost_ns);
                self.delayed_until_ns = at_ns.saturating_add(large_end.together_ns);
            }
            Outcome::Taken(taken) => {
                let put_off_cost_ns = std::mem::take(&mut self.put_off_cost_ns);
                let cost_ns = taken.cost_ns.saturating_add(put_off_cost_ns);
                self.plan_after(&Taken { cost_ns, ..taken });
            }
        }
    }

    /// Plans the next sample for growth, and the next one of the grid, after a sample that was taken. If that sample was for
    /// neither, charges for it.
    fn plan_after(&mut self, taken: &Taken) {
        // Neither the grid nor growth was the reason for it, but an unreported program, or many ended intervals.
        if taken.at_ns < self.next_tick_ns.min(self.early_ns) {
            self.charge(taken);
        }
        let policy = &self.policy;
        if self.is_growth_notable(taken) {
            self.grows_until_ns = taken.at_ns.saturating_add(policy.growth_pause_ns);
        }
        let is_growing = policy.growing_ns > 0 && taken.at_ns < self.grows_until_ns;
        // So samples for growth take at most one part in `share_of_growing` of a core.
        let rest_ns = policy.growing_ns.max(taken.cost_ns.saturating_mul(policy.share_of_growing));
        self.early_ns = if is_growing { taken.at_ns.saturating_add(rest_ns) } else { u64::MAX };
        // Ticks keep their grid, and missed ones are left out. An early sample leaves the next tick where it is.
        if let Some(late_ns) = taken.at_ns.checked_sub(self.next_tick_ns) {
            let passed_ticks = late_ns / self.interval_ns + 1;
            let ahead_ns = passed_ticks.saturating_mul(self.interval_ns);
            self.next_tick_ns = self.next_tick_ns.saturating_add(ahead_ns);
        }
    }

    /// Whether the largest footprint grew since the sample before at such a rate that in one sampling interval it grows notably.
    fn is_growth_notable(&self, taken: &Taken) -> bool {
        let growth_bytes = taken.largest.saturating_sub(taken.largest_before);
        let length_ns = taken.at_ns.saturating_sub(taken.from_ns).max(1);
        let in_interval_bytes =
            u128::from(growth_bytes) * u128::from(self.interval_ns) / u128::from(length_ns);
        let notable_bytes = taken.largest_before / self.policy.notable_growth.max(1);
        in_interval_bytes > u128::from(notable_bytes)
    }

    /// Charges for a sample that neither the grid nor growth asked for: the next one for an unreported program waits until
    /// `unreported_after_ns`. A nanosecond of cost moves that time on by `share_of_unreported` nanoseconds, so these samples take
    /// one part in that many of a core. If the time has passed, the time since then is credit, up to `saved_for_unreported_ns` of
    /// cost.
    fn charge(&mut self, taken: &Taken) {
        let wait_for = |cost_ns: u64| cost_ns.saturating_mul(self.policy.share_of_unreported);
        let most_credit_ns = wait_for(self.policy.saved_for_unreported_ns);
        let from_ns = self.unreported_after_ns.max(taken.at_ns.saturating_sub(most_credit_ns));
        self.unreported_after_ns = from_ns.saturating_add(wait_for(taken.cost_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree::{Contribution, ProcessId, TaskId};

    const MS: u64 = 1_000_000;

    const NOTHING: Situation<'_> =
        Situation { sampled_ns: 0, largest_bytes: 1, youngest_unreported_ns: None, ended: &[] };
    const NO_GROWTH: Taken = Taken { at_ns: 0, from_ns: 0, cost_ns: 0, largest_before: 1, largest: 1 };

    fn new_schedule(interval_ns: u64) -> Schedule {
        Schedule::new(SamplingPolicy::default(), interval_ns, 0)
    }

    fn ended_at(end_ns: u64, added_bytes: u64) -> LiveInterval {
        LiveInterval {
            end_ns,
            memory: Contribution { added_bytes, ..Contribution::default() },
            is_process: false,
            is_main: false,
            id: ProcessId(1),
            pid: 1,
            command: "x".into(),
            task: TaskId::WORKFLOW,
            start_ns: 0,
            likely_start_ns: 0,
            is_end_rough: false,
            unread_bytes: None,
            rss_bytes: 0,
            counted_at_ns: 0,
            cpu_ns: 0,
            threads: 0,
        }
    }

    fn sample(is_on_grid: bool, large_end: Option<LargeEnd>) -> Decision {
        Decision::Sample(Terms { is_on_grid, large_end })
    }

    #[test]
    fn growing_runs_are_sampled_beside_the_grid() {
        let times = |cost_ns: u64| {
            let mut schedule = new_schedule(1000 * MS);
            let mut next = |from_ns: u64| {
                let largest = if from_ns < 100 * MS { 2 } else { 1 };
                schedule.sampled(&Outcome::Taken(Taken { at_ns: from_ns, cost_ns, largest, ..NO_GROWTH }));
                match schedule.decide(from_ns, &Situation { sampled_ns: from_ns, ..NOTHING }) {
                    Decision::Wait(until_ns) if until_ns < 2000 * MS => Some(until_ns),
                    _ => None,
                }
            };
            let times = std::iter::successors(Some(0), |from_ns| next(*from_ns));
            times.map(|at_ns| at_ns / MS).collect::<Vec<_>>()
        };
        let cheap = times(MS / 20);
        assert_eq!((&cheap[..5], cheap.last()), (&[0, 25, 50, 75, 100][..], Some(&1000)));
        // Growth is taken to go on for half a second after the last that was seen.
        assert_eq!(cheap.iter().rfind(|at| **at < 1000), Some(&575));
        assert_eq!(times(MS)[..5], [0, 100, 200, 300, 400], "expensive samples come less often");
    }

    // Requirement: RAM-21
    #[test]
    fn young_programs_that_do_not_report_are_sampled_within_their_share() {
        // From two seconds on there is always a program that has not reported, and it is half a second old at most.
        let samples = |interval_ns: u64, cost_ns: u64, until_ns: u64| {
            let mut schedule = new_schedule(interval_ns);
            let (mut times, mut from_ns) = (Vec::new(), 0u64);
            let mut at_ns = 0;
            loop {
                let begin_ns = 2000 * MS + from_ns.saturating_sub(2000 * MS) / (500 * MS) * (500 * MS);
                let situation =
                    Situation { sampled_ns: from_ns, youngest_unreported_ns: Some(begin_ns), ..NOTHING };
                if let Decision::Wait(until_ns) = schedule.decide(at_ns, &situation) {
                    at_ns = until_ns;
                }
                assert!(matches!(schedule.decide(at_ns, &situation), Decision::Sample(_)));
                if at_ns >= until_ns {
                    return times;
                }
                times.push(at_ns / MS);
                schedule.sampled(&Outcome::Taken(Taken { at_ns, from_ns, cost_ns, ..NO_GROWTH }));
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
        let mut schedule = new_schedule(100 * MS);
        assert_eq!(schedule.decide(0, &NOTHING), sample(true, None));
        for (at_ns, next_ns) in [(600, 700), (955, 1000)].map(|(at, next)| (at * MS, next * MS)) {
            schedule.sampled(&Outcome::Taken(Taken { at_ns, ..NO_GROWTH }));
            assert_eq!(schedule.decide(at_ns + 1, &NOTHING), Decision::Wait(next_ns));
            assert!(
                matches!(schedule.decide(next_ns, &NOTHING), Decision::Sample(terms) if terms.is_on_grid)
            );
        }
    }

    #[test]
    fn many_ended_intervals_cause_a_sample_at_once() {
        let mut schedule = new_schedule(100 * MS);
        schedule.sampled(&Outcome::Taken(Taken { at_ns: 600 * MS, ..NO_GROWTH }));
        let ended = vec![ended_at(599 * MS, 1 << 30); SamplingPolicy::default().most_waiting + 1];
        let mut decide = |ended| schedule.decide(650 * MS, &Situation { ended, ..NOTHING });
        assert_eq!(decide(&ended[1..]), Decision::Wait(700 * MS));
        assert_eq!(decide(&ended[..]), sample(false, None));
    }

    // Requirement: RAM-72
    #[test]
    fn a_large_end_delays_a_sample_while_the_tree_grows() {
        let mut schedule = new_schedule(100 * MS);
        assert_eq!(schedule.decide(50 * MS, &NOTHING), sample(true, None), "there is no window yet");
        schedule.sampled(&Outcome::Taken(Taken { largest_before: 0, largest: 9, ..NO_GROWTH }));
        let (at_ns, largest) = (100 * MS, 100 << 20);
        schedule.sampled(&Outcome::Taken(Taken { at_ns, largest_before: 9, largest, ..NO_GROWTH }));
        let large_end = LargeEnd { bytes: 16 << 20, together_ns: 25 * MS / 2 };
        let sampled = Situation { sampled_ns: 100 * MS, largest_bytes: 100 << 20, ..NOTHING };
        let ended = [ended_at(124 * MS, 15 << 20), ended_at(100 * MS, 16 << 20)];
        let at_125 = sample(false, Some(large_end));
        assert_eq!(schedule.decide(125 * MS, &sampled), at_125);
        assert_eq!(
            schedule.decide(125 * MS, &Situation { ended: &ended, ..sampled }),
            at_125,
            "small, or long ago"
        );

        let ended = [ended_at(124 * MS, 16 << 20), ended_at(100 * MS, 16 << 20)];
        let until_ns = 124 * MS + 25 * MS / 2;
        let situation = Situation { ended: &ended, ..sampled };
        assert_eq!(schedule.decide(125 * MS, &situation), Decision::Wait(until_ns));
        assert_eq!(schedule.decide(until_ns - 1, &sampled), Decision::Wait(until_ns), "it stays delayed");
        assert_eq!(schedule.decide(until_ns, &situation), sample(false, Some(large_end)));

        // The sample itself finds one dead.
        schedule.sampled(&Outcome::PutOff { at_ns: until_ns, cost_ns: 0, large_end });
        assert_eq!(schedule.decide(until_ns, &situation), Decision::Wait(until_ns + 25 * MS / 2));
        assert_eq!(schedule.decide(700 * MS, &situation), sample(true, None), "no longer growing");
    }

    #[test]
    fn cost_of_a_sample_that_was_put_off_counts_with_the_next_one() {
        let next_ns = |put_off_cost_ns: u64| {
            let mut schedule = new_schedule(1000 * MS);
            let large_end = LargeEnd { bytes: 1, together_ns: 1 };
            schedule.sampled(&Outcome::PutOff { at_ns: 100 * MS, cost_ns: put_off_cost_ns, large_end });
            schedule.sampled(&Outcome::Taken(Taken { at_ns: 100 * MS, cost_ns: MS / 10, ..NO_GROWTH }));
            schedule.decide(100 * MS, &Situation { sampled_ns: 100 * MS, ..NOTHING })
        };
        assert_eq!(next_ns(0), Decision::Wait(125 * MS));
        assert_eq!(next_ns(MS), Decision::Wait(210 * MS), "at most 1% of a core");
    }

    /// Developers set fields from the environment, and 0 is what they try first.
    #[test]
    fn policy_of_zeros_does_not_panic() {
        let policy = serde_json::from_str(
            r#"{"notable_growth": 0, "notable_end": 0, "growing_ns": 0, "together_ns": 1,
                "unreported_rest_ns": 0, "share_of_unreported": 0}"#,
        );
        let mut schedule = Schedule::new(policy.unwrap(), 100 * MS, 0);
        let taken = Taken { at_ns: MS, cost_ns: 1, largest_before: 1 << 30, largest: 9 << 30, ..NO_GROWTH };
        schedule.sampled(&Outcome::Taken(taken));
        let situation = Situation { largest_bytes: 1 << 30, youngest_unreported_ns: Some(MS), ..NOTHING };
        assert_eq!(schedule.decide(MS, &situation), Decision::Wait(100 * MS), "only the grid is left");
        let large_end = LargeEnd { bytes: 1 << 30, together_ns: 1 };
        assert_eq!(schedule.decide(100 * MS, &situation), sample(true, Some(large_end)));
    }
}
