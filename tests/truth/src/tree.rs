//! From events to processes: the descendants of the counted root and the kernel's figures of each.

use std::collections::HashMap;

use serde::Serialize;

use crate::connector::{Event, What};
use crate::taskstats::Stats;

/// A process (a thread group) that was forked since the subscription.
#[derive(Debug)]
struct Process {
    pid: u32,
    parent: u32,
    /// The index of its parent, if that was forked since the subscription, too.
    parent_index: Option<usize>,
    is_member: bool,
    start_ns: u64,
    end_ns: Option<u64>,
    execs: u64,
    threads: u64,
    status: u32,
}

/// The kernel's figures of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelProcess {
    /// The process's pid in the initial namespace.
    pub pid: u32,
    /// The pid of its parent.
    pub ppid: u32,
    /// The process's start, in seconds after the root's start.
    pub start_s: f64,
    /// The process's end, in seconds after the root's start.
    pub end_s: f64,
    /// The number of its execs. 0: it ended as a copy of its parent. More than one: `hiwater_rss_bytes` covers only the
    /// last image.
    pub execs: u64,
    /// The wait status of its first thread.
    pub status: u32,
    /// The name of its last thread to end.
    pub comm: String,
    /// The peak RSS of its last image (see [`Stats::hiwater_rss_bytes`]).
    pub hiwater_rss_bytes: u64,
}

/// How many events the kernel sent of a process and all of its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Forks, that of the process itself included: so many processes there were.
    pub processes: u64,
    /// Execs.
    pub execs: u64,
    /// Ends.
    pub ended: u64,
}

/// All processes since the subscription.
#[derive(Debug, Default)]
pub struct Tree {
    processes: Vec<Process>,
    live: HashMap<u32, usize>,
    members_alive: usize,
}

impl Tree {
    /// Applies an event.
    pub fn apply(&mut self, event: Event) {
        match event.what {
            What::Fork { parent, pid, tgid } if pid == tgid => self.process_forked(parent, pid, event.at_ns),
            What::Fork { tgid, .. } => {
                if let Some(process) = self.live(tgid) {
                    process.threads += 1;
                }
            }
            What::Exec { tgid } => {
                if let Some(process) = self.live(tgid) {
                    process.execs += 1;
                }
            }
            What::Exit { pid, tgid, status } => self.thread_ended(pid, tgid, status, event.at_ns),
        }
    }

    fn live(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(*self.live.get(&pid)?)
    }

    fn process_forked(&mut self, parent: u32, pid: u32, start_ns: u64) {
        let parent_index = self.live.get(&parent).copied();
        let is_member = parent_index.is_some_and(|index| self.processes[index].is_member);
        self.members_alive += usize::from(is_member);
        self.live.insert(pid, self.processes.len());
        self.processes.push(Process {
            pid,
            parent,
            parent_index,
            is_member,
            start_ns,
            end_ns: None,
            execs: 0,
            threads: 1,
            status: 0,
        });
    }

    /// A process ends with its last thread. (The first thread can end before others, and a thread that calls exec takes
    /// over the first thread's pid.)
    fn thread_ended(&mut self, pid: u32, tgid: u32, status: u32, at_ns: u64) {
        let Some(process) = self.live(tgid) else { return };
        process.threads -= 1;
        if pid == tgid {
            process.status = status;
        }
        if process.threads == 0 {
            process.end_ns = Some(at_ns);
            let was_member = process.is_member;
            self.members_alive -= usize::from(was_member);
            self.live.remove(&tgid);
        }
    }

    /// Makes this process and its descendants the counted tree. Its execs so far are not counted. False if it was not
    /// forked since the subscription.
    pub fn set_root(&mut self, pid: u32) -> bool {
        let Some(root) = self.processes.iter().rposition(|process| process.pid == pid) else { return false };
        self.processes[root].is_member = true;
        self.processes[root].execs = 0;
        for index in root + 1..self.processes.len() {
            let parent = self.processes[index].parent_index;
            self.processes[index].is_member = parent.is_some_and(|parent| self.processes[parent].is_member);
        }
        self.members_alive = self.processes.iter().filter(|p| p.is_member && p.end_ns.is_none()).count();
        true
    }

    /// Counts the events of a process and its descendants, whether they are the counted tree or not. `None`: it was not forked since
    /// the subscription.
    pub fn counts(&self, pid: u32) -> Option<Counts> {
        let first = self.processes.iter().rposition(|process| process.pid == pid)?;
        let mut counts = Counts::default();
        let mut is_in = vec![false; self.processes.len()];
        for (index, process) in self.processes.iter().enumerate().skip(first) {
            is_in[index] = index == first || process.parent_index.is_some_and(|parent| is_in[parent]);
            if is_in[index] {
                counts.processes += 1;
                counts.execs += process.execs;
                counts.ended += u64::from(process.end_ns.is_some());
            }
        }
        Some(counts)
    }

    /// Whether both the fork and the exit of a process with this pid were seen.
    pub fn has_ended(&self, pid: u32) -> bool {
        self.processes.iter().any(|process| process.pid == pid && process.end_ns.is_some())
    }

    /// The number of living processes of the counted tree.
    pub fn members_alive(&self) -> usize {
        self.members_alive
    }

    /// The pids of the living processes of the counted tree.
    pub fn living_members(&self) -> Vec<u32> {
        self.processes.iter().filter(|p| p.is_member && p.end_ns.is_none()).map(|p| p.pid).collect()
    }

    /// The processes of the counted tree in the order of their start, with their figures from taskstats.
    ///
    /// taskstats and connector events come by different sockets, so they are matched by order. For each pid, the last
    /// process that ended belongs to the last message, and so on backwards.
    ///
    /// # Errors
    /// A process that has not ended, or for which there is no taskstats message.
    pub fn with_stats(&self, stats: Vec<Stats>) -> Result<Vec<KernelProcess>, String> {
        let mut of_pid: HashMap<u32, Vec<Stats>> = HashMap::new();
        for end in stats.into_iter().filter(|end| end.is_last) {
            of_pid.entry(end.tgid).or_default().push(end);
        }
        let start_ns = self.processes.iter().find(|p| p.is_member).map_or(0, |root| root.start_ns);
        let seconds = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let mut processes = Vec::new();
        for process in self.processes.iter().rev() {
            let stats = match process.end_ns {
                Some(_) => of_pid.get_mut(&process.pid).and_then(Vec::pop),
                None => None,
            };
            if !process.is_member {
                continue;
            }
            let (Some(end_ns), Some(stats)) = (process.end_ns, stats) else {
                return Err(format!("taskstats said nothing about the end of process {}", process.pid));
            };
            processes.push(KernelProcess {
                pid: process.pid,
                ppid: process.parent,
                start_s: seconds(process.start_ns),
                end_s: seconds(end_ns),
                execs: process.execs,
                status: process.status,
                comm: stats.comm,
                hiwater_rss_bytes: stats.hiwater_rss_bytes,
            });
        }
        processes.reverse();
        Ok(processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(whats: &[What]) -> Tree {
        let mut tree = Tree::default();
        for (at, what) in whats.iter().enumerate() {
            tree.apply(Event { at_ns: at as u64 * 1_000_000_000, what: *what });
            if *what == fork(1, 10) {
                assert!(tree.set_root(10));
            }
        }
        tree
    }

    fn fork(parent: u32, pid: u32) -> What {
        What::Fork { parent, pid, tgid: pid }
    }

    fn exit(pid: u32, status: u32) -> What {
        What::Exit { pid, tgid: pid, status }
    }

    fn end(tgid: u32, rss: u64) -> Stats {
        Stats { pid: tgid, tgid, is_last: true, comm: "x".into(), hiwater_rss_bytes: rss }
    }

    #[test]
    fn only_descendants_of_the_root_are_counted() {
        let events =
            [fork(1, 10), fork(1, 20), fork(10, 11), fork(20, 21), exit(10, 256), fork(11, 12), exit(20, 0)];
        let mut tree = tree(&events);
        assert_eq!(tree.living_members(), [11, 12]);
        for pid in [12, 11, 21] {
            tree.apply(Event { at_ns: 9_000_000_000, what: exit(pid, 9) });
        }
        assert_eq!(tree.members_alive(), 0);
        let stats = [10, 20, 12, 11, 21].map(|pid| end(pid, u64::from(pid)));
        let processes = tree.with_stats(stats.into()).unwrap();
        let figures: Vec<_> =
            processes.iter().map(|p| (p.pid, p.ppid, p.status, p.hiwater_rss_bytes)).collect();
        assert_eq!(figures, [(10, 1, 256, 10), (11, 10, 9, 11), (12, 11, 9, 12)]);
        assert_eq!((processes[1].start_s, processes[1].end_s), (2.0, 9.0));
    }

    #[test]
    fn trees_beside_each_other_are_counted_each() {
        let exec = |tgid| What::Exec { tgid };
        let events = [
            fork(1, 10),
            exec(10),
            fork(1, 20),
            fork(10, 11),
            exec(11),
            fork(20, 21),
            exit(11, 0),
            fork(11, 99),
        ];
        let tree = tree(&events);
        assert_eq!(tree.counts(10), Some(Counts { processes: 2, execs: 2, ended: 1 }));
        assert_eq!(tree.counts(20), Some(Counts { processes: 2, execs: 0, ended: 0 }));
        assert_eq!(tree.counts(30), None);
    }

    #[test]
    fn root_that_is_set_late_has_the_same_descendants() {
        let mut tree = Tree::default();
        let events =
            [fork(1, 10), exit(10, 7), fork(1, 10), fork(10, 11), fork(1, 20), fork(11, 12), exit(11, 0)];
        for (at_ns, what) in (0..).zip(events) {
            tree.apply(Event { at_ns, what });
        }
        assert!(tree.set_root(10) && !tree.set_root(13));
        assert_eq!((tree.living_members(), tree.members_alive()), (vec![10, 12], 2));
    }

    #[test]
    fn process_lives_as_long_as_any_of_its_threads() {
        let thread = |pid| What::Fork { parent: 10, pid, tgid: 10 };
        let thread_exit = |pid| What::Exit { pid, tgid: 10, status: 0 };
        let mut tree = tree(&[fork(1, 10), thread(11), thread(12), exit(10, 512), thread_exit(11)]);
        assert_eq!(tree.members_alive(), 1);
        tree.apply(Event { at_ns: 7_000_000_000, what: thread_exit(12) });
        assert_eq!(tree.members_alive(), 0);
        let mut of_threads = end(10, 5);
        of_threads.is_last = false;
        let processes = tree.with_stats(vec![of_threads, end(10, 6)]).unwrap();
        assert_eq!((processes[0].status, processes[0].end_s, processes[0].hiwater_rss_bytes), (512, 7.0, 6));
    }

    #[test]
    fn processes_with_the_same_pid_are_distinguished() {
        // The first process with pid 11 started before the subscription; the last one is not of the tree.
        let events = [
            fork(1, 10),
            exit(11, 0),
            fork(10, 11),
            exit(11, 1),
            fork(10, 11),
            exit(11, 2),
            fork(1, 11),
            exit(11, 3),
            exit(10, 0),
        ];
        let stats = vec![end(11, 100), end(11, 101), end(11, 102), end(11, 103), end(10, 10)];
        let processes = tree(&events).with_stats(stats).unwrap();
        let figures: Vec<_> = processes.iter().map(|p| (p.pid, p.status, p.hiwater_rss_bytes)).collect();
        assert_eq!(figures, [(10, 0, 10), (11, 1, 101), (11, 2, 102)]);
    }

    #[test]
    fn execs_are_counted_and_a_missing_exit_is_an_error() {
        let tree = tree(&[fork(1, 10), What::Exec { tgid: 10 }, What::Exec { tgid: 10 }, exit(10, 0)]);
        assert_eq!(tree.with_stats(vec![end(10, 1)]).unwrap()[0].execs, 2);
        assert!(tree.with_stats(vec![end(11, 1)]).is_err());
    }
}
