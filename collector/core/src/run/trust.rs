//! Whether the records can be true. A process of the tree can write any record into the event ring, but the kernel counts the
//! processes that the machine has made. If records name many more processes, or are more than processes can cause, they are
//! forged. Then no more records are applied.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::tree::Tree;

/// Records may name this many processes more than twice those that the machine has made since the session's start, since some existed
/// before. Twice: a process can be reported from inside and from outside of its pid namespace. More are evidence of forgery.
const MAX_FROM_BEFORE: u64 = 1000;
/// This many live processes of other pid namespaces that only records show are evidence of forgery.
const MOST_UNSEEN: usize = 16_384;
/// Records that a process may cause: fork, a few execs, exit, reaping, and those of its tracers.
const RECORDS_OF_PROCESS: u64 = 16;
/// The records that a core may cause in a second by exec alone, which takes 200 us at least.
const RECORDS_OF_CORE_SECOND: u64 = 20_000;
/// This many records more than processes can cause are no evidence yet.
const FEW_RECORDS: u64 = 100_000;

/// The evidence that records are forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Forgery {
    /// Records name more processes than there can be.
    #[error("they report {reported} processes when the machine had made {made}")]
    Processes {
        /// How many they name.
        reported: u64,
        /// How many the machine has made, threads included.
        made: u64,
    },
    /// Records name live processes that no other source shows.
    #[error("they report {count} live processes that /proc does not show")]
    Unseen {
        /// How many processes.
        count: u64,
    },
    /// There are more records than the machine can have caused.
    #[error("{reported} of them came faster than processes can cause them")]
    Records {
        /// How many records and kernel events were applied.
        reported: u64,
    },
}

/// Compares the records with the kernel's count of processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Trust {
    /// The session's start, CLOCK_MONOTONIC nanoseconds.
    start_ns: u64,
    /// Cores of the machine.
    cores: u64,
    /// The processes and threads that the machine has made since the session's start; `None`: the kernel does not
    /// count them.
    pub(crate) made: Option<u64>,
}

impl Trust {
    /// Makes the comparison for a session that began at `start_ns` (CLOCK_MONOTONIC). `cores`: those of the machine, which bound how many
    /// records there can be. `is_counted`: the kernel counts processes. Its count is taken for 0 until it is first read.
    pub fn new(start_ns: u64, cores: u32, is_counted: bool) -> Self {
        Self { start_ns, cores: cores.into(), made: is_counted.then_some(0) }
    }

    /// The evidence that the records are forged, after this many `findings` (records and kernel events). `None`: there is none.
    /// The kernel's count may be older than the records, so on suspicion the caller must read it anew and ask again.
    pub(crate) fn forgery(&self, tree: &Tree, findings: u64, now_ns: u64) -> Option<Forgery> {
        // Counting the unseen goes through all processes, so a cheap check comes first.
        if tree.may_have_unseen(MOST_UNSEEN)
            && let count = tree.unseen()
            && count >= MOST_UNSEEN
        {
            return Some(Forgery::Unseen { count: count as u64 });
        }
        self.impossible_count(tree.counts().created, findings, now_ns)
    }

    /// The evidence that there are more `reported` processes, or more `findings`, than the machine can have made by `now_ns`
    /// (CLOCK_MONOTONIC). `None`: they are possible, or the kernel does not count processes.
    fn impossible_count(&self, reported: u64, findings: u64, now_ns: u64) -> Option<Forgery> {
        let made = self.made?;
        // `reported` may count a process twice: as seen from outside of its pid namespace, and from inside.
        if reported > made.saturating_mul(2).saturating_add(MAX_FROM_BEFORE) {
            return Some(Forgery::Processes { reported, made });
        }
        let core_ms = now_ns.saturating_sub(self.start_ns) / 1_000_000 * self.cores;
        let by_exec = core_ms.saturating_mul(RECORDS_OF_CORE_SECOND) / 1000;
        let by_processes = made.saturating_mul(RECORDS_OF_PROCESS);
        let possible = by_processes.saturating_add(by_exec).saturating_add(FEW_RECORDS);
        (findings > possible).then_some(Forgery::Records { reported: findings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree::RunContext;
    use gpu_track_abi::record::{Event, Origin};

    const NS: u32 = 10;

    struct Machine {
        trust: Trust,
        tree: Tree,
        findings: u64,
        made: u64,
    }

    impl Machine {
        fn new() -> Self {
            let context = RunContext::of_test(1, NS, 0);
            Self { trust: Trust::new(0, 2, true), tree: Tree::new(context), findings: 0, made: 0 }
        }

        /// Like the session: the kernel's count is read only on suspicion.
        fn forgery(&mut self, now_ns: u64) -> Option<Forgery> {
            self.trust.forgery(&self.tree, self.findings, now_ns)?;
            self.trust.made = Some(self.made);
            self.trust.forgery(&self.tree, self.findings, now_ns)
        }

        /// Records of this many processes, each with a pid of its own in this namespace.
        fn records_of(&mut self, processes: u32, pid_ns: u32) -> Option<Forgery> {
            for _ in 0..processes {
                let pid = 100 + self.tree.counts().created as u32;
                let origin = Origin { pid, pid_ns, parent: 5, monotonic_ns: 1, flags: 0 };
                let event =
                    Event::Fork { realtime_ns: 1, pidfd_inode: 0, max_rss_kib: 1, parent_pid_ns: pid_ns };
                self.tree.apply(&origin, &event, 1);
            }
            self.findings += u64::from(processes);
            self.forgery(1)
        }
    }

    // Requirement: FAULT-89
    #[test]
    fn records_of_more_processes_than_were_made_are_forged() {
        let mut machine = Machine::new();
        assert_eq!(machine.records_of(1000, NS), None, "a few that were there before");
        machine.made = 50_000;
        assert_eq!(machine.records_of(50_000, NS), None, "a fork bomb");
        machine.made = 50_010;
        let reported = machine.records_of(60_000, NS);
        assert_eq!(reported, Some(Forgery::Processes { reported: 111_000, made: 50_010 }));
    }

    // Requirement: FAULT-90
    #[test]
    fn live_processes_known_from_records_alone_are_bounded() {
        let mut machine = Machine::new();
        machine.made = 1_000_000;
        let most = u32::try_from(MOST_UNSEEN).unwrap();
        assert_eq!(machine.records_of(most - 1, NS + 1), None);
        assert_eq!(machine.records_of(1, NS + 1), Some(Forgery::Unseen { count: MOST_UNSEEN as u64 }));
    }

    // Requirement: FAULT-89
    #[test]
    fn records_that_make_no_process_are_bounded_by_time() {
        let mut machine = Machine::new();
        let mut forgery = |findings, s: u64| {
            machine.findings = findings;
            machine.forgery(s * 1_000_000_000)
        };
        assert_eq!(forgery(100_000, 0), None);
        assert_eq!(forgery(100_001, 0), Some(Forgery::Records { reported: 100_001 }));
        assert_eq!(forgery(500_000, 10), None, "ten seconds of exec on two cores");
        assert_eq!(forgery(500_001, 10), Some(Forgery::Records { reported: 500_001 }));
    }

    #[test]
    fn without_a_kernel_count_nothing_is_forged() {
        let mut machine = Machine::new();
        machine.trust = Trust::new(0, 2, false);
        assert_eq!(machine.trust.forgery(&machine.tree, 10_000_000, 1), None);
    }
}
