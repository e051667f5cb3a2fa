//! How processes are related: parents, adoption, and ancestors that reap orphans without a record.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::process::Finalized;
use super::tolerance::Tolerance;
use super::{Image, Key, Parent, Process, ProcessId, TaskId, Tree};

/// Processes that are no longer the nearest uninstrumented ancestor of any, each with the one that takes its place. `None`: none
/// does.
pub(super) type ReplacedAncestors = FxHashMap<ProcessId, Option<ProcessId>>;

impl Tree {
    /// Finds the process that another one named as its parent by this pid. That is the launcher, or the live process of the pid,
    /// or else the last one of the pid that ended. `Unknown`: no process of that pid is known, or it was finalized too long ago.
    pub(super) fn parent_of(&self, parent: Key) -> Parent {
        if parent == (Key { pid_ns: self.context.pid_ns, pid: self.context.launcher_pid }) {
            return Parent::Launcher;
        }
        if let Some(id) = self.youngest_alive(parent) {
            return Parent::Known(id);
        }
        // It may have ended before its child's first record (daemon(3)): the last process of that pid is meant.
        let ended = self.by_state.by_pid.get(&parent).and_then(|of_pid| of_pid.last().copied());
        let has_pid = |finalized: &&Finalized| finalized.key == parent;
        let finalized = || self.recently_finalized.iter().rev().find(has_pid).map(|finalized| finalized.id);
        ended.or_else(finalized).map_or(Parent::Unknown, Parent::Known)
    }

    /// Finds the nearest uninstrumented ancestor of a child of this parent. Such an ancestor may reap orphans without a record. If it
    /// is the parent itself, marks the parent, so that another process takes its place when it is finalized. A process whose own
    /// parent is unknown counts as uninstrumented until its parent is known, since an ancestor may be missing. `None`: there is none.
    pub(super) fn uninstrumented_ancestor(&mut self, parent: Parent) -> Option<ProcessId> {
        let id = parent.known()?;
        let process = self.processes.get_mut(&id)?;
        let is_nearest = !process.is_instrumented() || process.ancestry.parent == Parent::Unknown;
        process.ancestry.was_uninstrumented_ancestor |= is_nearest;
        if is_nearest { Some(id) } else { process.ancestry.uninstrumented_ancestor }
    }

    /// Whether a fork child of this parent may write no FORK record: the parent is or was uninstrumented, or that is unknown.
    pub(super) fn may_fork_without_record(&self, parent: Parent) -> bool {
        match parent {
            Parent::Launcher => false,
            Parent::Known(id) => match self.processes.get(&id) {
                Some(parent) => !parent.is_instrumented(),
                None => self.finalized(id).is_none_or(|parent| !parent.was_instrumented),
            },
            Parent::Unknown => true,
        }
    }

    /// What is kept of a finalized process. `None`: it is not finalized, or was too long ago.
    pub(super) fn finalized(&self, id: ProcessId) -> Option<&Finalized> {
        self.recently_finalized.iter().rev().find(|finalized| finalized.id == id)
    }

    /// Puts other processes in the places of these as nearest uninstrumented ancestors, in every process of the tree.
    pub(super) fn replace_uninstrumented_ancestors(&mut self, replaced: &ReplacedAncestors) {
        if replaced.is_empty() {
            return;
        }
        for process in self.processes.values_mut() {
            let nearest = &mut process.ancestry.uninstrumented_ancestor;
            // The process that takes a place may be replaced itself. Records can claim a circle, so the steps are bounded.
            for _ in 0..replaced.len() {
                let Some(next) = nearest.and_then(|id| replaced.get(&id)) else { break };
                *nearest = *next;
            }
        }
    }

    /// The command that a child of this parent runs until it execs: the parent's. `None`: the parent is not known, or was
    /// finalized too long ago.
    pub(super) fn command_of_parent(&self, parent: Parent) -> Option<Arc<str>> {
        let id = parent.known()?;
        if let Some(process) = self.processes.get(&id) {
            return Some(process.name.command.clone());
        }
        self.finalized(id).map(|finalized| finalized.command.clone())
    }

    /// The task that a child of this parent is in until it has a mark of its own: the parent's. [`TaskId::WORKFLOW`] if the parent
    /// is not known, or was finalized too long ago.
    pub(super) fn task_of_parent(&self, parent: Parent) -> TaskId {
        let Some(id) = parent.known().filter(|_| !self.tasks.is_empty()) else { return TaskId::WORKFLOW };
        if let Some(process) = self.processes.get(&id) {
            return process.ids.task;
        }
        self.finalized(id).map_or(TaskId::WORKFLOW, |finalized| finalized.task)
    }

    /// Moves a process whose parent has become known, and its descendants, into the parent's task, with the tasks that it began
    /// itself. Does nothing if the parent is in no task, or if the process was made in [`TaskId::OTHERS`].
    pub(super) fn inherit_task(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(&id) else { return };
        let (from, to) = (process.ids.born_in, self.task_of_parent(process.ancestry.parent));
        if from == to || from == TaskId::OTHERS || to == TaskId::WORKFLOW {
            return;
        }
        let descends = |process: &&Process| {
            let maker = |other: &Process| self.processes.get(&other.ancestry.parent.known()?);
            let mut line = std::iter::successors(Some(*process), |other| maker(other));
            line.by_ref().take(Tolerance::MOST_ANCESTORS).any(|other| other.ids.id == id)
        };
        let moved: Vec<ProcessId> =
            self.processes.values().filter(descends).map(|process| process.ids.id).collect();
        for one in moved {
            let Some(process) = self.processes.get_mut(&one) else { continue };
            let ids = &mut process.ids;
            ids.task = self.tasks.moved(ids.task, from, to);
            ids.born_in = if one == id { to } else { self.tasks.moved(ids.born_in, from, to) };
        }
    }

    /// Makes a process the parent of the processes that named its pid (`parent`) as that of their parent before it was known. They
    /// and their descendants get the nearest uninstrumented ancestor that follows from that.
    pub(super) fn adopt(&mut self, parent: Key, id: ProcessId) {
        let mut adopted = ReplacedAncestors::default();
        let uninstrumented_ancestor = self.uninstrumented_ancestor(Parent::Known(id));
        // `retain` keeps the processes that still have no parent.
        self.by_state.unparented.retain(|child| {
            let Some(process) = self.processes.get_mut(child) else { return false };
            let ancestry = &mut process.ancestry;
            let names_parent = ancestry.parent_pid == parent.pid && process.ids.key.pid_ns == parent.pid_ns;
            if ancestry.parent == Parent::Unknown && names_parent && process.ids.id != id {
                ancestry.parent = Parent::Known(id);
                ancestry.uninstrumented_ancestor = uninstrumented_ancestor;
                adopted.insert(*child, uninstrumented_ancestor);
            }
            ancestry.parent == Parent::Unknown
        });
        if adopted.is_empty() {
            return;
        }
        for child in adopted.keys() {
            self.inherit_task(*child);
        }
        if let Some(process) = self.processes.get_mut(&id) {
            process.ancestry.has_children = true;
        }
        // As its parent was unknown, each child has counted as an uninstrumented ancestor of its own descendants. It remains that,
        // unless a START or FORK record reported its image. If it has exec'd a program that has not reported yet, its descendants are those
        // of the program before.
        let is_replaced =
            |process: &Process| matches!(process.program.image, Image::Loaded { .. } | Image::Forked { .. });
        adopted.retain(|id, _| self.processes.get(id).is_some_and(is_replaced));
        self.replace_uninstrumented_ancestors(&adopted);
    }

    /// The processes that may have waited for a process without a REAPED record. They are its parent, unless the process outlived that,
    /// and those that may have reaped it as an orphan. Its usage may be subtracted from theirs, so they are finalized after it.
    pub(crate) fn possible_reapers(&self, id: ProcessId) -> impl Iterator<Item = ProcessId> + use<> {
        let process = self.processes.get(&id).filter(|process| process.end.reaped.is_none());
        let parent = process.and_then(|process| {
            process.ancestry.parent.known().filter(|parent| !self.has_outlived(process, *parent))
        });
        let others = process.map(|process| self.unreporting_reapers(process)).unwrap_or_default();
        let adopter = process.and_then(|process| self.adopted_by(process)?.known());
        parent.into_iter().chain(others).chain(adopter)
    }

    /// The parent that a process had at its EXIT record, if another process had made it. `None`: it was still the child of
    /// the process that made it, or that is not known.
    pub(super) fn adopted_by(&self, process: &Process) -> Option<Parent> {
        let maker = process.ancestry.parent.known()?;
        let (maker_key, own_key) = (self.processes.get(&maker)?.ids.key, process.ids.key);
        let last_parent = Key { pid_ns: own_key.pid_ns, pid: process.end.exit?.parent_pid };
        // Pids of two namespaces can't be compared. A parent outside the process's namespace has the pid 0 in there.
        let can_tell = maker_key.pid_ns == own_key.pid_ns && last_parent.pid != 0;
        (can_tell && last_parent != maker_key).then(|| self.parent_of(last_parent))
    }

    /// The processes that may reap an orphan without a REAPED record, nearest first: uninstrumented ancestors, which
    /// may be subreapers, and its pid namespace's init.
    pub(super) fn unreporting_reapers(&self, process: &Process) -> Vec<ProcessId> {
        let next = |id: &ProcessId| self.processes.get(id)?.ancestry.uninstrumented_ancestor;
        let ancestors = std::iter::successors(process.ancestry.uninstrumented_ancestor, next)
            .take(Tolerance::MOST_ANCESTORS);
        let may_have_reaped = |id: &ProcessId| {
            self.processes.get(id).is_some_and(|ancestor| {
                !ancestor.is_instrumented()
                    && !self.has_outlived(process, *id)
                    && self.namespace_of(ancestor) == self.namespace_of(process)
            })
        };
        let mut all: Vec<ProcessId> = ancestors.filter(may_have_reaped).collect();
        all.extend(self.init_of(process).filter(|init| !all.contains(init)));
        all
    }

    /// Whether a process was certainly there after the end of `other`, so that `other` did not reap it. False if `other` lives,
    /// or is not in the tree.
    pub(super) fn has_outlived(&self, process: &Process, other: ProcessId) -> bool {
        self.end_of(Parent::Known(other)).is_some_and(|end| process.last_seen_ns() > end)
    }

    /// When a parent ended, CLOCK_MONOTONIC nanoseconds. `None`: it has not, or the tree does not have it.
    pub(super) fn end_of(&self, parent: Parent) -> Option<u64> {
        self.processes.get(&parent.known()?)?.lifetime.end_ns
    }

    /// The live processes whose parent will not report their end, so that the session must watch for it. The parent lives and is
    /// uninstrumented, or it is unknown. Leaves out processes that were found dead. Leaves out those whose pid only a record names,
    /// since that can be the pid of a process outside the tree.
    pub fn unawaited(&self) -> impl Iterator<Item = &Process> {
        let writes_no_record = |parent: &Process| parent.is_alive() && !parent.is_instrumented();
        let alive = self.by_state.alive.iter().filter_map(|id| self.processes.get(id));
        alive.filter(move |process| {
            process.ids.is_proven
                && process.lifetime.seen_dead_ns.is_none()
                && match process.ancestry.parent {
                    // The launcher writes REAPED for each child, orphans too.
                    Parent::Launcher => false,
                    Parent::Known(id) => self.processes.get(&id).is_some_and(writes_no_record),
                    Parent::Unknown => true,
                }
        })
    }
}
