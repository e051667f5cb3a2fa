//! The pid table maps the pids that drivers name to processes of the run, including those that ended lately.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::GpuPolicy;
use crate::model::gpu::{GpuPids, PidFacts};
use crate::run::tree::{Process, ProcessId, ProcessSummary, Tree};

/// A process of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PidEntry {
    /// Its id in this run, never used twice.
    pub id: u64,
    /// Its pid in the collector's pid namespace; `None`: it is in another one, and its pid here is not known yet.
    pub pid: Option<u32>,
    /// Its pid in its own pid namespace.
    pub own_pid: u32,
    /// Its earliest start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Its latest start, CLOCK_MONOTONIC nanoseconds: a reading before that need not have seen it.
    pub latest_start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds; `None`: it runs.
    pub end_ns: Option<u64>,
    /// It ran before the run attached to it.
    pub ran_before: bool,
    /// The command's first process.
    pub is_main: bool,
    /// Its command name.
    pub command: Arc<str>,
    /// Whether it had a library of a GPU's driver loaded at its end. `None`: it wrote no EXIT record.
    pub had_gpu_library: Option<bool>,
}

impl PidEntry {
    /// Makes the entry of a process that is not finalized.
    pub(super) fn of(process: &Process) -> Self {
        Self {
            id: process.ids.id.0,
            pid: process.ids.host_pid,
            own_pid: process.ids.key.pid,
            start_ns: process.lifetime.earliest_start_ns,
            latest_start_ns: process.lifetime.start_ns,
            end_ns: process.lifetime.end_ns,
            ran_before: process.before.is_some(),
            is_main: process.ids.is_main,
            command: process.name.command.clone(),
            had_gpu_library: process.had_gpu_library(),
        }
    }

    /// Whether it may have lived at some time from `from_ns` to `to_ns`, CLOCK_MONOTONIC nanoseconds. It may have started a little
    /// earlier than is known.
    fn existed_between(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns <= to_ns.saturating_add(GpuPolicy::START_SLACK_NS)
            && self.end_ns.is_none_or(|end| end >= from_ns)
    }

    /// Whether an entry of a driver's list that is unchanged since `since_ns`, CLOCK_MONOTONIC nanoseconds, can be about this
    /// process. Drivers keep some entries after their processes ended, and the kernel uses those pids again.
    pub(super) fn started_by(&self, since_ns: u64) -> bool {
        self.start_ns <= since_ns.saturating_add(GpuPolicy::START_SLACK_NS)
    }
}

/// Running processes, and those that ended lately.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PidTable {
    /// The processes, running and ended ones, by their ids in the run.
    pub(super) entries: HashMap<u64, PidEntry>,
    /// Ids of processes by their pids in the collector's pid namespace. Several can have had one pid, one after another.
    by_pid: BTreeMap<u32, Vec<u64>>,
    /// Ids of processes of other pid namespaces, by their pids there.
    by_own_pid: BTreeMap<u32, Vec<u64>>,
    /// Ids of ended processes, in the order in which they were finalized.
    ended: VecDeque<u64>,
    /// Pids of processes, by the ids of their threads that drivers name.
    leaders: BTreeMap<u32, u32>,
    /// Whether a process that a driver seems to name has a GPU open, by the process's id. `true` stays.
    has_gpu_open: HashMap<u64, bool>,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC, microseconds.
    pub(super) epoch_us: u64,
}

impl PidTable {
    /// Copies the running processes of the tree. Processes that have ended and are not finalized yet get their end, and whether they
    /// had a GPU's library loaded.
    pub(super) fn remember_processes(&mut self, tree: &Tree) {
        for entry in self.entries.values_mut().filter(|entry| entry.end_ns.is_none()) {
            if let Some(process) = tree.get(ProcessId(entry.id)) {
                (entry.end_ns, entry.had_gpu_library) = (process.lifetime.end_ns, process.had_gpu_library());
            }
        }
        for process in tree.alive().iter().filter_map(|id| tree.get(*id)) {
            self.put(PidEntry::of(process));
        }
    }

    /// Takes in a process whose figures are final. From now on it can be forgotten.
    pub(super) fn finalized(&mut self, process: &ProcessSummary) {
        let id = process.ids.id.0;
        // A summary does not tell whether it ran before, so the entry's value stays.
        let ran_before = self.entries.get(&id).is_some_and(|entry| entry.ran_before);
        self.put(PidEntry {
            id,
            pid: process.ids.host_pid,
            own_pid: process.ids.key.pid,
            start_ns: process.starts_ns[0],
            latest_start_ns: process.starts_ns[1],
            end_ns: Some(process.end_ns()),
            ran_before,
            is_main: process.ids.is_main,
            command: process.name.command.clone(),
            had_gpu_library: process.had_gpu_library,
        });
        self.ended.push_back(id);
    }

    /// Takes in what /proc says of an id that a driver names.
    pub(super) fn add_facts(&mut self, pid: u32, facts: &PidFacts) {
        self.add_leader(pid, facts.thread_group_leader);
        self.add_gpu_open(pid, facts.has_gpu_open);
    }

    /// Notes which process a thread belongs to. Some drivers name a process by the id of the thread that opened the device
    /// (NVIDIA's open kernel modules 560.28 and 570.86 do). An id that is no process's pid is then resolved through the
    /// thread group leader.
    fn add_leader(&mut self, pid: u32, leader: Option<u32>) {
        if self.by_pid.contains_key(&pid) {
            return;
        }
        match leader {
            Some(leader) if self.by_pid.contains_key(&leader) => {
                self.leaders.insert(pid, leader);
            }
            // By now, the id is that of a thread outside of the run.
            Some(_) => {
                self.leaders.remove(&pid);
            }
            // The thread ended: what was known of it still holds.
            None => {}
        }
    }

    /// Notes whether the process that a driver names by this id, its pid or a thread's, has a GPU open. `None`: that could not be
    /// read, and nothing changes.
    ///
    /// A pid that a driver names can be of another pid namespace, and equal a pid of the run by chance. If the run's process has no
    /// GPU open, the driver does not mean it. Once the process had one open, it counts as meant until it ends.
    fn add_gpu_open(&mut self, pid: u32, is_open: Option<bool>) {
        let pid = self.leaders.get(&pid).copied().unwrap_or(pid);
        if let (Some(id), Some(is_open)) = (self.running(pid), is_open)
            && self.has_gpu_open.get(&id) != Some(&true)
        {
            self.has_gpu_open.insert(id, is_open);
        }
    }

    /// The id in the run of the running process with this pid in the collector's pid namespace.
    fn running(&self, pid: u32) -> Option<u64> {
        let ids = self.by_pid.get(&pid).into_iter().flatten();
        ids.copied().find(|id| self.entries.get(id).is_some_and(|process| process.end_ns.is_none()))
    }

    /// Whether a process that a driver seems to name is known to have no GPU open.
    fn lacks_gpu(&self, process: &PidEntry) -> bool {
        self.has_gpu_open.get(&process.id) == Some(&false)
    }

    /// Adds a process, or replaces what is known of it, in all indices.
    pub(super) fn put(&mut self, process: PidEntry) {
        let (id, pid, own_pid) = (process.id, process.pid, process.own_pid);
        // The indices change only for a new process, or one whose pid in the collector's namespace became known. `by_own_pid` has
        // the processes of other pid namespaces.
        if self.entries.get(&id).is_none_or(|known| known.pid != pid) {
            self.remove(id);
            if let Some(pid) = pid {
                self.by_pid.entry(pid).or_default().push(id);
            }
            if pid != Some(own_pid) {
                self.by_own_pid.entry(own_pid).or_default().push(id);
            }
        }
        self.entries.insert(id, process);
    }

    /// Removes and returns the processes that ended too long ago for a reading to name them, and the oldest if too many are kept.
    pub(super) fn forget(&mut self, now_ns: u64) -> Vec<PidEntry> {
        let mut gone = Vec::new();
        while let Some(id) = self.ended.front().copied() {
            let end_ns = self.entries.get(&id).and_then(|process| process.end_ns);
            let is_old = end_ns.is_none_or(|end| end.saturating_add(GpuPolicy::ENDED_KEPT_NS) < now_ns);
            if !is_old && self.ended.len() <= GpuPolicy::MOST_ENDED {
                break;
            }
            self.ended.pop_front();
            gone.extend(self.remove(id));
        }
        gone
    }

    /// Removes a process from all indices, and what was known of its threads. Returns it, if it was there.
    fn remove(&mut self, id: u64) -> Option<PidEntry> {
        let process = self.entries.remove(&id)?;
        for (index, pid) in [(&mut self.by_pid, process.pid), (&mut self.by_own_pid, Some(process.own_pid))] {
            if let Some(pid) = pid
                && let Some(ids) = index.get_mut(&pid)
            {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    index.remove(&pid);
                }
            }
        }
        self.leaders.retain(|_, leader| self.by_pid.contains_key(leader));
        self.has_gpu_open.remove(&id);
        Some(process)
    }

    /// The ids by which drivers may name the processes, and which processes have a GPU open.
    pub fn pids(&self) -> GpuPids {
        let has_gpu_open = self.has_gpu_open.iter().filter(|(_, is_open)| **is_open);
        let with_gpu_open = has_gpu_open.filter_map(|(id, _)| {
            let pid = self.entries.get(id)?.pid?;
            // If this process has ended, another one can have its pid.
            (self.running(pid) == Some(*id)).then_some(pid)
        });
        GpuPids {
            processes: self.by_pid.keys().copied().collect(),
            threads: self.leaders.clone(),
            inner: self.by_own_pid.keys().copied().collect(),
            with_gpu_open: with_gpu_open.collect(),
        }
    }

    /// Finds the process that had this pid, or a thread of this id, at some time from `from_ns` to `to_ns`, CLOCK_MONOTONIC
    /// nanoseconds. If several had, one after another, the last is found. If none had, the id can be a pid of another pid namespace:
    /// then finds the only process with this pid in its own namespace. `is_taken` returns whether a process outside the run has the
    /// pid in the collector's namespace and could use a GPU. Then the id means that process, and the result is `None`.
    fn resolve(
        &self,
        pid: u32,
        [from_ns, to_ns]: [u64; 2],
        is_taken: impl FnOnce() -> bool,
    ) -> Option<&PidEntry> {
        let among = |index: &BTreeMap<u32, Vec<u64>>, pid: u32| -> Vec<&PidEntry> {
            let ids = index.get(&pid).into_iter().flatten();
            ids.filter_map(|id| self.entries.get(id)).filter(|p| p.existed_between(from_ns, to_ns)).collect()
        };
        for pid in [Some(pid), self.leaders.get(&pid).copied()].into_iter().flatten() {
            let latest = among(&self.by_pid, pid).into_iter().max_by_key(|process| process.start_ns);
            if latest.is_some() {
                return latest;
            }
        }
        match among(&self.by_own_pid, pid).as_slice() {
            [only] if !is_taken() => Some(only),
            _ => None,
        }
    }

    /// Finds the process that an accounting entry (what a driver in accounting mode keeps of a process that used the device) is
    /// about. It had this pid, or a thread of this id, when the entry began: `started_us`, CLOCK_REALTIME microseconds. Drivers date
    /// entries a little wrong, so the process may have started a little later, or ended a little earlier.
    pub(super) fn resolve_accounting(&self, pid: u32, started_us: u64) -> Option<&PidEntry> {
        let at_us = started_us.saturating_sub(self.epoch_us);
        let slack_us = GpuPolicy::ACCOUNTING_SLACK_US;
        let ran_then = |process: &&PidEntry| {
            let start_us = process.start_ns / 1000;
            let end_us = process.end_ns.map_or(u64::MAX, |end_ns| end_ns / 1000);
            start_us <= at_us.saturating_add(slack_us) && at_us <= end_us.saturating_add(slack_us)
        };
        let pids = [Some(pid), self.leaders.get(&pid).copied()].into_iter().flatten();
        let ids = pids.filter_map(|pid| self.by_pid.get(&pid)).flatten();
        let mut processes = ids.filter_map(|id| self.entries.get(id));
        processes.find(|process| !self.lacks_gpu(process) && ran_then(process))
    }
}

/// Maps the pids that a driver lists to processes of the run.
#[derive(Clone, Copy)]
pub(super) struct PidResolver<'a> {
    /// The processes of the run.
    pub table: &'a PidTable,
    /// What /proc says of the pids that drivers name.
    pub facts: &'a BTreeMap<u32, PidFacts>,
    /// The collector is in a pid namespace of its own.
    pub has_own_pid_ns: bool,
}

impl<'a> PidResolver<'a> {
    /// What /proc says of an id. If it was not read, nothing is known.
    fn facts_of(&self, pid: u32) -> PidFacts {
        self.facts.get(&pid).copied().unwrap_or_default()
    }

    /// Finds the process of the run that the driver means by this id. The driver's list is about the time between the two of
    /// `from_to_ns`, CLOCK_MONOTONIC nanoseconds. `None`: no process of the run has the id, or it has no GPU open.
    pub(super) fn resolve(&self, pid: u32, from_to_ns: [u64; 2]) -> Option<&'a PidEntry> {
        // Kernel threads and zombies have no memory and use no GPU, so a driver that names their pids means another process.
        let is_taken = || self.facts_of(pid).has_memory == Some(true);
        let process = self.table.resolve(pid, from_to_ns, is_taken)?;
        (!self.table.lacks_gpu(process)).then_some(process)
    }

    /// Whether a pid that names no process of the run in the collector's pid namespace may mean one in another namespace. It may if no
    /// process here (in the collector's namespace) has the pid. If a process here has it, that process must have no GPU open or be
    /// gone, and the collector be in a container or sandbox. To the driver, all of a gVisor sandbox is a single process.
    pub(super) fn is_foreign(&self, pid: u32) -> bool {
        let facts = self.facts_of(pid);
        if facts.is_absent {
            return true;
        }
        // A process here has the pid, and outside of a container the driver means that one.
        let is_another_meant = match facts.has_gpu_open {
            Some(is_open) => !is_open,
            // Its open files could not be read. The driver may mean it, unless it is gone (`has_memory` is not known either).
            None => facts.has_memory.is_none(),
        };
        self.has_own_pid_ns && is_another_meant
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl PidTable {
        /// Adds a process that ended.
        pub(crate) fn put_ended(&mut self, process: PidEntry) {
            self.ended.push_back(process.id);
            self.put(process);
        }
    }

    pub(crate) fn process(id: u64, pid: u32, start_ns: u64, end_ns: Option<u64>) -> PidEntry {
        let command = format!("program{id}").into();
        PidEntry {
            id,
            pid: Some(pid),
            own_pid: pid,
            start_ns,
            latest_start_ns: start_ns,
            end_ns,
            ran_before: false,
            is_main: id == 1,
            command,
            had_gpu_library: None,
        }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn reused_pid_resolves_by_time() {
        let mut table = PidTable::default();
        table.put(process(1, 50, S, Some(2 * S)));
        table.put(process(2, 50, 3 * S, None));
        let find = |at| table.resolve(50, [at, at], || false).map(|p| p.id);
        assert_eq!(find(S / 2), None);
        assert_eq!(find(S + S / 2), Some(1));
        assert_eq!(find(2 * S + S / 2), None);
        assert_eq!(find(4 * S), Some(2));
        assert!(!table.entries[&2].started_by(2 * S) && table.entries[&2].started_by(3 * S));
    }

    #[test]
    fn inner_pid_resolves_only_if_unambiguous() {
        let mut table = PidTable::default();
        table.put(PidEntry { own_pid: 5, ..process(1, 900, S, None) });
        assert_eq!(table.resolve(5, [S, S], || false).map(|p| p.pid), Some(Some(900)));
        assert_eq!(table.resolve(5, [S, S], || true), None);
        // The outer pid becomes known later.
        table.put(PidEntry { own_pid: 5, pid: None, ..process(2, 901, S, None) });
        assert_eq!(table.resolve(901, [S, S], || false), None);
        table.put(PidEntry { own_pid: 5, ..process(2, 901, S, None) });
        assert_eq!(table.resolve(901, [S, S], || false).map(|p| p.id), Some(2));
        assert_eq!(table.resolve(5, [S, S], || false), None, "two namespaces, each with a pid 5");
        let pids = table.pids();
        assert_eq!((pids.processes, pids.inner), (vec![900, 901], vec![5]));
    }

    #[test]
    fn thread_id_resolves_to_its_process() {
        let mut table = PidTable::default();
        table.put(process(1, 50, S, None));
        let find = |table: &PidTable| table.resolve(51, [S, S], || false).map(|p| p.id);
        table.add_leader(51, Some(99));
        assert_eq!(find(&table), None, "a thread of a process outside the run");
        table.add_leader(51, Some(50));
        assert_eq!(find(&table), Some(1));
        assert_eq!(table.pids().threads, BTreeMap::from([(51, 50)]));
        table.add_leader(51, None);
        assert_eq!(find(&table), Some(1), "the thread ended");
        table.add_leader(51, Some(99));
        assert_eq!(find(&table), None, "the id was used again, outside the run");
    }

    #[test]
    fn accounting_entry_belongs_to_process_at_its_start() {
        let mut table = PidTable { epoch_us: 1_000_000_000, ..PidTable::default() };
        table.put(process(1, 50, 10 * S, Some(11 * S)));
        table.put(process(2, 50, 60 * S, Some(61 * S)));
        let find = |s: u64| table.resolve_accounting(50, 1_000_000_000 + s * 1_000_000).map(|p| p.id);
        assert_eq!((find(10), find(60), find(30), find(5)), (Some(1), Some(2), None, None));
    }

    #[test]
    fn ended_processes_are_forgotten_after_a_while() {
        let mut table = PidTable::default();
        table.put_ended(process(1, 50, S, Some(2 * S)));
        assert_eq!(table.forget(3 * S), []);
        assert_eq!(table.forget(5 * S).len(), 1);
        assert_eq!(table.pids(), GpuPids::default());
    }

    #[test]
    fn only_running_processes_count_as_with_gpu_open() {
        let mut table = PidTable::default();
        table.put(process(1, 50, S, None));
        table.add_gpu_open(50, Some(false));
        assert_eq!(table.pids().with_gpu_open, [0; 0]);
        table.add_gpu_open(50, Some(true));
        table.add_gpu_open(50, Some(false));
        assert_eq!(table.pids().with_gpu_open, [50]);
        table.put(process(1, 50, S, Some(2 * S)));
        assert_eq!(table.pids().with_gpu_open, [0; 0]);
    }
}
