//! What a process used itself: its CPU time, and the other sums of getrusage, without its children.
//!
//! wait4 returns the usage of a child *and of what the child waited for*. The sources of a process's own usage, best first:
//!
//! | known | own CPU time | quality |
//! |---|---|---|
//! | REAPED and EXIT | REAPED - RUSAGE_CHILDREN in EXIT | exact |
//! | REAPED, and all its children exactly | REAPED - what it reaped itself - its children that no record says were reaped | exact |
//! | EXIT | RUSAGE_SELF in it | exact |
//! | its zombie (launcher, connector, pidfd or sample found it) | its CPU clock, read then | exact |
//! | the kernel's account of its exit | its CPU clock, if read before it was reaped; else the account's | exact; else sampled |
//! | samples | its CPU clock at the last one | sampled |
//!
//! - If a child's figure is not exact, the reaper's sum without the children also includes what that figure lacks. Then the
//!   reaper's own time is that of its CPU clock.
//! - A process's sums can have more CPU time of its children together than is known of each. The difference is unattributed
//!   ([`OwnUsage::unattributed_us`]), and is in the run's total.
//! - EXIT, the account and the clock lack the time in which the kernel tears the memory down. If a part of a difference lacks it,
//!   the process's own exact clock is closer.
//! - If a process is from before the run (`before`), its REAPED also has what its children used before. So only its EXIT and its
//!   clock count.
//! - In a pid namespace, init reaps orphans. If init ends first, the kernel reaps: zombies go into init's sums, and are
//!   subtracted. Processes that the kernel then kills go into no sum, which a warning says.

use gpu_track_abi::record::Usage;
use serde::{Deserialize, Serialize};

use super::process::Process;
use super::records::ExitRecord;
use super::tolerance::Tolerance;
use crate::model::quality::Quality;

/// CPU time and the other sums of one process without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnUsage {
    /// The figures; `max_rss_kib` has no meaning here.
    pub usage: Usage,
    /// How they are known.
    pub quality: Quality,
    /// CPU time that the process's sums have of its children, beyond what is known of each child, microseconds.
    pub unattributed_us: u64,
}

impl OwnUsage {
    /// The CPU time, user and system, microseconds.
    pub(crate) fn cpu_us(&self) -> u64 {
        self.usage.cpu_us()
    }
}

impl Process {
    /// What it used itself, and how that is known: see the table at the head of this file. `tick_us`: microseconds of a clock tick.
    pub(super) fn own_usage(&self, tick_us: u64) -> OwnUsage {
        // EXIT has a sum over the children that it waited for. What this has beyond the known children is unattributed.
        let own = |usage, quality| {
            let of_children_us = self.end.exit.map_or(0, |exit| exit.children_usage.cpu_us());
            let unattributed_us = of_children_us.saturating_sub(self.known_children().cpu_us());
            OwnUsage { usage, quality, unattributed_us }
        };
        match (&self.end.reaped.filter(|_| self.before.is_none()), &self.end.exit) {
            (Some(reaped), Some(exit)) => {
                let rest = reaped.usage.minus(&self.waited_for(exit));
                // EXIT comes before the end, so REAPED has more. A REAPED that has much less is about another process of the
                // same pid.
                let is_of_another = rest.cpu_us() < exit.own_usage.cpu_us() / 2;
                own(if is_of_another { exit.own_usage } else { rest }, Quality::Exact)
            }
            (Some(reaped), None) => self.own_usage_of_sum(&reaped.usage),
            (None, Some(exit)) => own(exit.own_usage, Quality::Exact),
            (None, None) => match self.clock_ns() {
                Some(cpu_ns) => own(self.observed_usage(cpu_ns, tick_us), self.clock_quality()),
                None => own(Usage::default(), Quality::Unknown),
            },
        }
    }

    /// What it used itself, from the `sum` of that and what it waited for (REAPED without EXIT). What is left of the sum
    /// without its children is its own, except in three cases:
    ///
    /// - Clock and children are more than the sum: the kernel reaped children. Its clock is its own time.
    /// - The figures of its children are not exact, or it is not certain which are in the sum. Then what is left includes what
    ///   those figures lack, too. Its clock is its own time, and the remainder is unattributed.
    /// - A child in the sum may be a zombie that it left: what is left is a lower bound.
    fn own_usage_of_sum(&self, sum: &Usage) -> OwnUsage {
        let rest = sum.minus(&self.known_children());
        let clock_us = self.clock_us();
        if self.has_more_children_than_sum() {
            let usage = rest.with_cpu_us(clock_us);
            return OwnUsage { usage, quality: self.clock_quality(), unattributed_us: 0 };
        }
        if self.may_rest_be_of_children() {
            let usage = rest.with_cpu_us(clock_us.min(rest.cpu_us()));
            let unattributed_us = rest.cpu_us() - usage.cpu_us();
            return OwnUsage { usage, quality: self.clock_quality(), unattributed_us };
        }
        let quality = if self.cpu.has_possible_zombies { Quality::Sampled } else { Quality::Exact };
        OwnUsage { usage: rest, quality, unattributed_us: 0 }
    }

    /// Whether what is left of its sum, without what its children are known to have used, may include CPU time of these children.
    fn may_rest_be_of_children(&self) -> bool {
        // If the kernel reaped some of its children, which ones they are is a guess (`best_fit`).
        let is_guess = self.cpu.has_autoreaped_children && self.cpu.unreaped_count > 0;
        // The teardown of a child can take longer than all that a shell does itself. So a whole clock is closer than what is left.
        let is_whole =
            self.cpu.is_clock_final || self.end.account.is_some_and(|account| account.is_cpu_whole);
        let is_clock_closer = self.cpu.children_lack_teardown && is_whole;
        self.cpu.has_inexact_children || is_clock_closer || is_guess
    }

    /// The CPU time that its REAPED record leaves for more children, besides its own clock and its known children,
    /// microseconds. `None`: it has no such record, or its EXIT record says what it waited for.
    pub(super) fn room_beside_clock_us(&self) -> Option<u64> {
        let reaped = self.end.reaped.filter(|_| self.end.exit.is_none())?;
        let room_us = reaped.usage.cpu_us().saturating_add(Tolerance::CHILD_ROUNDING_US);
        Some(room_us.saturating_sub(self.clock_us()).saturating_sub(self.known_children().cpu_us()))
    }

    /// Whether its clock and its children have more CPU time than its REAPED record: then the kernel reaped children by itself.
    /// False if there is an EXIT record, which says what the process waited for.
    fn has_more_children_than_sum(&self) -> bool {
        if self.end.exit.is_some() || self.cpu.unreaped_count == 0 {
            return false;
        }
        let Some(reaped) = self.end.reaped else { return false };
        let known_us = self.clock_us().saturating_add(self.known_children().cpu_us());
        known_us > reaped.usage.cpu_us().saturating_add(Tolerance::CLOCK_AHEAD_US)
    }

    /// Its CPU clock when it was last read, microseconds; 0: it never was.
    fn clock_us(&self) -> u64 {
        self.clock_ns().unwrap_or(0) / 1000
    }

    /// Its CPU clock when it was last read, nanoseconds: by a sample, of its zombie, or for the kernel's account. `None`: it never
    /// was.
    fn clock_ns(&self) -> Option<u64> {
        // A clock never goes back, so the largest reading is the last.
        self.observed.cpu_ns.max(self.end.account.and_then(|account| account.cpu_ns))
    }

    /// The quality of its CPU time by its clock alone. The kernel's account of its exit comes before the teardown of its
    /// memory, which takes time in proportion to the memory's size. If that time is within [`Tolerance::CLOCK_AHEAD_US`] or 1% of
    /// the CPU time, the account is exact.
    fn clock_quality(&self) -> Quality {
        const MIB: u64 = 1 << 20;
        let is_account_exact = self.end.account.is_some_and(|account| {
            // The account of a very small process has no peak, and that of some kernels never has.
            let held_bytes = account.peak_rss_bytes.unwrap_or(self.observed.peak_rss_bytes);
            let teardown_us = held_bytes.saturating_mul(Tolerance::TEARDOWN_US_PER_MIB) / MIB;
            let cpu_us = account.cpu_ns.unwrap_or(0) / 1000;
            account.is_cpu_whole && teardown_us <= Tolerance::CLOCK_AHEAD_US.max(cpu_us / 100)
        });
        match self.clock_ns() {
            Some(_) if self.cpu.is_clock_final || is_account_exact => Quality::Exact,
            Some(_) => Quality::Sampled,
            None => Quality::Unknown,
        }
    }

    /// What its REAPED record contains of its children: what its EXIT record, `exit`, says. But after the EXIT of a pid namespace's
    /// init, the kernel reaps the zombies that are left there. So the known children of an init may have used more than that.
    fn waited_for(&self, exit: &ExitRecord) -> Usage {
        let known = self.known_children();
        if self.ids.key.pid == 1 && known.cpu_us() > exit.children_usage.cpu_us() {
            known
        } else {
            exit.children_usage
        }
    }

    /// Adds up the usage of its children, as far as it is known.
    fn known_children(&self) -> Usage {
        self.cpu.reaped_children.plus(&self.cpu.unreaped_children)
    }

    /// By how much it raised its reaper's RUSAGE_CHILDREN, as far as is known. That is its own usage (`own`) and that of the children
    /// that it waited for.
    pub(super) fn total_usage(&self, own: &Usage) -> Usage {
        own.plus(&self.end.exit.map_or_else(|| self.known_children(), |exit| exit.children_usage))
    }

    /// The least that the CPU time in `total_usage` can be, microseconds: without children that no record says were reaped.
    pub(super) fn least_total_us(&self, own: &Usage) -> u64 {
        own.plus(&self.end.exit.map_or(self.cpu.reaped_children, |exit| exit.children_usage)).cpu_us()
    }

    /// How `total_usage` is known.
    pub(super) fn total_quality(&self, own: &OwnUsage) -> Quality {
        match own.quality {
            Quality::Exact if self.end.exit.is_none() && self.cpu.has_inexact_children => Quality::Sampled,
            quality => quality,
        }
    }

    /// Whether `total_usage` lacks the kernel's teardown of this process or of a child, if it has no REAPED record. Only REAPED
    /// and the clock of a zombie include that.
    pub(super) fn lacks_teardown(&self) -> bool {
        self.end.exit.is_some() || !self.cpu.is_clock_final || self.cpu.children_lack_teardown
    }

    /// Whether its sums have room for one more child that used this, by what is known of all its children.
    pub(super) fn can_include_child(&self, used: &Usage) -> bool {
        used.cpu_us() <= self.room_for_children_us()
    }

    /// How much more CPU time of children its sums have than its known children used, microseconds. As long as no record has its
    /// sums, nothing bounds what it waited for, and the room is nearly `u64::MAX`.
    pub(super) fn room_for_children_us(&self) -> u64 {
        let all_us = self.children_us().unwrap_or(u64::MAX).saturating_add(Tolerance::CHILD_ROUNDING_US);
        // Children that no other process can have reaped come first.
        let certain_claims = self.claims.iter().filter(|claim| claim.is_by_parent);
        let claimed_us = certain_claims.fold(0, |sum: u64, claim| sum.saturating_add(claim.least_cpu_us));
        all_us.saturating_sub(self.known_children().cpu_us()).saturating_sub(claimed_us)
    }

    /// Whether a child that no record says was reaped may be a zombie that it left when it was killed. That can be if it has
    /// reported its waits for other children. The time in its sum that fits the child may then be its own, used after its clock
    /// was read.
    pub(super) fn may_have_left_zombies(&self) -> bool {
        self.end.exit.is_none()
            && self.is_instrumented()
            && !self.cpu.is_clock_final
            && self.cpu.reaped_children != Usage::default()
    }

    /// The most CPU time of children that its sums can have, microseconds. `None`: it has no sums yet.
    pub(super) fn children_us(&self) -> Option<u64> {
        match (&self.end.exit, &self.end.reaped) {
            (Some(exit), _) => Some(exit.children_usage.cpu_us()),
            // Without EXIT the reaper's sum covers the process and its children. The last clock reading is its own part.
            (None, Some(reaped)) => Some(reaped.usage.cpu_us().saturating_sub(self.clock_us())),
            (None, None) => None,
        }
    }

    /// Makes a usage from the clock (`cpu_ns`) and the other figures of the last sample. CPU time is divided into user and system time
    /// in the proportion of the kernel's account, if the process had one thread. Otherwise it is divided in that of the sampled ticks.
    /// `tick_us`: microseconds of a clock tick.
    fn observed_usage(&self, cpu_ns: u64, tick_us: u64) -> Usage {
        let observed = &self.observed;
        let sampled_us = (observed.counts.user_ticks * tick_us, observed.counts.system_ticks * tick_us);
        let thread = self.end.account.and_then(|account| account.thread);
        let accounted_us = thread.map(|thread| (thread.user_us, thread.system_us));
        let (split_user_us, split_system_us) =
            accounted_us.filter(|split| *split != (0, 0)).unwrap_or(sampled_us);
        let cpu_us = cpu_ns / 1000;
        let user_us = match split_user_us + split_system_us {
            0 => cpu_us,
            both_us => (u128::from(cpu_us) * u128::from(split_user_us) / u128::from(both_us)) as u64,
        };
        // /proc/PID/io, from which `blocks` are, includes waited-for children.
        let (input, output) = observed.blocks.unwrap_or((0, 0));
        Usage {
            user_us,
            system_us: cpu_us - user_us,
            minor_faults: observed.counts.minor_faults,
            major_faults: observed.counts.major_faults,
            input_blocks: input.saturating_sub(self.cpu.reaped_children.input_blocks),
            output_blocks: output.saturating_sub(self.cpu.reaped_children.output_blocks),
            ..Usage::default()
        }
    }

    /// Whether the kernel reaped children that count as this process's (`unreaped_children`): it ignores SIGCHLD, or its sums have
    /// less than those children used.
    pub(super) fn has_charged_autoreaped(&self) -> bool {
        let Some(exit) = &self.end.exit else { return self.has_more_children_than_sum() };
        let most_us = exit.children_usage.cpu_us().saturating_add(Tolerance::CHILDREN_TEARDOWN_US);
        let are_too_many = self.known_children().cpu_us() > most_us;
        self.cpu.unreaped_count > 0 && (self.ignores_children() || are_too_many)
    }
}
