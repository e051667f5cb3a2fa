//! The rules of the process tree as examples: which processes are counted, what each used, and what may not be concluded.

mod accounts;
mod connector;
mod cpu;
mod exec;
mod failed_spawns;
mod helpers;
mod hostile;
mod membership;
mod namespaces;
mod peaks;
mod peaks_over_exec;
mod reaping;
mod tasks;

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{
    Event, FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_IMAGE, FLAG_NO_STATUS, FLAG_TRACER, NAME_BYTES, Origin,
    Usage,
};
use gpu_track_abi::task::TaskKeys;

use super::process::Observed;
use super::program::unshared_after_fork;
use super::summary::KnownRss;
use super::tolerance::Tolerance;
use super::*;
use crate::model::exit_account::{ExitAccount, Remains, StatCounts};
use crate::model::kernel_event::{KernelEvent, What};

const HERE: u32 = 10;
const INSIDE: u32 = 20;
const LAUNCHER: u32 = 100;
const MAIN: u32 = 101;
const T0: u64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
const MIB_KIB: u64 = 1024;

fn context() -> RunContext {
    RunContext { session_realtime_ns: 7 * T0, ..RunContext::of_test(LAUNCHER, HERE, T0) }
}

fn used(us: u64, max_rss_kib: u64) -> Usage {
    Usage { user_us: us, max_rss_kib, minor_faults: us / 10, ..Usage::default() }
}

/// Applies record after record to a tree, each a millisecond later.
struct Run {
    tree: Tree,
    now_ns: u64,
    /// Pid namespace of the next records' writers.
    pid_ns: u32,
}

impl Run {
    /// With the command's first process started.
    fn new() -> Self {
        let mut run = Self { tree: Tree::new(context()), now_ns: T0, pid_ns: HERE };
        run.start(MAIN, LAUNCHER);
        run
    }

    fn record(&mut self, pid: u32, parent: u32, flags: u8, event: Event) -> &mut Self {
        let origin = Origin { pid, pid_ns: self.pid_ns, parent, monotonic_ns: self.now_ns, flags };
        self.tree.apply(&origin, &event, self.now_ns);
        self.now_ns += MS;
        self
    }

    fn inside(&mut self, pid_ns: u32, apply: impl FnOnce(&mut Self)) -> &mut Self {
        let outside = std::mem::replace(&mut self.pid_ns, pid_ns);
        apply(self);
        self.pid_ns = outside;
        self
    }

    fn start(&mut self, pid: u32, parent: u32) -> &mut Self {
        self.start_as(pid, parent, 0, MIB_KIB, "prog")
    }

    fn start_as(
        &mut self,
        pid: u32,
        parent: u32,
        pidfd_inode: u64,
        max_rss_kib: u64,
        name: &str,
    ) -> &mut Self {
        let mut names = [0; NAME_BYTES];
        names[..name.len()].copy_from_slice(name.as_bytes());
        let realtime_ns = self.now_ns + 6 * T0;
        self.record(
            pid,
            parent,
            0,
            Event::Start {
                realtime_ns,
                pidfd_inode,
                max_rss_kib,
                names,
                rank: Rank::default(),
                task: TaskKeys::NONE,
            },
        )
    }

    /// A program `slow` reports late, and ends with 9 MiB, when the process has had up to 50.
    fn reports_late(&mut self, pid: u32) -> &mut Self {
        let (own, children) = (used(1, 50 * MIB_KIB), used(0, 0));
        let event = Event::Exit { status: 0, vm_hwm_kib: 9 * MIB_KIB, own, children };
        self.start_as(pid, MAIN, 0, 50 * MIB_KIB, "slow").record(pid, MAIN, FLAG_IMAGE, event)
    }

    /// The init of a namespace is made by a process of the collector's, all others by one of their own namespace.
    fn fork(&mut self, pid: u32, parent: u32, max_rss_kib: u64) -> &mut Self {
        let event = Event::Fork {
            realtime_ns: self.now_ns + 6 * T0,
            pidfd_inode: 0,
            max_rss_kib,
            parent_pid_ns: if pid == 1 { HERE } else { self.pid_ns },
        };
        self.record(pid, parent, 0, event)
    }

    fn exit(&mut self, pid: u32, own_us: u64, children_us: u64) -> &mut Self {
        self.exit_with(pid, 0, FLAG_IMAGE, used(own_us, 2 * MIB_KIB), used(children_us, 2 * MIB_KIB))
    }

    fn exit_with(&mut self, pid: u32, parent: u32, flags: u8, own: Usage, children: Usage) -> &mut Self {
        self.record(pid, parent, flags, Event::Exit { status: 3, vm_hwm_kib: 0, own, children })
    }

    fn reaped(&mut self, reaper: u32, child: u32, us: u64) -> &mut Self {
        self.reaped_with(reaper, child, 0, 0, used(us, 2 * MIB_KIB))
    }

    fn reaped_with(&mut self, reaper: u32, child: u32, flags: u8, status: i32, usage: Usage) -> &mut Self {
        let event = Event::Reaped { child, status, reaper_max_rss_kib: MIB_KIB, usage, clock_ns: 0 };
        self.record(reaper, 0, flags, event)
    }

    fn later(&mut self, ms: u64) -> &mut Self {
        self.now_ns += ms * MS;
        self
    }

    /// Finalizes while /proc no longer has these pids.
    fn finalize(&mut self, gone: &[u32]) -> &mut Self {
        let now_ns = self.now_ns;
        finalize(&mut self.tree, now_ns, now_ns, |pid| gone.contains(&pid));
        self
    }

    fn id(&self, pid: u32) -> ProcessId {
        self.tree.youngest_alive(Key { pid_ns: self.pid_ns, pid }).unwrap()
    }

    fn sampled(&mut self, pid: u32, cpu_ns: u64, rss: u64, share: u64) -> &mut Self {
        let (id, now_ns) = (self.id(pid), self.now_ns);
        let observed = &mut self.tree.get_mut(id).unwrap().observed;
        *observed = Observed {
            at_ns: now_ns,
            cpu_ns: Some(cpu_ns),
            counts: StatCounts { user_ticks: 3, system_ticks: 1, ..StatCounts::default() },
            rss_bytes: rss,
            peak_rss_bytes: rss.max(observed.peak_rss_bytes),
            contribution: Contribution::private(share),
            threads: 2,
            ..Observed::default()
        };
        self.later(1)
    }

    /// Its zombie's clock is read.
    fn ends_with_clock(&mut self, pid: u32, cpu_ns: u64) -> &mut Self {
        let id = self.id(pid);
        self.tree.note_remains(id, &Remains { cpu_ns, ..Remains::default() });
        self
    }

    /// The kernel's account of its exit is read.
    fn accounted(&mut self, pid: u32, account: ExitAccount) -> &mut Self {
        let id = self.id(pid);
        self.tree.note_account(id, account);
        self
    }

    fn scan(&mut self, pid: u32, parent: u32) -> &mut Self {
        let key = Key { pid_ns: HERE, pid };
        let (parent, start_ns) = (self.id(parent), self.now_ns);
        self.tree.found_in_proc(&ChildSeen::of_test(key, parent, start_ns));
        self
    }

    /// An event of the connector.
    fn kernel(&mut self, pid: u32, what: What) -> &mut Self {
        self.tree.apply_kernel(&KernelEvent { at_ns: self.now_ns, pid, what }, self.now_ns);
        self.later(1)
    }

    fn kernel_fork(&mut self, pid: u32, parent: u32) -> &mut Self {
        self.kernel(pid, What::Fork { parent })
    }

    fn execs(&mut self, pid: u32) -> &mut Self {
        self.kernel(pid, What::Exec)
    }

    /// The connector reports its end, and /proc no longer has it.
    fn over(&mut self, pid: u32, status: i32) -> &mut Self {
        self.kernel(pid, What::Exit { status });
        for id in ends(&self.tree) {
            let at_ns = self.tree.get(id).and_then(|process| process.end.kernel_exit).unwrap().at_ns;
            self.tree.observe_end(id, at_ns, Some(at_ns));
        }
        self.finalize(&[])
    }

    /// The end of the run.
    fn end(&mut self) -> Vec<ProcessSummary> {
        self.tree.finalize_all(self.now_ns);
        let summaries = self.tree.take_summaries();
        assert!(
            self.tree.processes.is_empty()
                && self.tree.by_state.by_pid.is_empty()
                && self.tree.groups.is_empty()
        );
        summaries
    }
}

/// Finalizes while /proc no longer has the pids that `is_gone` names.
fn finalize(tree: &mut Tree, now_ns: u64, complete_ns: u64, is_gone: impl Fn(u32) -> bool) {
    for target in tree.absence_questions(true).into_iter().filter(|target| is_gone(target.pid)) {
        // The records of a live process are applied before it counts as dead.
        let is_alive = tree.get(target.id).is_some_and(Process::is_alive);
        tree.observe_absence(target.id, now_ns + u64::from(is_alive));
    }
    tree.finalize(now_ns, complete_ns);
}

fn ends(tree: &Tree) -> Vec<ProcessId> {
    tree.ends_to_read().map(|(process, _)| process.ids.id).collect()
}

fn unreported_execs(tree: &Tree) -> Vec<ProcessId> {
    let alive = tree.alive().iter().filter_map(|id| tree.get(*id));
    alive.filter(|process| process.program.unreported_exec.is_some()).map(|process| process.ids.id).collect()
}

fn unread(tree: &Tree, by_ns: u64) -> Vec<ProcessId> {
    tree.programs_to_read(by_ns).map(|process| process.ids.id).collect()
}

fn summary_of(summaries: &[ProcessSummary], pid: u32) -> &ProcessSummary {
    let mut all = summaries.iter().filter(|process| process.ids.pid() == pid);
    let one = all.next().unwrap();
    assert!(all.next().is_none(), "pid {pid} was finalized twice");
    one
}

fn total_us(summaries: &[ProcessSummary]) -> u64 {
    summaries.iter().map(|process| process.own_usage.cpu_us() + process.own_usage.unattributed_us).sum()
}
