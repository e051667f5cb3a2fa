//! Processes of other pid namespaces. The connector reports them by their pids in the collector's namespace, and their records
//! carry their pids in their own ("inside"). This file finds out which two of these pids belong to one process.
//!
//! No source has both pids of a process that lives for a millisecond. So each record from inside is matched to a process that the
//! kernel reported. The best match was made by the parent that the record names, was alive then, and had exec'd or not, as the
//! record says. The number of the record's pidfd (Linux 6.9) counts more than all that. Among equals, the pid that comes next is
//! taken. A record that fits none goes to a process of that namespace without a record, rather than to a process that is added.
//! If the process still exists, NSpid in /proc decides.
//!
//! Without the connector, the init of a namespace may be known by its EXIT record alone: a raw clone (bwrap) writes no FORK, and
//! its parent's pid is 0 inside. A REAPED record of a reaper outside is then matched to an unreaped init by status and CPU time:
//! see `reaped_inside`.

use super::ancestry::ReplacedAncestors;
use super::namespace::{ForkNumber, PidNumber};
use super::process::Ancestry;
use super::{Image, Key, Parent, Process, ProcessId, Tree};

/// What a record says of a process that may be known from the connector alone. The record is from another pid namespace
/// ("inside").
pub(super) struct MatchQuery {
    /// Its pid inside.
    pub key: Key,
    /// Its parent's pid, in the namespace in which the record names it. A process that was made for a new namespace names its
    /// parent there by the pid that the parent itself has.
    pub parent: Key,
    /// Inode of a pidfd of it; 0: unknown.
    pub pidfd_inode: u64,
    /// When the record was written, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// What the record reports.
    pub evidence: MatchEvidence,
}

impl MatchQuery {
    /// Whether the record names the parent by a pid inside. Pid 0 is a parent outside.
    fn has_parent_inside(&self) -> bool {
        self.parent.pid != 0 && self.parent.pid_ns == self.key.pid_ns
    }
}

/// What has happened to the process by the record. The connector reports the same, so it is evidence of which process is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchEvidence {
    /// It exec'd.
    Exec,
    /// It was just made.
    Fork,
    /// It ends.
    Exit,
    /// It has ended with this wait status.
    Reaped(i32),
}

impl Tree {
    /// Counts a fork of this process that the connector reported. Returns the fork's number in the pid namespace of the process.
    /// `None`: that namespace is the collector's, or not known.
    pub(super) fn count_fork(&mut self, maker: ProcessId) -> Option<ForkNumber> {
        let pid_ns = self.namespace_of(self.processes.get(&maker)?)?;
        let forks = self.forks.entry(pid_ns).or_default();
        forks.count += 1;
        Some(ForkNumber { pid_ns, number: forks.count })
    }

    /// The inode of the other pid namespace that a process is in. `None`: it is in the collector's, as far as known.
    pub(super) fn namespace_of(&self, process: &Process) -> Option<u32> {
        if process.ids.key.pid_ns != self.context.pid_ns {
            return Some(process.ids.key.pid_ns);
        }
        // The key of a process that only the kernel has reported is of the collector's namespace. Its fork number names its own.
        process.ids.fork_number.map(|fork| fork.pid_ns)
    }

    /// Finds the init of the other pid namespace that a process is in, if that is another process.
    pub(super) fn init_of(&self, process: &Process) -> Option<ProcessId> {
        let of_pid = self.by_state.by_pid.get(&Key { pid_ns: self.namespace_of(process)?, pid: 1 })?;
        of_pid.last().copied().filter(|init| *init != process.ids.id)
    }

    /// Notes that a process ended at `at_ns`, CLOCK_MONOTONIC nanoseconds, and was not killed. So its pid namespace's init had
    /// not ended before: with the init, the kernel kills all others.
    pub(super) fn note_unkilled_end(&mut self, id: ProcessId, at_ns: u64) {
        // The end of the init itself shows nothing.
        let Some(process) = self.processes.get(&id).filter(|process| process.ids.key.pid != 1) else {
            return;
        };
        let Some(pid_ns) = self.namespace_of(process) else { return };
        if let Some(forks) = self.forks.get_mut(&pid_ns) {
            forks.last_unkilled_end_ns = forks.last_unkilled_end_ns.max(at_ns);
        }
    }

    /// Notes that a process of the collector's pid namespace has a pidfd of this inode (0: unknown). From this pair
    /// [`PidNumber::pid_of`] concludes which pid belongs to another inode.
    pub(crate) fn note_number(&mut self, pid: u32, inode: u64) {
        if inode != 0 {
            self.pid_number = Some(PidNumber { pid, inode });
        }
    }

    /// Finds the process that a record from another pid namespace is about, if only the connector has reported it: the one with
    /// the best [`Self::score`]. Notes the process's pid inside, and that of its parent if it is unknown. `None`: none can be
    /// meant.
    ///
    /// Without pidfs (before Linux 6.9), siblings that start at once may be confused where threads take pids between them.
    pub(super) fn match_in_namespace(&mut self, query: &MatchQuery) -> Option<ProcessId> {
        if query.key.pid_ns == self.context.pid_ns {
            return None;
        }
        let parent = self.parent_of(query.parent).known();
        let candidates = self.by_state.known_by_kernel_alone.iter().filter_map(|id| self.processes.get(id));
        let scored = candidates.filter_map(|p| Some((self.score(p, query, parent)?, p.ids.id)));
        let (_, id) = scored.max()?;
        let process = self.processes.get(&id)?;
        let maker = process.ancestry.parent;
        if let Some(pid) = process.ids.host_pid {
            self.note_number(pid, query.pidfd_inode);
        }
        self.set_pid_inside(id, query.key);
        // The record also names the pid inside of the process's parent.
        if let (None, Parent::Known(maker)) = (parent, maker)
            && query.has_parent_inside()
            && self.by_state.known_by_kernel_alone.contains(&maker)
            && self.lacks_pid_inside(maker)
        {
            self.set_pid_inside(maker, query.parent);
        }
        Some(id)
    }

    /// Whether the record of the query can be about a process that only the connector has reported. Its pid inside must be unknown,
    /// and it must have been made before the record. Pidfd and wait status must be those of the record, as far as both are known. A process
    /// ends in the tree when its own records are all applied: from then on, only a record of its reaper can be about it.
    fn can_be_meant(&self, process: &Process, query: &MatchQuery) -> bool {
        let inode = process.ids.pidfd_inode;
        let has_other_pidfd = inode != 0 && query.pidfd_inode != 0 && inode != query.pidfd_inode;
        let is_in_state = match query.evidence {
            MatchEvidence::Reaped(status) => process.end.kernel_exit.is_some_and(|end| end.status == status),
            MatchEvidence::Exec | MatchEvidence::Fork | MatchEvidence::Exit => process.is_alive(),
        };
        process.ids.key.pid_ns == self.context.pid_ns
            && process.lifetime.start_ns <= query.at_ns
            && !has_other_pidfd
            && is_in_state
    }

    /// How well a process matches the query: the best has the largest score. `None`: it can't be meant. `parent`: the
    /// process that the record names as the parent, if that is known. What is compared first counts most: the pidfd and its
    /// number, then the parents, then whether the process lived and had exec'd. Last comes how near its expected pid inside is to the
    /// record's.
    fn score(
        &self,
        process: &Process,
        query: &MatchQuery,
        parent: Option<ProcessId>,
    ) -> Option<impl Ord + use<>> {
        if !self.can_be_meant(process, query) {
            return None;
        }
        let ids = &process.ids;
        // `can_be_meant` has compared known pidfds. Else the number of the record's pidfd tells which pid its process must have.
        let is_same_pidfd = ids.pidfd_inode != 0 && query.pidfd_inode != 0;
        let pid_number = self.pid_number.filter(|_| query.pidfd_inode != 0);
        let has_expected_pid = pid_number.is_some_and(|pair| pair.pid_of(query.pidfd_inode) == ids.host_pid);
        let parent_score = self.parent_score(process, query, parent)?;
        // It was alive when it wrote the record. Its reaper wrote a REAPED record, after its end.
        let end = process.end.kernel_exit;
        let was_alive = matches!(query.evidence, MatchEvidence::Reaped(_))
            || end.is_none_or(|end| end.at_ns >= query.at_ns);
        let has_execd =
            process.program.unreported_exec.is_some() || process.program.image == Image::Uninstrumented;
        let is_likely = match query.evidence {
            MatchEvidence::Exec => has_execd,
            MatchEvidence::Fork => !has_execd,
            MatchEvidence::Exit | MatchEvidence::Reaped(_) => true,
        };
        let forks = self.forks.get(&query.key.pid_ns).copied().unwrap_or_default();
        let fork = ids.fork_number.filter(|fork| fork.pid_ns == query.key.pid_ns);
        // Threads take pids, too, so its pid is the expected one or somewhat larger: `ahead` should be 0 or little below.
        let ahead = fork.map_or(0, |fork| forks.expected_pid(fork.number) - i64::from(query.key.pid));
        Some((is_same_pidfd, has_expected_pid, parent_score, was_alive, is_likely, ahead <= 0, -ahead.abs()))
    }

    /// How well a process's parent matches the parent that the record names: 3 is best, 0 worst. `None`: they can't be the
    /// same. `parent`: the process that the record names as the parent, if that is known.
    fn parent_score(&self, process: &Process, query: &MatchQuery, parent: Option<ProcessId>) -> Option<u8> {
        let is_numbered = process.ids.fork_number.is_some_and(|fork| fork.pid_ns == query.key.pid_ns);
        match (process.ancestry.parent, parent) {
            (Parent::Known(maker), Some(parent)) if maker == parent => Some(3),
            // Its parent is known by its pid outside alone, as an uninstrumented process is.
            (Parent::Known(maker), None) if query.has_parent_inside() && self.lacks_pid_inside(maker) => {
                Some(3)
            }
            // Its parent has ended, so another process has adopted it, and the record names that one.
            (Parent::Known(maker), Some(_)) if is_numbered && self.has_ended(maker) => Some(2),
            // The record names no known parent: this may be the first process in its namespace, or one that entered it.
            (_, None) => Some(1),
            // The parent may have been confused with another process. The connector reports all processes of the namespace, so
            // this one can still be meant.
            _ if is_numbered && !matches!(query.evidence, MatchEvidence::Reaped(_)) => Some(0),
            _ => None,
        }
    }

    /// Whether a process is alive and known only by its pid in the collector's namespace. If it is in another namespace, its pid
    /// inside is unknown.
    fn lacks_pid_inside(&self, id: ProcessId) -> bool {
        !self.has_ended(id)
            && self.processes.get(&id).is_some_and(|process| process.ids.key.pid_ns == self.context.pid_ns)
    }

    /// Whether a process has ended, as far as records or the connector have reported. A process that left the tree has.
    fn has_ended(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_none_or(|process| !process.is_alive() || process.end.kernel_exit.is_some())
    }

    /// Sets the pid inside its namespace of a process that the connector reported. The pids of later forks there are expected to
    /// follow that pid. Children that named the pid as their parent's become children of the process.
    fn set_pid_inside(&mut self, id: ProcessId, key: Key) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.ids.key = key;
        let fork = process.ids.fork_number.take().filter(|fork| fork.pid_ns == key.pid_ns);
        let forks = self.forks.entry(key.pid_ns).or_default();
        // A process without a number there is taken for the newest fork.
        forks.last_known = (key.pid, fork.map_or(forks.count, |fork| fork.number));
        self.by_state.by_pid.entry(key).or_default().push(id);
        self.by_state.inner.insert((key.pid_ns, id));
        self.adopt(key, id);
    }

    /// Applies the pid inside that /proc showed for a process that may be known from the connector alone. If the tree has a live
    /// process of that pid, which records alone have reported, both are the same process. The entry of the records stays, and `id` is forgotten.
    /// Returns the id of the entry that stays.
    pub(crate) fn found_inside(&mut self, id: ProcessId, key: Key) -> ProcessId {
        let own_ns = self.context.pid_ns;
        let Some(process) = self.processes.get(&id).filter(|p| p.ids.key.pid_ns == own_ns) else { return id };
        let (host_pid, seen) = (process.ids.key.pid, process.ancestry);
        let Some(known) = self.youngest_alive(key).filter(|known| *known != id) else {
            self.set_pid_inside(id, key);
            return id;
        };
        // If it has a host pid, its records were matched with another process.
        if self.processes.get(&known).is_none_or(|process| process.ids.host_pid.is_some()) {
            return id;
        }
        self.forget(id);
        self.take_ancestry(known, &seen);
        let is_child = |process: &&mut Process| process.ancestry.parent == Parent::Known(id);
        for process in self.processes.values_mut().filter(is_child) {
            process.ancestry.parent = Parent::Known(known);
        }
        let nearest = self.uninstrumented_ancestor(Parent::Known(known));
        self.replace_uninstrumented_ancestors(&ReplacedAncestors::from_iter([(id, nearest)]));
        self.set_host_pid(known, host_pid);
        known
    }

    /// Gives a process what the connector had told of its ancestry under another id (`seen`). Its records may have named a parent that is
    /// not known inside.
    fn take_ancestry(&mut self, id: ProcessId, seen: &Ancestry) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let ancestry = &mut process.ancestry;
        ancestry.has_children |= seen.has_children;
        ancestry.is_watched |= seen.is_watched;
        if ancestry.parent == Parent::Unknown && seen.parent != Parent::Unknown {
            ancestry.parent = seen.parent;
            ancestry.uninstrumented_ancestor = seen.uninstrumented_ancestor;
            self.by_state.unparented.remove(&id);
            self.inherit_task(id);
        }
    }
}
