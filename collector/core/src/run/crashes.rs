//! The processes that crashed, by signal and command: a fault of their own ended them, or the kernel did for lack of memory. A
//! command can succeed although processes of its tree crashed.
//!
//! - Only processes that a signal ended count. With an exit code of 128 + N, a shell reports the end of its child, which is
//!   counted itself.
//! - Some processes end themselves by the signal that ended their child (`timeout`, gpu-track-run). Then only the child counts.
//! - No source says which process sent a SIGKILL. So SIGKILL counts only as far as the kernel counted out-of-memory kills.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ};
use serde::{Deserialize, Serialize};

use super::push_last;
use super::tree::ProcessSummary;
use crate::model::report::{Crash, OTHER_COMMANDS};
use crate::model::signal::signal_name;
use crate::model::sorting::Sorting;

/// Signals that the kernel sends for a fault of the process, or at its limit of CPU time or file size, and SIGABRT.
const FAULTS: [i32; 9] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ];

/// Maximum number of pairs of signal and command that are counted by themselves; the others share a name.
const MAX_PAIRS: usize = 1000;
/// Maximum number of crashes that are kept one by one, to be compared with those of their parents and children: the last ones.
const MAX_RECENT: usize = 64;
/// A process passes the signal of its child on within this time: it only has to wake up.
const PASSED_ON_NS: u64 = 1_000_000_000;

/// The crashes of a run. The size of this state is bounded, however many there are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Crashes {
    /// How many, by signal and command. Processes that SIGKILL ended are here, too.
    counts: BTreeMap<(i32, Arc<str>), u64>,
    /// The last [`MAX_RECENT`] crashes by a fault.
    recent: VecDeque<RecentCrash>,
}

/// What is kept of a crash, to compare it with crashes of the process's parent and children.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RecentCrash {
    pid: u32,
    parent_pid: Option<u32>,
    /// CLOCK_MONOTONIC, nanoseconds.
    end_ns: u64,
    /// Signal, and the name under which it is counted.
    counted_as: (i32, Arc<str>),
}

impl RecentCrash {
    /// Whether this process is the parent of `child` and ended itself by the signal that had just ended the child. The times
    /// tell which came first, as processes are finalized in any order.
    fn passes_on(&self, child: &Self) -> bool {
        child.parent_pid == Some(self.pid)
            && child.counted_as.0 == self.counted_as.0
            && self.end_ns >= child.end_ns
            && self.end_ns - child.end_ns <= PASSED_ON_NS
    }
}

impl Crashes {
    /// Takes in a finalized process, and counts it if a signal of [`FAULTS`] or SIGKILL ended it. If a parent passed its child's
    /// signal on, only the child counts.
    pub(super) fn add_if_crashed(&mut self, process: &ProcessSummary) {
        let Some(signal) = process.exit.signal else { return };
        // Which of these the kernel sent for lack of memory is not known here: `list` compares their number with the kernel's count.
        if signal == SIGKILL {
            self.count(signal, &process.name.command);
            return;
        }
        if !FAULTS.contains(&signal) {
            return;
        }
        let crash = RecentCrash {
            pid: process.ids.pid(),
            parent_pid: process.parent_pid,
            end_ns: process.end_ns(),
            counted_as: (signal, process.name.command.clone()),
        };
        // This process is the parent, and its child counts already.
        if self.recent.iter().any(|child| crash.passes_on(child)) {
            return;
        }
        // This process is the child, and its parent was finalized and counted first.
        if let Some(index) = self.recent.iter().position(|parent| parent.passes_on(&crash)) {
            self.take_back(index);
        }
        let counted_as = self.count(signal, &process.name.command);
        push_last(&mut self.recent, RecentCrash { counted_as, ..crash }, MAX_RECENT);
    }

    /// Counts a crash. A new pair of signal and command is counted as [`OTHER_COMMANDS`] if there are [`MAX_PAIRS`] pairs already.
    /// Returns the pair under which the crash was counted.
    fn count(&mut self, signal: i32, command: &Arc<str>) -> (i32, Arc<str>) {
        let own = (signal, command.clone());
        let is_full = self.counts.len() >= MAX_PAIRS && !self.counts.contains_key(&own);
        let counted_as = if is_full { (signal, OTHER_COMMANDS.into()) } else { own };
        *self.counts.entry(counted_as.clone()).or_default() += 1;
        counted_as
    }

    /// Takes back a recent crash, given by its index: the process only passed on the signal of its child, which counts instead.
    fn take_back(&mut self, index: usize) {
        let Some(parent) = self.recent.remove(index) else { return };
        if let Some(count) = self.counts.get_mut(&parent.counted_as) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&parent.counted_as);
            }
        }
    }

    /// Lists the crashes, most processes first, build systems' probes last. `oom_kills`: how many processes the kernel killed
    /// for lack of memory. If SIGKILL ended more processes than that, it is not known which of them the kernel killed. Then one
    /// entry without a command stands for those kills.
    pub(crate) fn list(&self, oom_kills: u64) -> Vec<Crash> {
        let crash = |signal, command: Option<&str>, count| Crash {
            command: command.map(str::to_owned),
            signal,
            signal_name: signal_name(signal),
            count,
            is_probe: command.is_some_and(is_probe),
            // Only reports that are merged from those of several nodes have places.
            places: Vec::new(),
        };
        let of_sigkill = self.counts.iter().filter(|((signal, _), _)| *signal == SIGKILL);
        let killed: u64 = of_sigkill.map(|(_, count)| count).sum();
        let are_all_known = killed <= oom_kills;
        let is_counted = |signal| signal != SIGKILL || are_all_known;
        let counted = self.counts.iter().filter(|((signal, _), _)| is_counted(*signal));
        let mut list: Vec<Crash> =
            counted.map(|((signal, command), count)| crash(*signal, Some(command), *count)).collect();
        if !are_all_known && oom_kills > 0 {
            list.push(crash(SIGKILL, None, oom_kills));
        }
        list.order_by(order);
        list
    }
}

/// The order in which crashes are listed: see [`Crashes::list`].
fn order(a: &Crash, b: &Crash) -> Ordering {
    let key = |crash: &Crash| (crash.is_probe, Reverse(crash.count));
    key(a).cmp(&key(b)).then_with(|| (a.signal, &a.command).cmp(&(b.signal, &b.command)))
}

/// Whether a build system makes programs of this name only to see whether they run. Autoconf calls them `conftest`. CMake calls
/// them `cmTC_` with a number of five hexadecimal digits (cmCoreTryCompile.cxx).
fn is_probe(command: &str) -> bool {
    let of_cmake = command.strip_prefix("cmTC_");
    command == "conftest"
        || of_cmake.is_some_and(|number| number.len() == 5 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Exit;
    use crate::run::cause::tests::process;

    const S: u64 = 1_000_000_000;

    /// A process that a signal ended at this time.
    fn dead(pid: u32, parent_pid: u32, command: &str, signal: i32, end_ns: u64) -> ProcessSummary {
        let whole = process(pid, command, Exit { code: None, signal: Some(signal) });
        ProcessSummary { parent_pid: Some(parent_pid), start_ns: 0, wall_ns: end_ns, ..whole }
    }

    /// What is reported: signals, commands and counts.
    fn listed(processes: &[ProcessSummary], oom_kills: u64) -> Vec<(String, Option<String>, u64)> {
        let mut crashes = Crashes::default();
        processes.iter().for_each(|process| crashes.add_if_crashed(process));
        // A restarted collector goes on from this.
        let kept: Crashes = postcard::from_bytes(&postcard::to_stdvec(&crashes).unwrap()).unwrap();
        kept.list(oom_kills).into_iter().map(|c| (c.signal_name, c.command, c.count)).collect()
    }

    fn listed_crash(signal: &str, command: &str, count: u64) -> (String, Option<String>, u64) {
        (signal.to_owned(), Some(command.to_owned()), count)
    }

    // Requirement: WHY-9
    #[test]
    fn crashes_are_counted_by_signal_and_command() {
        let workers = (20..23).map(|pid| dead(pid, 10, "worker", libc::SIGSEGV, 2 * S));
        let others = [
            dead(30, 10, "tool", libc::SIGABRT, 3 * S),
            dead(31, 10, "server", libc::SIGTERM, 3 * S),
            dead(32, 10, "head", libc::SIGPIPE, 3 * S),
            process(33, "sh", Exit { code: Some(139), signal: None }),
        ];
        let all: Vec<_> = workers.chain(others).collect();
        assert_eq!(
            listed(&all, 0),
            [listed_crash("SIGSEGV", "worker", 3), listed_crash("SIGABRT", "tool", 1)]
        );
    }

    // Requirement: WHY-9, WHY-60
    #[test]
    fn process_that_passes_its_childs_signal_on_did_not_crash() {
        let child = dead(21, 20, "crash", libc::SIGSEGV, 2 * S);
        let timeout = dead(20, 10, "timeout", libc::SIGSEGV, 2 * S + S / 100);
        for order in [[child.clone(), timeout.clone()], [timeout.clone(), child.clone()]] {
            assert_eq!(listed(&order, 0), [listed_crash("SIGSEGV", "crash", 1)]);
        }
        // Another signal, or a later end, is a crash of its own.
        for parent in [
            dead(20, 10, "parent", libc::SIGABRT, 2 * S + S / 100),
            dead(20, 10, "parent", libc::SIGSEGV, 4 * S),
        ] {
            assert_eq!(listed(&[child.clone(), parent], 0).len(), 2);
        }
    }

    // Requirement: WHY-9, WHY-59
    #[test]
    fn sigkill_counts_as_far_as_the_kernel_killed_for_lack_of_memory() {
        let workers: Vec<_> = (20..23).map(|pid| dead(pid, 10, "worker", libc::SIGKILL, 2 * S)).collect();
        assert_eq!(listed(&workers, 0), []);
        assert_eq!(listed(&workers, 3), [listed_crash("SIGKILL", "worker", 3)]);
        // Which of them the kernel killed is not known.
        assert_eq!(listed(&workers, 2), [("SIGKILL".to_owned(), None, 2)]);
    }

    // Requirement: WHY-9
    #[test]
    fn test_programs_of_build_systems_are_marked() {
        for (name, expected) in [
            ("conftest", true),
            ("cmTC_1a2b3", true),
            ("cmTC_tool", false),
            ("conftests", false),
            ("a.out", false),
        ] {
            assert_eq!(is_probe(name), expected, "{name}");
        }
    }

    #[test]
    fn size_does_not_depend_on_how_many_commands_crash() {
        let many: Vec<_> =
            (0..3000).map(|pid| dead(pid + 20, 10, &format!("x{pid}"), libc::SIGSEGV, S)).collect();
        let listed = listed(&many, 0);
        assert_eq!(
            (listed.len(), &listed[0]),
            (MAX_PAIRS + 1, &listed_crash("SIGSEGV", OTHER_COMMANDS, 2000))
        );
    }
}
