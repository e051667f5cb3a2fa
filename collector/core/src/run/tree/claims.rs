//! Which process waited for one that ended without a REAPED record. The reaper waited inside libc, by a raw system call, or for
//! an orphan (a subreaper, or the init of a pid namespace). The kernel added what the ended process used to the reaper's sums of
//! waited-for children. So a reaper is charged here: that usage is subtracted from its sums. A claim is what such a process used,
//! until it is decided which reaper is charged. The candidates, the most likely first:
//!
//! 1. The process's parent, if the parent still lived when the process was gone, or if no other process can have reaped it. Such
//!    a parent has waited, or it ignores SIGCHLD and the kernel reaped the process.
//! 2. A parent that had ended by then. All its children must be known, and the process must be one of those that fit best into
//!    the parent's sums. Such a parent is no candidate if the process's EXIT record names another parent, which adopted it as
//!    an orphan. A parent that was killed and writes REAPED records may have left the process as a zombie instead. Then the
//!    adopter's sums have more than is known, and the parent's own time is a lower bound.
//! 3. The adopter, or an uninstrumented ancestor that may be a subreaper: the nearest whose sums have enough CPU time.
//! 4. The init of the process's pid namespace.
//!
//! If a candidate has no EXIT record, its REAPED record has the sum of its own time and of what it waited for. Children that do
//! not fit into that sum beside its own CPU clock were reaped by the kernel. Then its clock is its own time, and the kernel's sum
//! of the run is unknown.

use super::cpu::OwnUsage;
use super::process::Claim;
use super::tolerance::Tolerance;
use super::{Parent, Process, ProcessId, Quality, Tree};
use crate::model::sorting::Sorting;

impl Tree {
    /// Charges the most likely reaper of an ended process that has no REAPED record: see the head of this file. A parent that may
    /// be the reaper keeps a claim, which [`Self::decide_claims`] decides when all children of the parent are known. If only the
    /// launcher or the kernel can have reaped the process, counts it instead. `own`: what it used itself.
    pub(super) fn charge_reaper(&mut self, process: &Process, own: &OwnUsage) {
        // A REAPED record has already added the process to its reaper's children. A live process is in no sums.
        if process.end.reaped.is_some() || process.is_alive() {
            return;
        }
        let adopted_by = self.adopted_by(process);
        let mut claim = self.claim_of(process, own, adopted_by);
        let maker = process.ancestry.parent.known();
        let has_outlived_maker = maker.is_some_and(|id| self.has_outlived(process, id));
        let is_orphan = has_outlived_maker || adopted_by.is_some();
        let has_orphan_reapers = !claim.orphan_reapers.is_empty();
        // Only the launcher can reap it, and has written no record of that.
        if !has_orphan_reapers && (has_outlived_maker || adopted_by == Some(Parent::Launcher)) {
            self.counts.unreaped_orphans += 1;
            return;
        }
        // The parent of an orphan is a candidate only if no other process is known that may have reaped it.
        let parent = maker.filter(|_| !is_orphan || !has_orphan_reapers);
        let Some(parent) = parent.and_then(|id| self.processes.get_mut(&id)) else {
            self.charge_other_or_count(&claim, process.has_joined());
            return;
        };
        claim.is_by_parent = parent.is_only_reaper_of(process, &claim);
        // If the parent has too many claims, one that its sums would have to decide goes to another reaper at once.
        if parent.claims.len() < Tolerance::MOST_CLAIMS {
            parent.claims.push(claim);
        } else if claim.is_by_parent {
            parent.charge(&claim);
        } else {
            self.charge_other_or_count(&claim, process.has_joined());
        }
    }

    /// Makes the claim of an ended process on its reaper. `adopted_by`: the parent that its EXIT record names, if another process
    /// had made it. `is_by_parent` is false until [`Self::charge_reaper`] decides it.
    fn claim_of(&self, process: &Process, own: &OwnUsage, adopted_by: Option<Parent>) -> Claim {
        let adopter = adopted_by.and_then(Parent::known);
        Claim {
            used: process.total_usage(&own.usage),
            least_cpu_us: process.least_total_us(&own.usage),
            quality: process.total_quality(own),
            lacks_teardown: process.lacks_teardown(),
            orphan_reapers: adopter.into_iter().chain(self.unreporting_reapers(process)).collect(),
            init: self.init_of(process),
            end_ns: process.lifetime.end_ns,
            was_killed: process.was_killed(),
            is_by_parent: false,
        }
    }

    /// Charges a possible reaper other than the parent. If no such process can be charged, counts the child. It counts as reaped by the
    /// kernel if candidates are still in the tree, else as an orphan that the launcher had not reaped yet. `has_joined`: the child is
    /// no descendant of the command, and is counted where it is finalized.
    fn charge_other_or_count(&mut self, claim: &Claim, has_joined: bool) {
        let is_any_left = claim.orphan_reapers.iter().any(|id| self.processes.contains_key(id));
        if self.charge_orphan_reaper(claim) || has_joined {
            return;
        }
        if is_any_left {
            self.counts.autoreaped += 1;
        } else {
            self.counts.unreaped_orphans += 1;
        }
    }

    /// Gives the claim to the nearest of `claim.orphan_reapers` whose sums can contain the process, as the parent did not wait for
    /// it. That reaper decides its claims when it is finalized; if it has too many, it is charged at once. If the reaper is the init of
    /// the process's pid namespace, with which the kernel killed the process, counts it instead. Returns whether there is such a
    /// reaper.
    fn charge_orphan_reaper(&mut self, claim: &Claim) -> bool {
        let can_have_reaped =
            |id: &&ProcessId| self.processes.get(id).is_some_and(|p| p.can_include_child(&claim.used));
        let Some(other) = claim.orphan_reapers.iter().find(can_have_reaped).copied() else { return false };
        // The kernel itself reaps the processes that it kills with an init, so they are in no sums.
        let init = self.processes.get(&other).filter(|_| claim.init == Some(other));
        if init.is_some_and(|init| self.was_killed_with_init(init, claim)) {
            self.count_killed_with_init(claim);
        } else if let Some(other) = self.processes.get_mut(&other) {
            if other.claims.len() < Tolerance::MOST_CLAIMS {
                other.claims.push(Claim { is_by_parent: false, ..claim.clone() });
            } else {
                other.charge(claim);
            }
        }
        true
    }

    /// Notes that the process's adopter may have reaped it, so that the adopter's sums may have more than its known children used.
    /// The parent was charged, but may have left the process as a zombie. The nearest of `claim.orphan_reapers` that is still in
    /// the tree is taken for the adopter.
    fn mark_possible_adopter(&mut self, claim: &Claim) {
        let adopter = claim.orphan_reapers.iter().find(|id| self.processes.contains_key(id));
        if let Some(adopter) = adopter.and_then(|id| self.processes.get_mut(id)) {
            adopter.cpu.has_inexact_children = true;
        }
    }

    /// Counts a process that the kernel killed and reaped with its pid namespace's init.
    fn count_killed_with_init(&mut self, claim: &Claim) {
        self.counts.autoreaped += 1;
        self.counts.killed_with_namespace += u64::from(claim.quality == Quality::Unknown);
    }

    /// Whether the kernel killed and reaped a process because `init`, the init of its pid namespace, ended.
    fn was_killed_with_init(&self, init: &Process, claim: &Claim) -> bool {
        let is_init_alive = init.is_alive() && init.end.kernel_exit.is_none();
        // When the kernel began to kill, at the earliest. The init writes EXIT before that. Without EXIT, it lived at least until the last
        // process there ended that was not killed. `None`: unknown.
        let since_ns = match init.end.exit {
            Some(_) => init.lifetime.end_ns,
            None => self.forks.get(&init.ids.key.pid_ns).map(|forks| forks.last_unkilled_end_ns),
        };
        // If the init has no EXIT, its REAPED record shows whether it waited for the process.
        let has_waited =
            init.end.exit.is_none() && init.end.reaped.is_some() && init.can_include_child(&claim.used);
        // `None` is less than every `Some`: an unknown time counts as before all.
        let has_ended_since = claim.end_ns > since_ns;
        !is_init_alive && has_ended_since && claim.was_killed && !has_waited
    }

    /// Decides which claims on a process count, when the process is finalized: all claims are known by then, and its sums are
    /// final. The process is charged with the claims that fit best into its sums. The others go to the next possible reaper.
    pub(super) fn decide_claims(&mut self, process: &mut Process) {
        let (by_parent, mut claims): (Vec<_>, Vec<_>) =
            std::mem::take(&mut process.claims).into_iter().partition(|claim| claim.is_by_parent);
        self.decide_certain_claims(process, &by_parent);
        // If no record has the process's sums, its children are in its parent's sums, too. So the parent takes the claims, as many as
        // it may have.
        let parent = process.ancestry.parent.known().filter(|_| process.children_us().is_none());
        if let Some(parent) = parent.and_then(|parent| self.processes.get_mut(&parent)) {
            let places_left = Tolerance::MOST_CLAIMS.saturating_sub(parent.claims.len());
            parent.claims.extend(claims.drain(..places_left.min(claims.len())));
        }
        let used_us: Vec<u64> = claims.iter().map(|claim| claim.used.cpu_us()).collect();
        let is_its = best_fit(&used_us, process.room_for_children_us());
        for (claim, is_its) in claims.iter().zip(is_its) {
            if is_its {
                process.charge(claim);
                if process.may_have_left_zombies() {
                    process.cpu.has_possible_zombies = true;
                    self.mark_possible_adopter(claim);
                }
            } else {
                self.decide_unfit_claim(process, claim);
            }
        }
    }

    /// Decides a claim that is not among those that fit best into the process's sums. If the process is the init of the child's
    /// namespace, with which the kernel killed the child, counts the child. Else charges another possible reaper. If there is none,
    /// charges the process itself, or counts the child as reaped by the kernel.
    fn decide_unfit_claim(&mut self, process: &mut Process, claim: &Claim) {
        if claim.init == Some(process.ids.id) && self.was_killed_with_init(process, claim) {
            self.count_killed_with_init(claim);
        } else if !self.charge_orphan_reaper(claim) {
            // No other process can have waited for the child. If only REAPED bounds what the process waited for, the kernel reaped
            // what does not fit. With EXIT, `has_charged_autoreaped` decides that from all that was charged.
            let is_waited_for = process.room_beside_clock_us().is_none();
            self.charge_or_autoreap(process, claim, is_waited_for);
        }
    }

    /// Decides the `claims` of children that only the process or the kernel can have reaped. Without an EXIT record, its REAPED
    /// record bounds what it waited for. Children that do not fit in there beside its own CPU clock were reaped by the kernel,
    /// since SIGCHLD was ignored.
    fn decide_certain_claims(&mut self, process: &mut Process, claims: &[Claim]) {
        let room_us = process.room_beside_clock_us().unwrap_or(u64::MAX);
        let all_us = claims.iter().fold(0, |sum: u64, claim| sum.saturating_add(claim.used.cpu_us()));
        let is_waited_for = if all_us <= room_us.saturating_add(Tolerance::CLOCK_AHEAD_US) {
            vec![true; claims.len()]
        } else {
            // A child may have ignored SIGCHLD itself. Then this process's sum lacks what the child's own children used.
            best_fit(&claims.iter().map(|claim| claim.least_cpu_us).collect::<Vec<_>>(), room_us)
        };
        for (claim, is_waited_for) in claims.iter().zip(is_waited_for) {
            self.charge_or_autoreap(process, claim, is_waited_for);
        }
    }

    /// Charges the process with a child if it waited for the child (`is_waited_for`). Otherwise notes that the kernel reaped the child.
    fn charge_or_autoreap(&mut self, process: &mut Process, claim: &Claim, is_waited_for: bool) {
        if is_waited_for {
            process.charge(claim);
        } else {
            process.cpu.has_autoreaped_children = true;
            self.counts.autoreaped += 1;
        }
    }
}

impl Process {
    /// Whether no process but this one, the parent of `child`, can have reaped the child (the kernel may have). One of the
    /// three conditions below is enough.
    fn is_only_reaper_of(&self, child: &Process, claim: &Claim) -> bool {
        // No other candidate is known. An init that is the parent need not have waited: the kernel itself reaps the processes
        // that it kills with the init.
        let is_only_candidate =
            claim.orphan_reapers.iter().all(|other| *other == self.ids.id && claim.init != Some(*other));
        // The parent still lived when the child left /proc, so the child was never an orphan.
        let gone_before = |end_ns| child.lifetime.gone_ns.is_some_and(|gone_ns| gone_ns < end_ns);
        let has_outlived_child = self.lifetime.end_ns.is_none_or(gone_before);
        // The parent ignored SIGCHLD: the kernel reaps such children as they end, and leaves no zombie to be adopted.
        let leaves_no_zombies = self.ignores_children();
        is_only_candidate || has_outlived_child || leaves_no_zombies
    }

    /// Charges the process with a child: notes that its sums contain what the child used.
    fn charge(&mut self, child: &Claim) {
        self.cpu.unreaped_children = self.cpu.unreaped_children.plus(&child.used);
        self.cpu.unreaped_count += 1;
        self.cpu.has_inexact_children |= child.quality != Quality::Exact;
        self.cpu.children_lack_teardown |= child.lacks_teardown;
    }
}

/// Up to this number of sizes, [`best_fit`] tries all sets of them: 2^12, 4096, at most.
const FEW_SIZES: usize = 12;

/// Chooses those of `sizes` whose sum is the largest that is not above `room`. Returns for each size whether it is chosen. Of
/// more than [`FEW_SIZES`], takes the largest first, whose sum need not be the largest possible.
fn best_fit(sizes: &[u64], room: u64) -> Vec<bool> {
    if sizes.len() <= FEW_SIZES { best_of_all_sets(sizes, room) } else { largest_first(sizes, room) }
}

/// Tries all sets of these sizes, and chooses the one with the largest sum that is not above `room`. A set is a number: its bit
/// `n` says whether `sizes[n]` is in the set.
fn best_of_all_sets(sizes: &[u64], room: u64) -> Vec<bool> {
    let is_in = |set: u32, at: usize| set >> at & 1 == 1;
    let sum_of = |set: u32| {
        let members = sizes.iter().enumerate().filter(|(at, _)| is_in(set, *at));
        members.fold(0, |sum: u64, (_, size)| sum.saturating_add(*size))
    };
    let fitting = (0..1 << sizes.len()).filter(|set| sum_of(*set) <= room);
    let best = fitting.max_by_key(|set| sum_of(*set)).unwrap_or(0);
    (0..sizes.len()).map(|at| is_in(best, at)).collect()
}

/// Chooses each size that still fits beside those chosen before, the largest first.
fn largest_first(sizes: &[u64], room: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.order_by_key(|at| std::cmp::Reverse(sizes[*at]));
    let mut is_chosen = vec![false; sizes.len()];
    let mut room_left = room;
    for at in order {
        if sizes[at] <= room_left {
            room_left -= sizes[at];
            is_chosen[at] = true;
        }
    }
    is_chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_fit_best_are_taken() {
        assert_eq!(best_fit(&[], 9), [] as [bool; 0]);
        assert_eq!(best_fit(&[60, 40], 41), [false, true]);
        assert_eq!(best_fit(&[60, 40, 30], 71), [false, true, true]);
        assert_eq!(best_fit(&[60, 40], 30), [false, false]);
        assert_eq!(best_fit(&[u64::MAX; 2], u64::MAX).iter().filter(|taken| **taken).count(), 2);
        let many: Vec<u64> = (1..=20).collect();
        let taken = best_fit(&many, 39);
        assert_eq!((0..20).filter(|at| taken[*at]).collect::<Vec<_>>(), [18, 19]);
    }
}
