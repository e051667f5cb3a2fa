//! Makes a process's summary and removes the process from the tree, as soon as no record can change its figures any more. By then
//! it was reaped, or it is gone and its reaper has had the time to write REAPED.

use std::cmp::Reverse;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::ancestry::ReplacedAncestors;
use super::process::Finalized;
use super::summary::ProcessSummary;
use super::tolerance::Tolerance;
use super::{Parent, Process, ProcessId, Tree};
use crate::model::ids::Target;
use crate::model::sorting::Sorting;
use crate::run::push_last;

impl Tree {
    /// The processes that the session is to look for in /proc: a process that is gone from there can be finalized. They are
    /// processes that ended and have no REAPED record, live children of processes that ended, and live helpers (of gpu-track itself).
    ///
    /// Without `all`, helpers are left out, and so are ended processes whose reaper can still write REAPED: see
    /// [`Self::ended_before_a_reaped_ancestor`]. Some of these leave /proc without a record, so the session asks for all now and then.
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
        // A live child of an ended process may in truth have ended, too: its reaper need not write a record.
        if !ended_parents.is_empty() {
            let alive = self.by_state.alive.iter().filter_map(|id| self.processes.get(id));
            let is_orphan = |process: &&Process| {
                let parent = process.ancestry.parent.known();
                process.lifetime.gone_ns.is_none() && parent.is_some_and(|id| ended_parents.contains(&id))
            };
            questions.extend(alive.filter(is_orphan).filter_map(Process::target));
        }
        // Samples leave helpers out, so no sample finds a helper dead.
        if all && self.counts.helpers > 0 {
            let is_live_helper = |process: &&Process| {
                process.ids.is_helper && process.is_alive() && process.lifetime.gone_ns.is_none()
            };
            questions.extend(self.processes.values().filter(is_live_helper).filter_map(Process::target));
        }
        questions
    }

    /// Finalizes ended processes for which no record can follow. A possible reaper of a process that is not finalized yet is left
    /// for a later call, since that process's usage may have to be subtracted from the reaper's sums.
    ///
    /// Before that, adds the children of [`Self::found_ahead`] that are still unknown, and ends processes that were seen dead.
    ///
    /// All records that were written before `complete_ns` are applied, so a process that was seen dead by then can have no further
    /// EXIT record. `now_ns` is the present. Both are CLOCK_MONOTONIC nanoseconds.
    pub fn finalize(&mut self, now_ns: u64, complete_ns: u64) {
        self.add_found_ahead(complete_ns);
        // Until the command's first process is known, ancestors that may have reaped an orphan can be missing.
        if self.main.is_none() && self.expects_main() {
            return;
        }
        // Possible reapers of processes that this call does not finalize.
        let mut must_wait = self.end_seen_dead(complete_ns);
        let ended = self.by_state.ended.iter().copied();
        let (ready, others): (Vec<_>, Vec<_>) = ended.partition(|id| self.is_complete(*id, complete_ns));
        must_wait.extend(others.into_iter().flat_map(|id| self.possible_reapers(id)));
        let mut replaced = ReplacedAncestors::default();
        for id in self.children_first(ready) {
            if must_wait.contains(&id) {
                must_wait.extend(self.possible_reapers(id));
            } else {
                replaced.extend(self.finalize_one(id, now_ns));
            }
        }
        // Each process was finalized before its ancestors, so none of them needed the ancestors that now take the places of these.
        self.replace_uninstrumented_ancestors(&replaced);
        self.by_state.ended.retain(|id| self.processes.contains_key(id));
    }

    /// Ends the processes that were seen dead by `complete_ns`, CLOCK_MONOTONIC nanoseconds: all their records are applied.
    /// Returns the possible reapers of those that were seen dead later.
    fn end_seen_dead(&mut self, complete_ns: u64) -> FxHashSet<ProcessId> {
        let mut reapers = FxHashSet::default();
        for id in self.by_state.seen_dead.iter().copied().collect::<Vec<_>>() {
            let Some(process) = self.processes.get(&id) else { continue };
            let Some(dead_ns) = process.lifetime.seen_dead_ns else { continue };
            if dead_ns > complete_ns {
                reapers.extend(self.possible_reapers(id));
                continue;
            }
            // A process without records that was not seen after its parent's end was waited for by that parent. So it had ended
            // by then, however late a sample found it dead.
            let is_within = |end: &u64| !process.program.has_record && process.last_seen_ns() <= *end;
            let before_ns = self.end_of(process.ancestry.parent).filter(is_within);
            self.end(id, before_ns.map_or(dead_ns, |end| end.min(dead_ns)));
        }
        reapers
    }

    /// Whether no record can follow for an ended process, if all that were written before `complete_ns` are applied.
    fn is_complete(&self, id: ProcessId, complete_ns: u64) -> bool {
        let Some(process) = self.processes.get(&id) else { return false };
        if process.end.reaped.is_some() {
            return true;
        }
        let ended_first = self.ended_before_a_reaped_ancestor(process);
        // A reaper may write REAPED after the kernel has released the pid, so a reaper that still can gets some time for it.
        if let Some(gone_ns) = process.lifetime.gone_ns {
            let wait_ns = if ended_first { 0 } else { Tolerance::REAPED_AFTER_GONE_NS };
            return complete_ns >= gone_ns.saturating_add(wait_ns);
        }
        // A process with a known pid in the collector's namespace can be looked up in /proc, and will be found to be gone.
        let Some(end_ns) = process.lifetime.end_ns.filter(|_| process.ids.host_pid.is_none()) else {
            return false;
        };
        ended_first || complete_ns.saturating_sub(end_ns) >= Tolerance::REAPED_AFTER_UNSEEN_END_NS
    }

    /// Whether the process ended before its parent, and the parent was reaped. Likewise if the parent was not reaped, but
    /// ended before its own parent, and that one was reaped, and so on. Then the process's reaper can't write REAPED any more. An
    /// orphan, which outlived its parent, has another reaper, which can.
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

    /// Finalizes all processes at the end of the run, the live ones as they are. For these, `now_ns` (CLOCK_MONOTONIC
    /// nanoseconds) stands for their end.
    pub fn finalize_all(&mut self, now_ns: u64) {
        // No record comes any more, so all that were seen dead end now, however late that was.
        self.end_seen_dead(u64::MAX);
        self.by_state.alive.clear();
        self.by_state.ended.clear();
        for id in self.children_first(self.processes.keys().copied().collect()) {
            self.finalize_one(id, now_ns);
        }
    }

    /// Orders processes so that each comes before its ancestors, since its usage is subtracted from the parent's. The deepest
    /// come first. Among equally deep ones, processes that SIGKILL ended come last: what is left of an init's sum then shows
    /// whether the init waited for them.
    fn children_first(&self, mut ids: Vec<ProcessId>) -> Vec<ProcessId> {
        let depths = self.depths(&ids);
        let was_killed = |id: &ProcessId| self.processes.get(id).is_some_and(Process::was_killed);
        ids.order_by_key(|id| (Reverse(depths.get(id).copied()), was_killed(id), *id));
        ids
    }

    /// The depths of these processes and of their ancestors. A process's depth is the number of processes on its way up, by
    /// [`Self::parent_or_reaper`], itself included.
    fn depths(&self, ids: &[ProcessId]) -> FxHashMap<ProcessId, u32> {
        let mut depths: FxHashMap<ProcessId, u32> =
            FxHashMap::with_capacity_and_hasher(ids.len(), FxBuildHasher);
        for id in ids {
            // The way leads up to an ancestor whose depth is known. On the way back, each is one deeper than the one above it.
            let mut path = Vec::new();
            let mut at = Some(*id);
            // Records can claim a circle. So each process has an entry at once, which ends the way if the process comes again.
            while let Some(id) = at.filter(|id| !depths.contains_key(id)) {
                depths.insert(id, 0);
                path.push(id);
                at = self.parent_or_reaper(id);
            }
            let mut depth = at.and_then(|id| depths.get(&id).copied()).unwrap_or(0);
            for id in path.into_iter().rev() {
                depth += 1;
                depths.insert(id, depth);
            }
        }
        depths
    }

    /// The parent of a process. If the tree does not have the parent, the nearest process that may have reaped this process as an
    /// orphan.
    fn parent_or_reaper(&self, id: ProcessId) -> Option<ProcessId> {
        let process = self.processes.get(&id)?;
        let parent = process.ancestry.parent.known().filter(|id| self.processes.contains_key(id));
        parent.or_else(|| self.unreporting_reapers(process).first().copied())
    }

    /// Computes a process's figures, queues its summary, and removes it from the tree. Charges its reaper with what it used, and
    /// queues the CPU time that was not counted by its end. If it was the nearest uninstrumented ancestor of others, returns its id,
    /// and that of its own such ancestor, which takes its place. A helper (of gpu-track itself) has no summary. `now_ns` is
    /// CLOCK_MONOTONIC.
    pub(super) fn finalize_one(
        &mut self,
        id: ProcessId,
        now_ns: u64,
    ) -> Option<(ProcessId, Option<ProcessId>)> {
        // No exit event can follow any more that would show whether it is the child of a failed spawn.
        if self.forget_failed_spawn(id) {
            return None;
        }
        self.possible_reapers(id).for_each(|reaper| self.note_wait(Some(reaper)));
        let mut process = self.processes.remove(&id)?;
        // Which children are in its sums decides what is its own, and that decides what its reaper is charged with.
        self.decide_claims(&mut process);
        let own = process.own_usage(self.context.tick_us);
        self.remember(&process, now_ns);
        self.charge_reaper(&process, &own);
        // Its sums do not have its children without a REAPED record: the kernel reaped them by itself.
        if process.has_charged_autoreaped() {
            self.counts.autoreaped += process.cpu.unreaped_count;
        }
        self.drop_from_lists(&process);
        self.forget_found_ahead(&process);
        let ancestry = &process.ancestry;
        let replaced = ancestry.was_uninstrumented_ancestor.then_some((id, ancestry.uninstrumented_ancestor));
        if process.ids.is_helper {
            let reaped_us =
                process.end.reaped.map_or(0, |_| own.cpu_us().saturating_add(own.unattributed_us));
            let sum_us = &mut self.counts.helpers_reaped_cpu_us;
            *sum_us = sum_us.saturating_add(reaped_us);
            return replaced;
        }
        // No sum of the launcher includes what it used: a service outside of the tree may have started it.
        if process.has_joined() && process.end.reaped.is_none() {
            self.counts.joined_unreaped += 1;
            let sum_us = &mut self.counts.joined_unreaped_cpu_us;
            *sum_us = sum_us.saturating_add(process.total_usage(&own.usage).cpu_us());
        }
        self.intervals.extend(process.uncounted_interval(own.cpu_us().saturating_mul(1000)));
        let parent_pid = self.parent_pid(&process);
        let (client, other_user) = self.take_announced(&process);
        let summary = ProcessSummary::new(process, own, parent_pid, now_ns, self.context.page);
        self.summaries.push(ProcessSummary { client, other_user, ..summary });
        replaced
    }

    /// Remembers a finalized process: its children may still name it, and its REAPED record may still come.
    fn remember(&mut self, process: &Process, now_ns: u64) {
        self.tasks.note_end(process.ids.task, process.ids.id, process.exit_status().is_failure());
        let finalized = Finalized {
            key: process.ids.key,
            id: process.ids.id,
            command: process.name.command.clone(),
            task: process.ids.task,
            awaits_reaping: process.end.reaped.is_none(),
            is_helper: process.ids.is_helper,
            was_instrumented: process.is_instrumented(),
            finalized_ns: now_ns,
        };
        push_last(&mut self.recently_finalized, finalized, Tolerance::FINALIZED_KEPT);
    }

    /// The pid of a process's parent in the collector's namespace. If the tree does not have the parent, the pid that a source
    /// named. `None`: unknown.
    fn parent_pid(&self, process: &Process) -> Option<u32> {
        let reported = Some(process.ancestry.parent_pid).filter(|pid| *pid != 0);
        match process.ancestry.parent {
            Parent::Launcher => Some(self.context.launcher_pid),
            Parent::Known(id) => self.processes.get(&id).map_or(reported, |parent| parent.ids.host_pid),
            Parent::Unknown => reported,
        }
    }
}
