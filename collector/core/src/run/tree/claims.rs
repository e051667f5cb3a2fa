//! Which process waited for one that ended without a REAPED record: it waited inside libc, by a raw system call, or for an
//! orphan (a subreaper, its pid namespace's init). What the ended one used is subtracted from that reaper's sums. The most
//! likely one, best first:
//!
//! 1. Its parent, if that lived when the process was gone, or if no other process can have reaped it. As long as the parent
//!    lives, it waited, or it ignores SIGCHLD and the kernel reaped the child.
//! 2. A parent that had ended by then, if the process is one of those that fit best into its sums. They must all be known. Not
//!    if the EXIT record names another parent: that adopted an orphan. If the parent was killed and reports its waits, it may
//!    have left a zombie instead: then the adopter's sums have more than is known, and the parent's own time is a lower bound.
//! 3. That adopter, or the nearest uninstrumented ancestor that may be a subreaper, one with enough CPU time first.
//! 4. Its pid namespace's init.
//!
//! Of a process without an EXIT record, REAPED has its own time and what it waited for. Children that do not fit into that
//! beside its clock were reaped by the kernel. Then its clock is its own time, and the kernel's sum of the run is unknown.

use super::cpu::OwnUsage;
use super::process::Claim;
use super::tolerance::Tolerance;
use super::{Parent, Process, ProcessId, Quality, Tree};

impl Tree {
    /// Subtracts the usage of a process without a REAPED record from its most likely reaper's: see the head of this file. The
    /// kernel may also have reaped it by itself. A parent keeps it as a claim, which is settled when all of its children are
    /// known.
    pub(super) fn charge_reaper(&mut self, process: &Process, own: &OwnUsage) {
        // A REAPED record has added it to its reaper's children. A live process is in no sums.
        if process.end.reaped.is_some() || process.is_alive() {
            return;
        }
        let adopted_by = self.adopted_by(process);
        let mut claim = self.claim_of(process, own, adopted_by);
        let maker = process.ancestry.parent.known();
        let has_outlived = maker.is_some_and(|id| self.has_outlived(process, id));
        let is_orphan = has_outlived || adopted_by.is_some();
        let has_others = !claim.others.is_empty();
        // Only the launcher can have reaped it, and has written no record of that.
        if !has_others && (has_outlived || adopted_by == Some(Parent::Launcher)) {
            self.counts.unreaped_orphans += 1;
            return;
        }
        // The maker of an orphan did not wait for it, unless nothing else is known that can have.
        let parent = maker.filter(|_| !is_orphan || !has_others);
        let Some(parent) = parent.and_then(|id| self.processes.get_mut(&id)) else {
            self.charge_another_or_none(&claim, process.has_joined());
            return;
        };
        claim.is_by_parent = parent.is_only_reaper_of(process, &claim);
        // With too many claims, those that its sums would have to decide go to others at once.
        if parent.claims.len() < Tolerance::MOST_CLAIMS {
            parent.claims.push(claim);
        } else if claim.is_by_parent {
            parent.charge(&claim);
        } else {
            self.charge_another_or_none(&claim, process.has_joined());
        }
    }

    /// Makes the claim of an ended process on its reaper. `adopted_by`: the parent that it had at its EXIT record, if
    /// another process had made it. Whether only its parent can have reaped it is to be decided yet.
    fn claim_of(&self, process: &Process, own: &OwnUsage, adopted_by: Option<Parent>) -> Claim {
        let adopter = adopted_by.and_then(Parent::known);
        Claim {
            used: process.total_usage(&own.usage),
            least_us: process.least_total_us(&own.usage),
            quality: process.total_quality(own),
            lacks_teardown: process.lacks_teardown(),
            others: adopter.into_iter().chain(self.unreporting_reapers(process)).collect(),
            init: self.init_of(process),
            end_ns: process.lifetime.end_ns,
            was_killed: process.was_killed(),
            is_by_parent: false,
        }
    }

    /// Charges another possible reaper, or counts why there is none. Where none of those that are left can have waited for
    /// it, the kernel reaped it. Where none is left, its parent was finalized before, and the launcher has not reaped it.
    /// Processes that joined are counted where they are finalized.
    fn charge_another_or_none(&mut self, claim: &Claim, has_joined: bool) {
        let is_any_left = claim.others.iter().any(|id| self.processes.contains_key(id));
        if self.charge_another(claim) || has_joined {
            return;
        }
        if is_any_left {
            self.counts.autoreaped += 1;
        } else {
            self.counts.unreaped_orphans += 1;
        }
    }

    /// Charges the nearest other reaper whose sums can have it: the parent did not wait for it. Returns whether there is one.
    #[must_use]
    fn charge_another(&mut self, claim: &Claim) -> bool {
        let can = |id: &&ProcessId| self.processes.get(id).is_some_and(|p| p.can_include_child(&claim.used));
        let Some(other) = claim.others.iter().find(can).copied() else { return false };
        // What the kernel kills with an init, it reaps itself: that is in no sums.
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

    /// Notes that an adopter's sums may have more than what is known of its children: the parent may have left the process
    /// as a zombie.
    fn mark_possible_adopter(&mut self, claim: &Claim) {
        let adopter = claim.others.iter().find(|id| self.processes.contains_key(id));
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
        let is_alive = init.is_alive() && init.end.kernel_exit.is_none();
        // The init writes EXIT before the kernel kills the others. Without EXIT, it lived at least until the last
        // process there ended that was not killed.
        let since_ns = match init.end.exit {
            Some(_) => init.lifetime.end_ns,
            None => self.forks.get(&init.ids.key.pid_ns).map(|forks| forks.last_end_ns),
        };
        // Without EXIT, REAPED of the init shows whether the init waited for it.
        let has_waited =
            init.end.exit.is_none() && init.end.reaped.is_some() && init.can_include_child(&claim.used);
        !is_alive && claim.end_ns > since_ns && claim.was_killed && !has_waited
    }

    /// Decides which claims on a process count, when it is finalized. All are known, and its sums are final: those that fit into
    /// them best are its children's. The others go to the next possible reaper.
    pub(super) fn settle_claims(&mut self, process: &mut Process) {
        let (by_parent, mut claims): (Vec<_>, Vec<_>) =
            std::mem::take(&mut process.claims).into_iter().partition(|claim| claim.is_by_parent);
        self.settle_own(process, &by_parent);
        // Without sums of its own, those of its parent tell, as far as that has room for claims.
        if !process.has_sums()
            && let Some(parent) = process.ancestry.parent.known()
            && let Some(parent) = self.processes.get_mut(&parent)
        {
            let room = Tolerance::MOST_CLAIMS.saturating_sub(parent.claims.len());
            parent.claims.extend(claims.drain(..room.min(claims.len())));
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
                self.settle_unfit(process, claim);
            }
        }
    }

    /// Settles a claim that is not among those that fit best into the process's sums.
    fn settle_unfit(&mut self, process: &mut Process, claim: &Claim) {
        if claim.init == Some(process.ids.id) && self.was_killed_with_init(process, claim) {
            self.count_killed_with_init(claim);
        } else if !self.charge_another(claim) {
            // Nothing else can have waited for it. REAPED alone bounds what the process waited for, so the kernel
            // reaped what does not fit. With EXIT, `has_charged_autoreaped` decides that from all that was charged.
            let is_waited_for = process.room_beside_clock_us().is_none();
            self.charge_or_autoreap(process, claim, is_waited_for);
        }
    }

    /// Decides which children the process reaped, and which the kernel. Its REAPED record has those that it waited for,
    /// beside its own time. What does not fit into that beside its clock, the kernel reaped: SIGCHLD was ignored.
    fn settle_own(&mut self, process: &mut Process, claims: &[Claim]) {
        let room_us = process.room_beside_clock_us().unwrap_or(u64::MAX);
        let all_us = claims.iter().fold(0, |sum: u64, claim| sum.saturating_add(claim.used.cpu_us()));
        let is_waited_for = if all_us <= room_us.saturating_add(Tolerance::CLOCK_AHEAD_US) {
            vec![true; claims.len()]
        } else {
            // A child may have ignored SIGCHLD, too. Then this process's sum lacks what the child's own children used.
            best_fit(&claims.iter().map(|claim| claim.least_us).collect::<Vec<_>>(), room_us)
        };
        for (claim, is_waited_for) in claims.iter().zip(is_waited_for) {
            self.charge_or_autoreap(process, claim, is_waited_for);
        }
    }

    /// Charges the process with a child that it waited for, or notes that the kernel reaped the child.
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
    /// Whether no other process can have reaped this child of it. No other is known, or it lived when the child was
    /// gone, or it ignores SIGCHLD. Then only it or the kernel can have.
    fn is_only_reaper_of(&self, child: &Process, claim: &Claim) -> bool {
        // An init that is the parent need not have waited: the kernel reaps what it kills with the init.
        let has_no_other =
            claim.others.iter().all(|other| *other == self.ids.id && claim.init != Some(*other));
        let was_gone_before = |end_ns: u64| child.lifetime.gone_ns.is_some_and(|gone_ns| gone_ns < end_ns);
        let lived_until_gone = self.lifetime.end_ns.is_none_or(was_gone_before);
        has_no_other || self.ignores_children() || lived_until_gone
    }

    /// Adds what a child used to what its sums contain.
    fn charge(&mut self, child: &Claim) {
        self.cpu.unreaped_children = self.cpu.unreaped_children.plus(&child.used);
        self.cpu.unreaped_count += 1;
        self.cpu.has_inexact_children |= child.quality != Quality::Exact;
        self.cpu.children_lack_teardown |= child.lacks_teardown;
    }
}

/// Finds which of these sizes add up to the most that is not above `room`. Gives whether each is one of them. Of more than a
/// few, the largest are taken first: that is not always the most.
fn best_fit(sizes: &[u64], room: u64) -> Vec<bool> {
    /// Up to this number of sizes, all sets of them are tried: 4096 at most.
    const FEW: usize = 12;
    if sizes.len() <= FEW { best_of_all_sets(sizes, room) } else { largest_first(sizes, room) }
}

/// Tries all sets of these sizes, each as the bits of a number.
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

/// Takes each size that still fits, the largest first.
fn largest_first(sizes: &[u64], room: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(sizes[*at]));
    let mut taken = vec![false; sizes.len()];
    let mut left = room;
    for at in order {
        if let Some(rest) = left.checked_sub(sizes[at]) {
            (left, taken[at]) = (rest, true);
        }
    }
    taken
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
