//! The processes of the run: which there are, how they are related, and what each used.
//!
//! Observations come in ([`Tree::apply`], [`Tree::apply_kernel`], [`Tree::found_in_proc`], ...). Out come
//! [`LiveInterval`]s, for RAM and CPU over time, and [`ProcessSummary`]s, the final figures. A process is finalized and
//! forgotten as soon as no record can change its figures. So memory does not grow with the length of the run.
//!
//! Every record is a claim of the process that wrote it. An impossible record may lead to a wrong process, but never to a
//! panic, an endless loop or unbounded memory.
//!
//! `process` has what is known of one process; `program`, `cpu` and `peak` conclude from that. `apply_records`, `reaped`,
//! `apply_kernel_events` and `discovery` apply records, the connector's events and what /proc shows; `lifecycle`, `ancestry`,
//! `namespaces` and `finalize` keep the tree.

mod ancestry;
mod announced;
mod apply_kernel_events;
mod apply_records;
pub(crate) mod before;
mod by_state;
mod claims;
mod contribution;
mod counts;
pub(in crate::run) mod cpu;
mod discovery;
mod failed_spawns;
mod finalize;
mod helpers;
mod image_groups;
mod interval;
mod lifecycle;
mod namespace;
mod namespaces;
mod peak;
pub(crate) mod process;
mod process_lookup;
pub(in crate::run) mod program;
mod reaped;
mod records;
pub(in crate::run) mod summary;
pub(crate) mod task_table;
#[cfg(test)]
mod tests;
pub(in crate::run) mod tolerance;
mod unfinalized;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

pub(crate) use crate::model::config::Layer;
pub(crate) use crate::model::ids::{ImageGroup, Key, Parent, ProcessId, TaskId};
pub(crate) use crate::model::observation::{ChildSeen, OverBefore, Program, UnreportedMemory};
pub(crate) use crate::model::quality::Quality;
pub use contribution::Contribution;
pub use counts::Counts;
pub(crate) use image_groups::Group;
pub use interval::LiveInterval;
pub(crate) use process::{Image, Process};
pub(crate) use summary::MissingRam;
pub use summary::ProcessSummary;

use crate::model::containers::WantedContainers;
use announced::Announced;
use before::IoBefore;
use by_state::ByState;
use image_groups::ImageGroups;
use namespace::{Forks, PidNumber};
use process::Finalized;
use task_table::TaskTable;
use unfinalized::UnfinalizedProcesses;

/// The constants of the run that the tree needs.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct RunContext {
    /// The launcher's pid.
    pub launcher_pid: u32,
    /// Inode of the launcher's (and the collector's) pid namespace.
    pub pid_ns: u32,
    /// CLOCK_MONOTONIC at the session's start, nanoseconds.
    pub session_monotonic_ns: u64,
    /// CLOCK_REALTIME at the session's start, nanoseconds.
    pub session_realtime_ns: u64,
    /// Bytes of a page.
    pub page: u64,
    /// Microseconds of a clock tick.
    pub tick_us: u64,
    /// The run has a first process: the launcher starts a command, or attaches to a process. Without one, all processes of the
    /// run join it.
    pub has_main: bool,
}

#[cfg(test)]
impl RunContext {
    /// Makes the constants of a run with a command. Launcher and collector are in the namespace `pid_ns`, and both clocks show
    /// `start_ns` at the session's start.
    pub(crate) fn of_test(launcher_pid: u32, pid_ns: u32, start_ns: u64) -> Self {
        Self {
            launcher_pid,
            pid_ns,
            session_monotonic_ns: start_ns,
            session_realtime_ns: start_ns,
            page: 4096,
            tick_us: 10_000,
            has_main: true,
        }
    }
}

/// The processes of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tree {
    context: RunContext,
    processes: UnfinalizedProcesses,
    by_state: ByState,
    groups: ImageGroups,
    /// Forks in other pid namespaces, by the inode of each namespace.
    forks: FxHashMap<u32, Forks>,
    /// The newest pid of which the pidfd's inode is known. From this pair other pids are concluded.
    pid_number: Option<PidNumber>,
    /// Intervals that [`Self::take_intervals`] has not taken.
    intervals: Vec<LiveInterval>,
    /// Finalized processes that [`Self::take_summaries`] has not taken.
    summaries: Vec<ProcessSummary>,
    recently_finalized: VecDeque<Finalized>,
    counts: Counts,
    next_id: u64,
    /// The command's first process, or the process that the run attached to. `None`: it is not known yet, or the run has none.
    main: Option<ProcessId>,
    /// Execs that the connector reported before the command's first process was known: its pid, and when it exec'd
    /// (CLOCK_MONOTONIC nanoseconds).
    early_execs: Vec<(Key, u64)>,
    /// The block I/O from before the attach. `None`: the run has not attached to a process.
    pub(crate) io_before: Option<IoBefore>,
    /// Zombies that had ended before the run began, and were not reaped as far as known.
    over_before: Vec<OverBefore>,
    /// What PROGRAM records told of programs before they ran.
    announced: FxHashMap<Key, Announced>,
    /// The containers that processes of the tree ask daemons for.
    pub(crate) wanted_containers: WantedContainers,
    /// The command and its arguments, until its pid is known.
    command: Vec<String>,
    /// The tasks of a pipeline.
    pub(crate) tasks: TaskTable,
}

impl Tree {
    /// Makes a tree without processes.
    pub fn new(context: RunContext) -> Self {
        Self { context, ..Self::default() }
    }

    /// What never changes during the run: its launcher, its start, and units of the machine.
    pub(crate) fn context(&self) -> &RunContext {
        &self.context
    }

    /// The counts over the whole run.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// A process that is not finalized. `None`: it is, or was never in the tree.
    pub fn get(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    /// A process that is not finalized, to be changed. `None`: it is, or was never in the tree.
    pub(crate) fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    /// The live processes, oldest first.
    pub fn alive(&self) -> &[ProcessId] {
        &self.by_state.alive
    }

    /// The processes that ended and are not finalized, without helpers (processes of gpu-track itself).
    pub(super) fn ended(&self) -> impl Iterator<Item = &Process> {
        let ended = self.by_state.ended.iter().filter_map(|id| self.get(*id));
        ended.filter(|process| !process.ids.is_helper)
    }

    /// The live processes without those that joined, oldest first.
    pub(super) fn live_descendants(&self) -> impl Iterator<Item = &Process> {
        let live = self.alive().iter().filter_map(|id| self.get(*id));
        live.filter(|process| !process.has_joined())
    }

    /// The processes that are not finalized, helpers (processes of gpu-track itself) included.
    pub(crate) fn unfinalized(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// The pids, in the collector's namespace, of the processes that are not finalized.
    pub fn host_pids(&self) -> impl Iterator<Item = u32> {
        self.unfinalized().filter_map(|process| process.ids.host_pid)
    }

    /// Whether the command's first process, or the process that the run attached to, is known.
    pub fn has_main(&self) -> bool {
        self.main.is_some()
    }

    /// Whether the run has a command, or a process that it attached to.
    pub(crate) fn expects_main(&self) -> bool {
        self.context.has_main
    }

    /// An image group. `None`: no live process is in it.
    pub(crate) fn group(&self, group: ImageGroup) -> Option<&Group> {
        self.groups.get(group)
    }

    /// How often a process has joined or left an image group (processes that may share anonymous pages), or got another kind of image.
    pub(crate) fn group_changes(&self) -> u64 {
        self.groups.changes
    }

    /// The latest time at which a process that is not finalized existed or ended, as far as known, CLOCK_MONOTONIC
    /// nanoseconds. 0: there is no such process.
    pub fn last_seen_ns(&self) -> u64 {
        let last_seen = |process: &Process| process.last_seen_ns().max(process.lifetime.end_ns.unwrap_or(0));
        self.processes.values().map(last_seen).max().unwrap_or(0)
    }

    /// CPU time of processes that are not finalized, as far as it was counted, nanoseconds.
    #[cfg(test)]
    pub(crate) fn counted_cpu_ns(&self) -> u64 {
        self.processes.values().fold(0, |sum: u64, process| sum.saturating_add(process.cpu.counted_cpu_ns))
    }

    /// Takes the waiting intervals, each up to `at_ns`, CLOCK_MONOTONIC nanoseconds. The part of an interval after that, and
    /// intervals that began later, wait for the next call.
    pub fn take_intervals(&mut self, at_ns: u64) -> Vec<LiveInterval> {
        let mut taken = Vec::with_capacity(self.intervals.len());
        for interval in std::mem::take(&mut self.intervals) {
            if interval.start_ns >= at_ns {
                self.intervals.push(interval);
            } else if interval.end_ns > at_ns {
                // The CPU time of both parts goes with the first. So that of the second counts as counted up to its end.
                self.intervals.push(LiveInterval {
                    start_ns: at_ns,
                    likely_start_ns: at_ns,
                    counted_at_ns: interval.end_ns,
                    cpu_ns: 0,
                    ..interval.clone()
                });
                taken.push(LiveInterval { end_ns: at_ns, ..interval });
            } else {
                taken.push(interval);
            }
        }
        taken
    }

    /// The intervals that wait to be taken.
    pub fn waiting_intervals(&self) -> &[LiveInterval] {
        &self.intervals
    }

    /// Takes the processes that were finalized since the last call.
    pub fn take_summaries(&mut self) -> Vec<ProcessSummary> {
        std::mem::take(&mut self.summaries)
    }

    /// The parent's pid in the collector's namespace, where it is known and the parent is not finalized.
    pub(crate) fn parent_host_pid(&self, process: &Process) -> Option<u32> {
        self.processes.get(&process.ancestry.parent.known()?)?.ids.host_pid
    }

    /// Finds the live process with this pid: the youngest, if records name several. `None`: none is alive, or known.
    pub(crate) fn youngest_alive(&self, key: Key) -> Option<ProcessId> {
        let of_pid = self.by_state.by_pid.get(&key)?;
        of_pid.iter().rev().copied().find(|id| self.processes.get(id).is_some_and(Process::is_alive))
    }

    /// Whether the process with this pid and pidfd inode (0: unknown), which started at about `start_ns` (CLOCK_MONOTONIC
    /// nanoseconds), is known. It is in the tree, dead or alive, or had ended before the run began. If one of the two inodes is
    /// unknown, any live process of the pid is taken for it.
    fn knows(&self, key: Key, pidfd_inode: u64, start_ns: u64) -> bool {
        if self.was_over_before(key, start_ns) {
            return true;
        }
        let Some(of_pid) = self.by_state.by_pid.get(&key) else { return false };
        let mut youngest_first = of_pid.iter().rev().filter_map(|id| self.processes.get(id));
        youngest_first.any(|process| {
            let are_inodes_known = process.ids.pidfd_inode != 0 && pidfd_inode != 0;
            (process.is_alive() && !are_inodes_known) || process.identity().can_be(pidfd_inode, start_ns)
        })
    }
}
