//! CPU time for expensive reads: a share of the time that passes. A limited amount can be saved up, and a limited amount can be owed.

use crate::model::policy::BudgetPolicy;
use crate::sys::clock;

/// The CPU time that may be spent now, by the rules of a [`BudgetPolicy`].
#[derive(Debug)]
pub struct Budget {
    policy: BudgetPolicy,
    /// CPU time that is left, nanoseconds. Below 0: it is owed.
    left_ns: i64,
    /// When it was refilled last, CLOCK_MONOTONIC nanoseconds.
    refilled_ns: u64,
}

impl Budget {
    /// A full budget at `start_ns`, CLOCK_MONOTONIC.
    pub fn new(policy: BudgetPolicy, start_ns: u64) -> Self {
        Self { policy, left_ns: policy.saved_ns, refilled_ns: start_ns }
    }

    /// The rules of this budget.
    pub fn policy(&self) -> BudgetPolicy {
        self.policy
    }

    /// Adds what was earned up to now, CLOCK_MONOTONIC nanoseconds.
    pub fn refill(&mut self, now_ns: u64) {
        let earned = now_ns.saturating_sub(self.refilled_ns).saturating_mul(self.policy.percent) / 100;
        self.refilled_ns = now_ns;
        self.left_ns = self.left_ns.saturating_add_unsigned(earned).min(self.policy.saved_ns);
    }

    /// Does some work, and takes the CPU time that the work took in this thread off the budget.
    pub fn spend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = clock::thread_cpu_ns();
        let result = work();
        let cost = clock::thread_cpu_ns().saturating_sub(start);
        self.left_ns = self.left_ns.saturating_sub_unsigned(cost);
        result
    }

    /// The credit, nanoseconds, by which [`Self::has_credit`] lets a quarter of the time beyond this reserve be spent.
    /// The credit is negative, since the reserve and the other three quarters must stay. `None`: nothing is left beyond it.
    pub fn credit_of_quarter(&self, reserved_ns: i64) -> Option<i64> {
        let beyond_ns = self.left_ns.saturating_sub(reserved_ns);
        (beyond_ns > 0).then(|| (beyond_ns / 4).saturating_sub(self.left_ns))
    }

    /// Whether anything is left.
    pub fn is_left(&self) -> bool {
        self.has_credit(0)
    }

    /// Whether something that costs `cost_ns` nanoseconds may be begun at all. What costs more than the largest credit may not, as
    /// the budget would owe that for too long.
    pub fn permits(&self, cost_ns: u64) -> bool {
        i64::try_from(cost_ns).is_ok_and(|cost_ns| cost_ns <= self.policy.credit_ns)
    }

    /// Whether more may be spent if up to `credit_ns` nanoseconds may be owed. With a negative credit: whether more than its
    /// amount is left.
    pub fn has_credit(&self, credit_ns: i64) -> bool {
        self.left_ns > credit_ns.saturating_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    // Requirement: RAM-10
    #[test]
    fn budget_is_one_percent_of_time_saved_up_to_a_limit() {
        let policy = BudgetPolicy::default();
        let mut budget = Budget { policy, left_ns: -5_000_000, refilled_ns: 10 * S };
        budget.refill(11 * S);
        assert_eq!(budget.left_ns, 5_000_000);
        budget.refill(10 * S);
        assert_eq!(budget.left_ns, 5_000_000, "time never goes back");
        budget.refill(1000 * S);
        assert_eq!(budget.left_ns, policy.saved_ns);
        let before = clock::thread_cpu_ns();
        budget.spend(|| while clock::thread_cpu_ns() < before + 30_000_000 {});
        assert!(!budget.is_left() && budget.has_credit(policy.credit_ns));
    }
}
