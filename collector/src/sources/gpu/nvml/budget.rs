//! Limits how much of its time the driver is kept busy. This file has no clock and calls no driver: it is given times and costs.
//!
//! NVML's calls hold locks that the command's own calls wait for. So all calls together take at most a share of the time.
//! Readings that can't wait, such as the list of devices, come at once. Their time is a debt, which later readings pay back by
//! waiting.

use super::policy;

/// The driver time that may be used, and how much of that was used.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The part of the time for which the driver may be kept busy, without what is kept for the end of the run. 1 or more: no limit.
    share: f64,
    /// Driver time that is saved, or overspent, nanoseconds, as of `at_ns`.
    balance_ns: f64,
    /// The time up to which everything is counted, CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// Driver time of readings that came at once and are not paid back yet, nanoseconds.
    debt_ns: f64,
    /// The part of the time that pays back the debt.
    repaid: f64,
}

impl Budget {
    /// Makes a budget of which nothing is used. `percent`: for how much of the time the driver may be kept busy. A part of
    /// that is kept for the end of the run. 100: there is no limit.
    pub(super) fn new(percent: u32) -> Self {
        let share = if percent >= 100 { 1.0 } else { f64::from(percent) / 100.0 - policy::SHARE_AT_END };
        Self { share, ..Self::default() }
    }

    /// Takes a planned reading off the balance. The reading was over at `now_ns` (CLOCK_MONOTONIC) and took `took_ns`. `usual_ns`: how long
    /// such a reading usually takes.
    pub(super) fn spend(&mut self, now_ns: u64, took_ns: u64, usual_ns: u64) {
        self.advance(now_ns);
        // A driver call that hung for long must not stop the readings for as long again.
        let lowest_ns = -(self.share * policy::LONGEST_PAUSE_NS as f64).max(usual_ns as f64);
        self.balance_ns = (self.balance_ns - took_ns as f64).max(lowest_ns);
    }

    /// Notes a debt: a reading that could not wait was over at `now_ns` (CLOCK_MONOTONIC), and took `took_ns`.
    pub(super) fn owe(&mut self, now_ns: u64, took_ns: u64) {
        self.advance(now_ns);
        self.debt_ns += took_ns as f64;
        // Half of the share stays for planned readings, also if the debt then lasts for longer.
        self.repaid = (self.debt_ns / policy::REPAID_WITHIN_NS as f64).min(self.share / 2.0);
    }

    /// When the next reading can be paid for, CLOCK_MONOTONIC nanoseconds. 0: at once.
    pub(super) fn ready_ns(&self) -> u64 {
        if self.share >= 1.0 || self.balance_ns >= 0.0 {
            return 0;
        }
        // `balance_ns` is below 0 by what is overspent. The part of the share that pays no debt earns that back.
        self.at_ns.saturating_add((-self.balance_ns / (self.share * self.free_part())) as u64)
    }

    /// The part of the share that does not pay back debt, 0.5 to 1.
    pub(super) fn free_part(&self) -> f64 {
        if self.debt_ns > 0.0 { 1.0 - self.repaid / self.share } else { 1.0 }
    }

    /// Adds what the time up to `now_ns` has earned, and pays back debt with a part of that.
    fn advance(&mut self, now_ns: u64) {
        if self.at_ns == 0 {
            self.at_ns = now_ns;
        }
        // `now_ns` can be before the last time: all readings of one visit to a device are dated as if each was its first.
        let passed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now_ns);
        let repaid_ns = (passed_ns * self.repaid).min(self.debt_ns);
        self.debt_ns -= repaid_ns;
        let highest_ns = self.share * policy::LONGEST_PAUSE_NS as f64;
        self.balance_ns = (self.balance_ns + passed_ns * self.share - repaid_ns).min(highest_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    /// Reads for 5 ms whenever that can be paid. Gives the share of the time from `from_ns` to `to_ns`, which is busy.
    fn busy(budget: &mut Budget, from_ns: u64, to_ns: u64) -> f64 {
        let (mut now_ns, mut spent_ns) = (from_ns, 0);
        while now_ns < to_ns {
            now_ns = now_ns.max(budget.ready_ns());
            if now_ns < to_ns {
                now_ns += 5 * MS;
                budget.spend(now_ns, 5 * MS, 5 * MS);
                spent_ns += 5 * MS;
            }
        }
        spent_ns as f64 / (to_ns - from_ns) as f64
    }

    // Requirement: GPU-29
    #[test]
    fn what_could_not_wait_is_paid_back_within_five_seconds() {
        let mut budget = Budget::new(25);
        budget.owe(S, 0);
        budget.owe(S + 400 * MS, 400 * MS);
        let after = busy(&mut budget, S + 400 * MS, 6 * S);
        let all = (after * 4.6 + 0.4) / 5.0;
        assert!((0.22..=0.25).contains(&all), "{all}");
        let later = busy(&mut budget, 7 * S, 20 * S);
        assert!((0.23..=0.26).contains(&later), "{later}");
    }

    #[test]
    fn time_that_was_not_used_is_not_saved_for_long() {
        let mut budget = Budget::new(25);
        budget.spend(S, 0, 0);
        assert!(busy(&mut budget, 100 * S, 101 * S) < 0.5);
    }

    #[test]
    fn a_call_that_hung_is_followed_by_a_short_pause() {
        let mut budget = Budget::new(25);
        budget.spend(S, 0, 0);
        budget.spend(31 * S, 30 * S, 5 * MS);
        assert!(budget.ready_ns() <= 32 * S);
    }

    /// As 16 devices of which each call takes a second.
    #[test]
    fn calls_that_always_take_long_keep_the_driver_busy_for_no_more_of_the_time() {
        let mut budget = Budget::new(25);
        let (mut now_ns, mut spent_ns) = (S, 0);
        while now_ns < 100 * S {
            now_ns = now_ns.max(budget.ready_ns()) + S;
            budget.spend(now_ns, S, S);
            spent_ns += S;
        }
        assert!((22 * S..=27 * S).contains(&spent_ns), "{spent_ns}");
    }

    #[test]
    fn without_a_limit_everything_is_read_at_once() {
        let mut budget = Budget::new(100);
        budget.owe(S, S);
        budget.spend(2 * S, S, S);
        assert_eq!(budget.ready_ns(), 0);
    }
}
