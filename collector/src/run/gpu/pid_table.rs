//! Whose pid is it: the processes of the run as a driver may name them, those that ended lately included.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::run::tree::{ProcessId, Settled, Tree};

/// A process is known to exist a little before its own record says so.
const BEFORE_START_NS: u64 = 20_000_000;
/// A driver dates what it says of a process up to this much off.
const ACCOUNT_SLACK_US: u64 = 1_000_000;
/// How long one that ended is remembered: samples come late.
const KEPT_NS: u64 = 2_000_000_000;
/// Most of those.
const KEPT: usize = 16_384;

/// A process as GPU usage knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Its name in this run, never used twice.
    pub id: u64,
    /// Its pid as we see it; `None`: it is in another pid namespace, and /proc has not told yet.
    pub pid: Option<u32>,
    /// Its pid as itself sees it.
    pub own_pid: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds; `None`: it lives.
    pub end_ns: Option<u64>,
    /// The command's first process.
    pub is_main: bool,
    /// Its command name.
    pub command: Arc<str>,
}

impl Person {
    fn lived_between(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns <= to_ns.saturating_add(BEFORE_START_NS) && self.end_ns.is_none_or(|end| end >= from_ns)
    }

    /// Whether a list entry that has been there unchanged since `since_ns` can be about this process: the driver keeps
    /// some entries beyond their process's end, and then the pid is used again.
    #[must_use]
    pub fn was_there_at(&self, since_ns: u64) -> bool {
        self.start_ns <= since_ns.saturating_add(BEFORE_START_NS)
    }
}

/// The living, and those that ended lately.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Roster {
    people: HashMap<u64, Person>,
    by_pid: HashMap<u32, Vec<u64>>,
    by_own_pid: HashMap<u32, Vec<u64>>,
    ended: VecDeque<u64>,
    /// Processes of threads by whose ids drivers name them.
    leaders: HashMap<u32, u32>,
    /// Of those that a driver seems to name, who has a GPU open.
    has_gpu_open: HashMap<u64, bool>,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC, microseconds.
    epoch_us: u64,
}

impl Roster {
    /// Set the difference of the real and the monotonic clock, microseconds.
    pub fn set_epoch(&mut self, epoch_us: u64) {
        self.epoch_us = epoch_us;
    }

    /// When the oldest of them began, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn oldest_ns(&self) -> Option<u64> {
        self.people.values().map(|person| person.start_ns).min()
    }

    /// Take in who lives now, and whose end is known since, although more may be learnt of it.
    pub fn update(&mut self, tree: &Tree) {
        for person in self.people.values_mut().filter(|person| person.end_ns.is_none()) {
            person.end_ns = tree.get(ProcessId(person.id)).and_then(|process| process.end_ns);
        }
        for process in tree.alive().iter().filter_map(|id| tree.get(*id)) {
            self.put(Person {
                id: process.id.0,
                pid: process.host_pid,
                own_pid: process.key.pid,
                start_ns: process.start_ns,
                end_ns: process.end_ns,
                is_main: process.is_main,
                command: process.command.clone(),
            });
        }
    }

    /// Take in who ended.
    pub fn settled(&mut self, process: &Settled) {
        let id = process.id.0;
        self.put(Person {
            id,
            pid: process.host_pid,
            own_pid: process.own_pid,
            start_ns: process.start_ns,
            end_ns: Some(process.start_ns.saturating_add(process.wall_ns)),
            is_main: process.is_main,
            command: process.command.clone(),
        });
        self.ended.push_back(id);
    }

    /// Some drivers name a process by the id of the thread that opened the device (NVIDIA's open kernel modules 560.28 and
    /// 570.86 do): if this is nobody's pid, `leader_of` is asked for the pid of the process with a thread of that id.
    pub fn meet(&mut self, pid: u32, leader_of: impl FnOnce(u32) -> Option<u32>) {
        if self.by_pid.contains_key(&pid) {
            return;
        }
        match leader_of(pid) {
            Some(leader) if self.by_pid.contains_key(&leader) => drop(self.leaders.insert(pid, leader)),
            Some(_) => drop(self.leaders.remove(&pid)),
            // It is over: what was known of it stands.
            None => {}
        }
    }

    /// Where a driver's pids may be those of another namespace, so that they are others' here by chance: if this is one's
    /// pid, or that of a thread, `has_gpu_open` is asked whether the process has a GPU open, until it has.
    pub fn check(&mut self, pid: u32, has_gpu_open: impl FnOnce(u32) -> Option<bool>) {
        let pid = self.leaders.get(&pid).copied().unwrap_or(pid);
        let ids = self.by_pid.get(&pid).into_iter().flatten();
        let living = ids.filter_map(|id| self.people.get(id)).find(|person| person.end_ns.is_none());
        if let Some(id) = living.map(|person| person.id)
            && self.has_gpu_open.get(&id) != Some(&true)
            && let Some(is_open) = has_gpu_open(pid)
        {
            self.has_gpu_open.insert(id, is_open);
        }
    }

    /// Whether a process that a driver seems to name had no GPU open then.
    #[must_use]
    pub fn is_other(&self, person: &Person) -> bool {
        self.has_gpu_open.get(&person.id) == Some(&false)
    }

    /// Put in one.
    pub fn put(&mut self, person: Person) {
        let (id, pid, own_pid) = (person.id, person.pid, person.own_pid);
        if self.people.get(&id).is_none_or(|known| known.pid != pid) {
            self.remove(id);
            if let Some(pid) = pid {
                self.by_pid.entry(pid).or_default().push(id);
            }
            if pid != Some(own_pid) {
                self.by_own_pid.entry(own_pid).or_default().push(id);
            }
        }
        self.people.insert(id, person);
    }

    /// Forget those that ended long ago; gives them back.
    pub fn forget(&mut self, now_ns: u64) -> Vec<Person> {
        let mut gone = Vec::new();
        while let Some(id) = self.ended.front().copied() {
            let is_old = self
                .people
                .get(&id)
                .is_none_or(|person| person.end_ns.is_none_or(|end| end.saturating_add(KEPT_NS) < now_ns));
            if !is_old && self.ended.len() <= KEPT {
                break;
            }
            self.ended.pop_front();
            gone.extend(self.remove(id));
        }
        gone
    }

    fn remove(&mut self, id: u64) -> Option<Person> {
        let person = self.people.remove(&id)?;
        for (index, pid) in [(&mut self.by_pid, person.pid), (&mut self.by_own_pid, Some(person.own_pid))] {
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
        Some(person)
    }

    /// All of them.
    pub fn people(&self) -> impl Iterator<Item = &Person> {
        self.people.values()
    }

    /// The pids of all of them, and the ids of threads that they were named by.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.by_pid.keys().chain(self.leaders.keys()).copied().collect()
    }

    /// Who had this pid at that time (between these times), or a thread of that id: by our pid, else by its own where our
    /// namespace has no process of that pid (`is_taken`).
    pub fn find(
        &self,
        pid: u32,
        from_ns: u64,
        to_ns: u64,
        is_taken: impl FnOnce(u32) -> bool,
    ) -> Option<&Person> {
        let among = |index: &HashMap<u32, Vec<u64>>, pid: u32| -> Vec<&Person> {
            let ids = index.get(&pid).into_iter().flatten();
            ids.filter_map(|id| self.people.get(id)).filter(|p| p.lived_between(from_ns, to_ns)).collect()
        };
        for pid in [Some(pid), self.leaders.get(&pid).copied()].into_iter().flatten() {
            let of_pid = among(&self.by_pid, pid);
            if let Some(person) = of_pid.into_iter().max_by_key(|person| person.start_ns) {
                return Some(person);
            }
        }
        match among(&self.by_own_pid, pid).as_slice() {
            [only] if !is_taken(pid) => Some(only),
            _ => None,
        }
    }

    /// Whom an account that began at that time (microseconds since the epoch) is about.
    #[must_use]
    pub fn find_account(&self, pid: u32, started_us: u64) -> Option<&Person> {
        let us = started_us.saturating_sub(self.epoch_us);
        let pids = [Some(pid), self.leaders.get(&pid).copied()].into_iter().flatten();
        let ids = pids.filter_map(|pid| self.by_pid.get(&pid)).flatten();
        ids.filter_map(|id| self.people.get(id)).filter(|person| !self.is_other(person)).find(|person| {
            let end = person.end_ns.map_or(u64::MAX, |end| (end / 1000).saturating_add(ACCOUNT_SLACK_US));
            (us.saturating_add(ACCOUNT_SLACK_US) >= person.start_ns / 1000) && us <= end
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn person(id: u64, pid: u32, start_ns: u64, end_ns: Option<u64>) -> Person {
        let command = format!("program{id}").into();
        Person { id, pid: Some(pid), own_pid: pid, start_ns, end_ns, is_main: id == 1, command }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_pid_used_twice_is_told_apart_by_time() {
        let mut roster = Roster::default();
        roster.put(person(1, 50, S, Some(2 * S)));
        roster.put(person(2, 50, 3 * S, None));
        let find = |at| roster.find(50, at, at, |_| false).map(|p| p.id);
        assert_eq!(find(S / 2), None);
        assert_eq!(find(S + S / 2), Some(1));
        assert_eq!(find(2 * S + S / 2), None);
        assert_eq!(find(4 * S), Some(2));
        assert!(!roster.people[&2].was_there_at(2 * S) && roster.people[&2].was_there_at(3 * S));
    }

    #[test]
    fn a_pid_of_another_namespace_is_taken_only_if_it_can_be_nobody_else() {
        let mut roster = Roster::default();
        roster.put(Person { own_pid: 5, ..person(1, 900, S, None) });
        assert_eq!(roster.find(5, S, S, |_| false).map(|p| p.pid), Some(Some(900)));
        assert_eq!(roster.find(5, S, S, |_| true), None);
        // Its outer pid is learnt later.
        roster.put(Person { own_pid: 5, pid: None, ..person(2, 901, S, None) });
        assert_eq!(roster.find(901, S, S, |_| false), None);
        roster.put(Person { own_pid: 5, ..person(2, 901, S, None) });
        assert_eq!(roster.find(901, S, S, |_| false).map(|p| p.id), Some(2));
        assert_eq!(roster.find(5, S, S, |_| false), None, "two namespaces, each with a pid 5");
    }

    #[test]
    fn a_process_may_be_named_by_a_threads_id() {
        let mut roster = Roster::default();
        roster.put(person(1, 50, S, None));
        let find = |roster: &Roster| roster.find(51, S, S, |_| false).map(|p| p.id);
        roster.meet(51, |_| Some(99));
        assert_eq!(find(&roster), None, "a stranger's");
        roster.meet(51, |_| Some(50));
        assert_eq!(find(&roster), Some(1));
        roster.meet(51, |_| None);
        assert_eq!(find(&roster), Some(1), "the thread is over");
        roster.meet(51, |_| Some(99));
        assert_eq!(find(&roster), None, "its id is another's now");
    }

    #[test]
    fn an_account_belongs_to_whom_it_began_with() {
        let mut roster = Roster::default();
        roster.set_epoch(1_000_000_000);
        roster.put(person(1, 50, 10 * S, Some(11 * S)));
        roster.put(person(2, 50, 60 * S, Some(61 * S)));
        let find = |s: u64| roster.find_account(50, 1_000_000_000 + s * 1_000_000).map(|p| p.id);
        assert_eq!((find(10), find(60), find(30), find(5)), (Some(1), Some(2), None, None));
    }

    #[test]
    fn those_that_ended_are_forgotten_after_a_while() {
        let mut roster = Roster::default();
        roster.put(person(1, 50, S, Some(2 * S)));
        roster.ended.push_back(1);
        assert_eq!(roster.forget(3 * S), []);
        assert_eq!(roster.forget(5 * S).len(), 1);
        assert!(roster.pids().is_empty() && roster.by_own_pid.is_empty());
    }
}
