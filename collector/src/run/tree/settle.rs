//! When nothing more can be learnt of a process: its final figures, and its way out of the tree.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use gpu_track_abi::record::Usage;
use serde::{Deserialize, Serialize};

use super::events::total_of;
use super::process::Own;
use super::usage_math::plus;
use super::{DEPARTED_KEPT, Departed, FoundBy, Parent, Process, ProcessId, Quality, Tree};
use crate::model::ids::Target;
use crate::model::report::Exit;

/// How long after it left /proc a process may still get a REAPED record: its reaper writes it after the kernel let
/// go of the pid.
const GRACE_NS: u64 = 200_000_000;

/// How long a process of another pid namespace that nobody reaps is kept after its end.
const UNSEEN_GRACE_NS: u64 = 2_000_000_000;

/// The final word on a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settled {
    /// Its name in this run.
    pub id: ProcessId,
    /// When it began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Its pid as the launcher sees it, where that is known.
    pub host_pid: Option<u32>,
    /// Its pid as itself saw it.
    pub own_pid: u32,
    /// Its pid as the launcher sees it, else as itself saw it.
    pub pid: u32,
    /// Its parent's pid.
    pub parent_pid: Option<u32>,
    /// The command's first process?
    pub is_main: bool,
    /// Still alive at the end of the run.
    pub still_running: bool,
    /// Command name.
    pub command: Arc<str>,
    /// Arguments, where known.
    pub args: Option<Vec<String>>,
    /// What it used itself.
    pub own: Usage,
    /// How that is known.
    pub quality: Quality,
    /// Its peak RSS, bytes.
    pub peak: Option<u64>,
    /// How that is known.
    pub peak_quality: Quality,
    /// The tree's RAM lacks it.
    pub is_ram_missing: bool,
    /// From start to end, nanoseconds.
    pub wall_ns: u64,
    /// How it ended.
    pub exit: Exit,
    /// It wrote a record itself.
    pub spoke: bool,
    /// Its last program told nothing of its end.
    pub ended_silently: bool,
    /// Who found it first.
    pub found_by: FoundBy,
    /// It carried the session without being a known descendant.
    pub joined: bool,
    /// Its executable, if that has no dynamic loader.
    pub static_executable: Option<String>,
    /// CPU time that it reported of its children beyond what is known of those, microseconds.
    pub unattributed_us: u64,
}

impl Tree {
    /// Processes whose absence from /proc would settle something: those that ended and were not reaped (with `all`, else
    /// only those that an ancestor's end waits for), and live children of processes that ended.
    #[must_use]
    pub fn absence_questions(&self, all: bool) -> Vec<Target> {
        let mut ended_parents = HashSet::new();
        let mut questions = Vec::new();
        for process in self.ended.iter().filter_map(|id| self.processes.get(id)) {
            if process.has_children {
                ended_parents.insert(process.id);
            }
            if process.reaped.is_none()
                && process.gone_ns.is_none()
                && (all || self.ended_before_a_reaped_ancestor(process))
            {
                questions.extend(process.target());
            }
        }
        if !ended_parents.is_empty() {
            let alive = self.alive.iter().filter_map(|id| self.processes.get(id));
            let is_orphan = |process: &&Process| match process.parent {
                Parent::Known(parent) => process.gone_ns.is_none() && ended_parents.contains(&parent),
                Parent::Launcher | Parent::Unknown => false,
            };
            questions.extend(alive.filter(is_orphan).filter_map(Process::target));
        }
        questions
    }

    /// A process was no longer in /proc at this time, CLOCK_MONOTONIC nanoseconds.
    pub fn observe_absence(&mut self, id: ProcessId, at_ns: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.gone_ns.get_or_insert(at_ns);
        if process.is_alive() {
            process.seen_dead_ns.get_or_insert(at_ns);
            self.seen_dead.insert(id);
        }
    }

    /// Settle ended processes that nobody will say more of.
    ///
    /// All records that were written before `complete_ns` are applied: until then, what was seen dead may have said so
    /// itself.
    pub fn settle(&mut self, now_ns: u64, complete_ns: u64) {
        let mut awaiting = self.end_the_dead(complete_ns);
        let ended = self.ended.iter().copied();
        let (over, open): (Vec<_>, Vec<_>) = ended.partition(|id| self.is_over(*id, complete_ns));
        awaiting.extend(open.into_iter().flat_map(|id| self.who_awaits(id)));
        for id in self.children_first(over) {
            if awaiting.contains(&id) {
                awaiting.extend(self.who_awaits(id));
            } else {
                self.settle_one(id, now_ns);
            }
        }
        self.ended.retain(|id| self.processes.contains_key(id));
    }

    /// End those that were seen dead, once their last words would have been heard. Gives the parents of those who may
    /// still have some.
    fn end_the_dead(&mut self, complete_ns: u64) -> HashSet<ProcessId> {
        let mut awaiting = HashSet::new();
        for id in self.seen_dead.iter().copied().collect::<Vec<_>>() {
            let Some(process) = self.processes.get(&id) else { continue };
            let Some(dead_ns) = process.seen_dead_ns else { continue };
            if dead_ns > complete_ns {
                awaiting.extend(self.who_awaits(id));
                continue;
            }
            // Who never spoke and was not seen after its parent's end was waited for, whenever the next sample saw it.
            let before_ns =
                self.end_of(process.parent).filter(|end| !process.spoke && process.last_sign_ns() <= *end);
            self.end(id, before_ns.map_or(dead_ns, |end| end.min(dead_ns)));
        }
        awaiting
    }

    /// Who may have waited for an unreaped process: its parent, and who would reap it as an orphan. What a child used is
    /// taken off their sums, so they are settled after it.
    fn who_awaits(&self, id: ProcessId) -> impl Iterator<Item = ProcessId> + use<> {
        let process = self.processes.get(&id).filter(|process| process.reaped.is_none());
        let parent = process.and_then(|process| match process.parent {
            Parent::Known(parent) if !self.has_outlived(process, parent) => Some(parent),
            _ => None,
        });
        let others = process.map(|process| self.untold_reapers(process)).unwrap_or_default();
        parent.into_iter().chain(others)
    }

    /// Who may reap an orphan without telling, if it is not the launcher that does, nearest first: ancestors that say nothing
    /// and may be subreapers, and its pid namespace's init.
    fn untold_reapers(&self, process: &Process) -> Vec<ProcessId> {
        const MOST: usize = 64;
        let next = |id: &ProcessId| self.processes.get(id)?.silent_ancestor;
        let ancestors = std::iter::successors(process.silent_ancestor, next).take(MOST);
        let can_be = |id: &ProcessId| {
            self.processes.get(id).is_some_and(|ancestor| {
                !ancestor.speaks()
                    && !self.has_outlived(process, *id)
                    && self.namespace_of(ancestor) == self.namespace_of(process)
            })
        };
        let mut all: Vec<ProcessId> = ancestors.filter(can_be).collect();
        all.extend(self.init_of(process).filter(|init| !all.contains(init)));
        all
    }

    /// Whether it was there after this other one's end.
    fn has_outlived(&self, process: &Process, other: ProcessId) -> bool {
        self.end_of(Parent::Known(other)).is_some_and(|end| process.last_sign_ns() > end)
    }

    fn end_of(&self, parent: Parent) -> Option<u64> {
        let Parent::Known(parent) = parent else { return None };
        self.processes.get(&parent)?.end_ns
    }

    /// Whether nobody will say more of an ended process, as far as all that was written before this time tells.
    fn is_over(&self, id: ProcessId, now_ns: u64) -> bool {
        let Some(process) = self.processes.get(&id) else { return false };
        if process.reaped.is_some() {
            return true;
        }
        let ended_first = self.ended_before_a_reaped_ancestor(process);
        match (process.gone_ns, process.end_ns, process.host_pid) {
            // Who is an orphan by then is reaped by the launcher, which says so before it lets go of the pid.
            (Some(gone), ..) => now_ns >= gone.saturating_add(if ended_first { 0 } else { GRACE_NS }),
            (None, Some(end), None) => ended_first || now_ns.saturating_sub(end) >= UNSEEN_GRACE_NS,
            _ => false,
        }
    }

    /// Whether its parent was reaped after its end, or the parent's parent after the parent's end, and so on: who waited
    /// for it can't tell any more. An orphan's reaper is another one, who may still write.
    fn ended_before_a_reaped_ancestor(&self, process: &Process) -> bool {
        const DEEPEST: usize = 64;
        let mut child = process;
        for _ in 0..DEEPEST {
            let Parent::Known(parent) = child.parent else { return false };
            match self.processes.get(&parent) {
                Some(parent) if parent.end_ns.is_none() || child.end_ns > parent.end_ns => return false,
                Some(parent) if parent.reaped.is_some() => return true,
                Some(parent) => child = parent,
                None => return false,
            }
        }
        false
    }

    /// The end of the run: settle all, the living as they are.
    pub fn settle_all(&mut self, now_ns: u64) {
        self.end_the_dead(u64::MAX);
        self.alive.clear();
        self.ended.clear();
        for id in self.children_first(self.processes.keys().copied().collect()) {
            self.settle_one(id, now_ns);
        }
    }

    /// These in an order in which each comes before its parent, or who would reap it as an orphan: what it used is taken
    /// off their sums.
    fn children_first(&self, mut ids: Vec<ProcessId>) -> Vec<ProcessId> {
        let mut depths: HashMap<ProcessId, u32> = HashMap::with_capacity(ids.len());
        for id in &ids {
            let mut path = Vec::new();
            let mut at = Some(*id);
            // Records can claim a circle: a process that is on the path already ends it.
            while let Some(id) = at.filter(|id| !depths.contains_key(id)) {
                depths.insert(id, 0);
                path.push(id);
                at = self.processes.get(&id).and_then(|process| match process.parent {
                    Parent::Known(parent) if self.processes.contains_key(&parent) => Some(parent),
                    _ => self.untold_reapers(process).first().copied(),
                });
            }
            let mut depth = at.and_then(|id| depths.get(&id).copied()).unwrap_or(0);
            for id in path.into_iter().rev() {
                depth += 1;
                depths.insert(id, depth);
            }
        }
        // What is left of an init's sum tells whether it waited for those that were killed.
        let was_killed = |id: &ProcessId| self.processes.get(id).is_some_and(Process::was_killed);
        ids.sort_unstable_by_key(|id| (Reverse(depths.get(id).copied()), was_killed(id), *id));
        ids
    }

    pub(super) fn settle_one(&mut self, id: ProcessId, now_ns: u64) {
        let Some(process) = self.processes.remove(&id) else { return };
        let own = process.own(self.context.tick_us);
        self.remember(&process, now_ns);
        self.charge_reaper(&process, &own);
        if process.autoreaped() {
            self.autoreaped += process.unreaped_count;
        }
        self.drop_from_lists(&process);
        if process.was_silent_ancestor {
            self.replace_silent_ancestors(&BTreeSet::from([id]), process.silent_ancestor);
        }
        let (peak, peak_quality) = process.peak();
        let is_ram_missing = process.is_ram_missing();
        let joined = process.parent == Parent::Unknown && !process.is_main;
        self.outside += u64::from(joined && process.reaped.is_none());
        let unattributed_us = process.unattributed_us();
        self.settled.push(Settled {
            id: process.id,
            start_ns: process.start_ns,
            host_pid: process.host_pid,
            own_pid: process.key.pid,
            pid: process.host_pid.unwrap_or(process.key.pid),
            parent_pid: self.parent_pid(&process),
            is_main: process.is_main,
            still_running: process.end_ns.is_none(),
            wall_ns: process.end_ns.unwrap_or(now_ns).saturating_sub(process.start_ns),
            exit: process.exit_status(),
            spoke: process.spoke,
            ended_silently: process.ended_silently(),
            found_by: process.found_by,
            joined,
            own: own.usage,
            quality: own.quality,
            peak,
            peak_quality,
            is_ram_missing,
            unattributed_us,
            command: process.command,
            args: process.args,
            static_executable: process.static_executable,
        });
    }

    /// Its children may still name it, and its reaper may still tell of it.
    fn remember(&mut self, process: &Process, now_ns: u64) {
        if self.departed.len() >= DEPARTED_KEPT {
            self.departed.pop_front();
        }
        self.departed.push_back(Departed {
            key: process.key,
            id: process.id,
            command: process.command.clone(),
            awaits_reaping: process.reaped.is_none(),
            settled_ns: now_ns,
        });
    }

    /// Who ended without a record of its reaping was still waited for by somebody (inside libc, by a raw system call, or
    /// as an orphan by a subreaper or its pid namespace's init), unless the kernel reaped it by itself.
    fn charge_reaper(&mut self, process: &Process, own: &Own) {
        if process.reaped.is_some() || process.end_ns.is_none() {
            return;
        }
        let used = total_of(&own.usage, process);
        let others = self.untold_reapers(process);
        let parent = match process.parent {
            Parent::Known(id) if others.is_empty() => Some(id),
            Parent::Known(id) => Some(id).filter(|id| self.can_have_reaped(*id, process, &used)),
            Parent::Launcher | Parent::Unknown => None,
        };
        let with_room = others.iter().find(|id| self.can_have_reaped(**id, process, &used));
        let other = with_room.or(others.first()).copied().filter(|_| parent.is_none());
        let init = other.filter(|_| self.init_of(process) == other).and_then(|id| self.processes.get(&id));
        if init.is_some_and(|init| self.has_taken_along(init, process, &used)) {
            self.autoreaped += 1;
            self.lost += u64::from(own.quality == Quality::Unknown);
            return;
        }
        let Some(reaper) = parent.or(other).and_then(|id| self.processes.get_mut(&id)) else { return };
        reaper.unreaped_children = plus(&reaper.unreaped_children, &used);
        reaper.unreaped_count += 1;
    }

    /// Whether this parent may have waited for a child that used so much: it did not end before that, and does not say
    /// that it waited for less. If it ignores SIGCHLD, nobody waited.
    fn can_have_reaped(&self, parent: ProcessId, child: &Process, used: &Usage) -> bool {
        let Some(process) = self.processes.get(&parent) else { return false };
        !self.has_outlived(child, parent) && (process.ignores_children() || process.says_it_waited_for(used))
    }

    fn parent_pid(&self, process: &Process) -> Option<u32> {
        match process.parent {
            Parent::Launcher => Some(self.context.launcher_pid),
            Parent::Known(id) => match self.processes.get(&id) {
                Some(parent) => parent.host_pid,
                None => Some(process.parent_pid).filter(|pid| *pid != 0),
            },
            Parent::Unknown => Some(process.parent_pid).filter(|pid| *pid != 0),
        }
    }

    pub(super) fn drop_from_lists(&mut self, process: &Process) {
        let id = process.id;
        if process.parent == Parent::Unknown {
            self.strays.remove(&id);
        }
        if process.is_alive() {
            self.leave_group(id, process.group);
            self.no_longer_alive(id);
        }
        self.inner.remove(&(process.key.pid_ns, id));
        self.mute.remove(&id);
        if process.key.pid == 1 {
            self.forks.remove(&process.key.pid_ns);
        }
        self.could_not_exec.remove(&id);
        let host_key = process.host_pid.map(|pid| super::Key { pid_ns: self.context.pid_ns, pid });
        for key in [Some(process.key), host_key].into_iter().flatten() {
            if let Some(of_pid) = self.index.get_mut(&key) {
                of_pid.retain(|other| *other != id);
                if of_pid.is_empty() {
                    self.index.remove(&key);
                }
            }
        }
    }
}
