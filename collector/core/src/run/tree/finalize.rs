//! When no record can change a process's figures any more: its summary, and its removal from the tree. That is so when it was
//! reaped, or when it is gone from /proc and no record about it can come any more.

use std::cmp::Reverse;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::ancestry::Replaced;
use super::process::Finalized;
use super::summary::ProcessSummary;
use super::tolerance::Tolerance;
use super::{Parent, Process, ProcessId, Tree};
use crate::model::ids::Target;

impl Tree {
    /// Gives the processes of which it is to be found whether they have left /proc, which would allow to finalize a process. These
    /// are processes that ended and have no REAPED record, and live children of processes that ended.
    ///
    /// A process that ended often leaves /proc without a record. So the session asks for all of them now and then (`all`). Without
    /// `all`, those are left out whose reaper can still write REAPED: see [`Self::ended_before_a_reaped_ancestor`].
    #[must_use]
    pub fn absence_questions(&self, all: bool) -> Vec<Target> {
        let mut ended_parents = FxHashSet::default();
        let mut questions = Vec::new();
        for process in self.by_state.ended.iter().filter_map(|id| self.processes.get(id)) {
            if process.ancestry.has_children {
                ended_parents.insert(process.ids.id);
            }
            if process.end.reaped.is_none()
                && process.lifetime.gone_ns.is_none()
                && (all || self.ended_before_a_reaped_ancestor(process))
            {
                questions.extend(process.target());
            }
        }
        // A child of an ended process can have ended though it counts as live: its reaper need not have written a record.
        if !ended_parents.is_empty() {
            let alive = self.by_state.alive.iter().filter_map(|id| self.processes.get(id));
            let is_orphan = |process: &&Process| {
                let parent = process.ancestry.parent.known();
                process.lifetime.gone_ns.is_none() && parent.is_some_and(|id| ended_parents.contains(&id))
            };
            questions.extend(alive.filter(is_orphan).filter_map(Process::target));
        }
        questions
    }

    /// Finalizes ended processes for which no record can follow. A possible reaper of a process that is not finalized yet is
    /// left for a later call: the usage of that process may have to be subtracted from the reaper's sums.
    ///
    /// All records that were written before `complete_ns` are applied: no EXIT record can follow of a process that was seen dead by
    /// then. `now_ns` is the present. Both are CLOCK_MONOTONIC nanoseconds.
    pub fn finalize(&mut self, now_ns: u64, complete_ns: u64) {
        self.add_found_ahead(complete_ns);
        // Until the command's first process is known, an ancestor that may reap orphans is not.
        if self.main.is_none() && self.context.has_main {
            return;
        }
        let mut awaiting = self.end_seen_dead(complete_ns);
        let ended = self.by_state.ended.iter().copied();
        let (over, open): (Vec<_>, Vec<_>) = ended.partition(|id| self.is_over(*id, complete_ns));
        awaiting.extend(open.into_iter().flat_map(|id| self.possible_reapers(id)));
        let mut replaced = Replaced::default();
        for id in self.children_first(over) {
            if awaiting.contains(&id) {
                awaiting.extend(self.possible_reapers(id));
            } else {
                replaced.extend(self.finalize_one(id, now_ns));
            }
        }
        // Descendants that are left were deeper, and would have come first: none of those finalized needed it.
        self.replace_uninstrumented_ancestors(&replaced);
        self.by_state.ended.retain(|id| self.processes.contains_key(id));
    }

    /// Ends the processes that were seen dead, if all their records are applied. Returns the possible reapers of the others.
    fn end_seen_dead(&mut self, complete_ns: u64) -> FxHashSet<ProcessId> {
        let mut awaiting = FxHashSet::default();
        for id in self.by_state.seen_dead.iter().copied().collect::<Vec<_>>() {
            let Some(process) = self.processes.get(&id) else { continue };
            let Some(dead_ns) = process.lifetime.seen_dead_ns else { continue };
            if dead_ns > complete_ns {
                awaiting.extend(self.possible_reapers(id));
                continue;
            }
            // A process without records that was not seen after its parent's end was waited for by that parent, however
            // late a sample found it dead.
            let is_within = |end: &u64| !process.program.has_record && process.last_seen_ns() <= *end;
            let before_ns = self.end_of(process.ancestry.parent).filter(is_within);
            self.end(id, before_ns.map_or(dead_ns, |end| end.min(dead_ns)));
        }
        awaiting
    }

    /// Whether no record can follow for an ended process, if all that were written before `complete_ns` are applied.
    fn is_over(&self, id: ProcessId, complete_ns: u64) -> bool {
        let Some(process) = self.processes.get(&id) else { return false };
        if process.end.reaped.is_some() {
            return true;
        }
        let ended_first = self.ended_before_a_reaped_ancestor(process);
        // An orphan is reaped by the launcher, which writes REAPED before the kernel releases the pid.
        if let Some(gone_ns) = process.lifetime.gone_ns {
            let wait_ns = if ended_first { 0 } else { Tolerance::REAPED_AFTER_GONE_NS };
            return complete_ns >= gone_ns.saturating_add(wait_ns);
        }
        // One whose pid here is known will be found to be gone.
        let Some(end_ns) = process.lifetime.end_ns.filter(|_| process.ids.host_pid.is_none()) else {
            return false;
        };
        ended_first || complete_ns.saturating_sub(end_ns) >= Tolerance::REAPED_AFTER_UNSEEN_END_NS
    }

    /// Whether the process ended before its parent did, and the parent was reaped. Or the parent ended before its own parent
    /// did, which was reaped, and so on. Then its reaper can't write REAPED any more. An orphan, which outlived its parent, has
    /// another reaper, which can.
    fn ended_before_a_reaped_ancestor(&self, process: &Process) -> bool {
        let mut child = process;
        for _ in 0..Tolerance::MOST_ANCESTORS {
            let parent = child.ancestry.parent.known().and_then(|id| self.processes.get(&id));
            let Some(parent) = parent else { return false };
            if parent.is_alive() || child.lifetime.end_ns > parent.lifetime.end_ns {
                return false;
            }
            if parent.end.reaped.is_some() {
                return true;
            }
            child = parent;
        }
        false
    }

    /// Finalizes all processes at the end of the run, the live ones as they are. For these, `now_ns` (CLOCK_MONOTONIC nanoseconds)
    /// stands for their end.
    pub fn finalize_all(&mut self, now_ns: u64) {
        self.end_seen_dead(u64::MAX);
        self.by_state.alive.clear();
        self.by_state.ended.clear();
        for id in self.children_first(self.processes.keys().copied().collect()) {
            self.finalize_one(id, now_ns);
        }
    }

    /// Orders processes so that each comes before its parent: its usage is subtracted from the parent's. If the parent is not
    /// known, the process that would reap it as an orphan stands for it. A process's depth is its number of such ancestors. The
    /// deepest come first.
    fn children_first(&self, mut ids: Vec<ProcessId>) -> Vec<ProcessId> {
        let mut depths: FxHashMap<ProcessId, u32> =
            FxHashMap::with_capacity_and_hasher(ids.len(), FxBuildHasher);
        for id in &ids {
            // Up to an ancestor whose depth is known. On the way back, each is one deeper than the one above it.
            let mut path = Vec::new();
            let mut at = Some(*id);
            // Records can claim a circle: a process that is on the path already ends it.
            while let Some(id) = at.filter(|id| !depths.contains_key(id)) {
                depths.insert(id, 0);
                path.push(id);
                at = self.processes.get(&id).and_then(|process| {
                    let parent = process.ancestry.parent.known().filter(|id| self.processes.contains_key(id));
                    parent.or_else(|| self.unreporting_reapers(process).first().copied())
                });
            }
            let mut depth = at.and_then(|id| depths.get(&id).copied()).unwrap_or(0);
            for id in path.into_iter().rev() {
                depth += 1;
                depths.insert(id, depth);
            }
        }
        // Killed siblings come last: the rest of an init's sum then shows whether it waited for them.
        let was_killed = |id: &ProcessId| self.processes.get(id).is_some_and(Process::was_killed);
        ids.sort_unstable_by_key(|id| (Reverse(depths.get(id).copied()), was_killed(id), *id));
        ids
    }

    /// Computes a process's figures, and removes it from the tree. If it was the nearest uninstrumented ancestor of others,
    /// gives it and its own such ancestor, which takes its place. `now_ns` is CLOCK_MONOTONIC.
    pub(super) fn finalize_one(
        &mut self,
        id: ProcessId,
        now_ns: u64,
    ) -> Option<(ProcessId, Option<ProcessId>)> {
        // No exit event can follow.
        if self.forget_failed_spawn(id) {
            return None;
        }
        let mut process = self.processes.remove(&id)?;
        // Which children are in its sums decides what is its own, and that decides what its reaper is charged with.
        self.settle_claims(&mut process);
        let own = process.own(self.context.tick_us);
        self.remember(&process, now_ns);
        self.charge_reaper(&process, &own);
        if process.has_charged_autoreaped() {
            self.counts.autoreaped += process.cpu.unreaped_count;
        }
        self.drop_from_lists(&process);
        self.forget_found_ahead(&process);
        let ancestry = &process.ancestry;
        let replaced = ancestry.was_uninstrumented_ancestor.then_some((id, ancestry.uninstrumented_ancestor));
        if process.has_joined() && process.end.reaped.is_none() {
            self.counts.joined_unreaped += 1;
            let cpu_us = &mut self.counts.joined_unreaped_cpu_us;
            *cpu_us = cpu_us.saturating_add(process.total_usage(&own.usage).cpu_us());
        }
        self.intervals.extend(process.uncounted_interval(own.cpu_us().saturating_mul(1000)));
        let parent_pid = self.parent_pid(&process);
        self.summaries.push(ProcessSummary::new(process, own, parent_pid, now_ns));
        replaced
    }

    /// Remembers a finalized process: its children may still name it, and a REAPED record may still come.
    fn remember(&mut self, process: &Process, now_ns: u64) {
        if self.recently_finalized.len() >= Tolerance::FINALIZED_KEPT {
            self.recently_finalized.pop_front();
        }
        self.recently_finalized.push_back(Finalized {
            key: process.ids.key,
            id: process.ids.id,
            command: process.name.command.clone(),
            awaits_reaping: process.end.reaped.is_none(),
            finalized_ns: now_ns,
        });
    }

    /// Gives the pid of a process's parent in the collector's namespace, or else as the process named it. `None`: unknown.
    fn parent_pid(&self, process: &Process) -> Option<u32> {
        let reported = Some(process.ancestry.parent_pid).filter(|pid| *pid != 0);
        match process.ancestry.parent {
            Parent::Launcher => Some(self.context.launcher_pid),
            Parent::Known(id) => self.processes.get(&id).map_or(reported, |parent| parent.ids.host_pid),
            Parent::Unknown => reported,
        }
    }
}
