//! Which process waited for one that ended without a REAPED record. The reaper waited inside libc, by a raw system call, or for an
//! orphan (a subreaper, or the init of a pid namespace). The kernel added what the ended process used to the reaper's sums of
//! waited-for children, so here it is subtracted from them: the reaper is charged. The candidates, the most likely first:
//!
//! 1. The process's parent, if the parent still lived when the process was gone, or if no other process can have reaped it. A
//!    parent that lives either waited, or it ignores SIGCHLD and the kernel reaped the process.
//! 2. A parent that had ended by then. All its children must be known, and the process must be one of those that fit best into
//!    the parent's sums. Such a parent is no candidate if the process's EXIT record names another parent, which adopted it as
//!    an orphan. A parent that was killed and writes REAPED records may have left the process as a zombie instead. Then the
//!    adopter's sums have more than is known, and the parent's own time is a lower bound.
//! 3. The adopter, or the nearest uninstrumented ancestor that may be a subreaper, one with enough CPU time first.
//! 4. The init of the process's pid namespace.
//!
//! If a process has no EXIT record, its REAPED record has the sum of its own time and of what it waited for. Children that do
//! not fit into the rest of that beside its own CPU clock were reaped by the kernel. Then its clock is its own time, and the
//! kernel's sum of the run is unknown.

use super::cpu::OwnUsage;
use super::process::Claim;
use super::tolerance::Tolerance;
use super::{Parent, Process, ProcessId, Quality, Tree};

impl Tree {
    /// Charges the most likely reaper of an ended process that has no REAPED record: see the head of this file. Its parent keeps it
    /// as a claim, which [`Self::settle_claims`] decides when all children of the parent are known. If the kernel or the launcher
    /// must have reaped it, it is only counted.
    pub(super) fn charge_reaper(&mut self, process: &Process, own: &OwnUsage) {
        // A REAPED record has added the process to its reaper's children. A live process is in no sums.
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
        // With too many claims, those that the parent's sums would have to decide go to other reapers at once.
        if parent.claims.len() < Tolerance::MOST_CLAIMS {
            parent.claims.push(claim);
        } else if claim.is_by_parent {
            parent.charge(&claim);
        } else {
            self.charge_another_or_none(&claim, process.has_joined());
        }
    }

    /// Makes the claim of an ended process on its reaper. `adopted_by`: the parent that its EXIT record names, if another process
    /// had made it. `is_by_parent` is left open.
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

    /// Charges a possible reaper other than the parent. If there is none, counts the process: as reaped by the kernel if
    /// candidates are still in the tree, else as an orphan that the launcher had not reaped yet. Processes that joined
    /// (`has_joined`) are counted where they are finalized.
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

    /// Charges the nearest of `claim.others` whose sums can contain the process, as the parent did not wait for it. Returns whether
    /// there is one.
    #[must_use]
    fn charge_another(&mut self, claim: &Claim) -> bool {
        let can_have_reaped =
            |id: &&ProcessId| self.processes.get(id).is_some_and(|p| p.can_include_child(&claim.used));
        let Some(other) = claim.others.iter().find(can_have_reaped).copied() else { return false };
        // The kernel itself reaps the processes that it kills with an init: they are in no sums.
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

    /// Notes that the adopter's sums may have more than what is known of its children, though the parent was charged: the parent
    /// may have left the process as a zombie, which the adopter reaped.
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

    /// Decides which claims on a process count. It is called when the process is finalized: all claims are known by then, and its
    /// sums are final. It is charged with the claims that fit best into its sums. The others go to the next possible reaper.
    pub(super) fn settle_claims(&mut self, process: &mut Process) {
        let (by_parent, mut claims): (Vec<_>, Vec<_>) =
            std::mem::take(&mut process.claims).into_iter().partition(|claim| claim.is_by_parent);
        self.settle_own(process, &by_parent);
        // The process has no sums: its parent's sums have its children, too. So its parent takes the claims, up to the most.
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

    /// Settles `claims`, of children that only the process or the kernel can have reaped. Its REAPED record has its own time and
    /// that of the children that it waited for. Children that do not fit into the rest beside its own CPU clock were reaped by
    /// the kernel, as SIGCHLD was ignored.
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
    /// Whether no process but this one, the parent of `child`, can have reaped it. The kernel may have. One of three conditions
    /// is enough, as below.
    fn is_only_reaper_of(&self, child: &Process, claim: &Claim) -> bool {
        // No other candidate is known. An init that is the parent need not have waited: the kernel itself reaps the processes that
        // it kills with the init.
        let is_only_candidate =
            claim.others.iter().all(|other| *other == self.ids.id && claim.init != Some(*other));
        // The parent still lived when the child left /proc, so the child was never an orphan.
        let has_outlived_child = self
            .lifetime
            .end_ns
            .is_none_or(|end_ns| child.lifetime.gone_ns.is_some_and(|gone_ns| gone_ns < end_ns));
        // The parent ignored SIGCHLD: the kernel reaps such children as they end, and leaves no zombie to be adopted.
        let leaves_no_zombies = self.ignores_children();
        is_only_candidate || has_outlived_child || leaves_no_zombies
    }

    /// Charges the process with a child: adds what the child used to what the process's sums contain.
    fn charge(&mut self, child: &Claim) {
        self.cpu.unreaped_children = self.cpu.unreaped_children.plus(&child.used);
        self.cpu.unreaped_count += 1;
        self.cpu.has_inexact_children |= child.quality != Quality::Exact;
        self.cpu.children_lack_teardown |= child.lacks_teardown;
    }
}

/// Chooses those of `sizes` that add up to the most that is not above `room`. Gives for each whether it is chosen. Of more than
/// a few sizes, the largest are chosen first, which is not always the most.
fn best_fit(sizes: &[u64], room: u64) -> Vec<bool> {
    /// Up to this number of sizes, all sets of them are tried: 4096 at most.
    const FEW: usize = 12;
    if sizes.len() <= FEW { best_of_all_sets(sizes, room) } else { largest_first(sizes, room) }
}

/// Chooses the best of all sets of these sizes, each as the bits of a number.
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
