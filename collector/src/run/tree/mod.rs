//! Who is who, who made whom, and who ended how: the processes of the run, from the events of all layers.
//!
//! Events come in ([`Tree::apply`], [`Tree::found_in_proc`], ...); out come ended lives ([`LiveInterval`], for the RAM over
//! time) and settled processes ([`Settled`], with their final figures). A process is settled and forgotten as soon
//! as nothing more can be learnt of it, so a run of a million processes needs no more memory than a run of ten.
//!
//! Whatever a record says is a claim: an impossible one may produce a wrong process, never a panic, a loop or
//! memory without bound.

mod events;
mod inner;
mod kernel;
pub mod process;
mod processes;
mod settle;
#[cfg(test)]
mod tests;
mod usage_math;
mod view;

pub(crate) use usage_math::plus;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::model::observation::{ChildSeen, Program, UnreportedMemory};
pub use process::{Image, Process};

use crate::model::ids::Target;
pub use crate::model::ids::{FoundBy, ImageGroup, Key, Parent, ProcessId};
pub use crate::model::quality::Quality;
pub use settle::Settled;

use process::Observed;
use processes::Processes;

/// The constants of the run that the tree needs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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
}

/// What held memory, or counted as a process, for a time that no pair of samples spans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveInterval {
    /// A whole process, to be counted; else its memory, or that of one of its images.
    pub is_process: bool,
    /// The command's first process?
    pub is_main: bool,
    /// Who it was.
    pub id: ProcessId,
    /// Its pid.
    pub pid: u32,
    /// Its command name.
    pub command: Arc<str>,
    /// From when, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// To when.
    pub end_ns: u64,
    /// Its share of the tree's RAM at its largest since it was last sampled, bytes.
    pub bytes: u64,
    /// When its CPU time was last counted.
    pub counted_at_ns: u64,
    /// CPU time since then, nanoseconds.
    pub cpu_ns: u64,
    /// Threads, as far as known.
    pub threads: u64,
}

/// Members of an image group, oldest first, and how often that changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Group {
    /// Live processes that share the image.
    pub members: Vec<ProcessId>,
    /// Counts changes: a proportional set size is only good for one epoch.
    pub epoch: u64,
}

/// The processes of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tree {
    context: RunContext,
    processes: Processes,
    /// Instances that are not settled, oldest first.
    index: HashMap<Key, Vec<ProcessId>>,
    groups: HashMap<ImageGroup, Group>,
    /// Oldest first, so in the order of their ids.
    alive: Vec<ProcessId>,
    ended: Vec<ProcessId>,
    /// Of the living: who was seen dead.
    seen_dead: BTreeSet<ProcessId>,
    /// Those whose parent nobody knows yet.
    strays: BTreeSet<ProcessId>,
    /// Those of other pid namespaces, by namespace.
    inner: BTreeSet<(u32, ProcessId)>,
    /// By the inode of another pid namespace.
    forks: HashMap<u32, inner::Forks>,
    numbered: Option<inner::Numbered>,
    /// Those that are known from the kernel alone.
    mute: BTreeSet<ProcessId>,
    /// Those of whom the kernel says that they ended as who could not exec does.
    could_not_exec: BTreeSet<ProcessId>,
    /// Those of our pid namespace that are known by records alone, as far as they are new.
    unproven: BTreeSet<ProcessId>,
    intervals: Vec<LiveInterval>,
    settled: Vec<Settled>,
    /// Who may be silent, and who may be over, by the kernel's word.
    silent: BTreeSet<ProcessId>,
    kernel_ends: BTreeSet<ProcessId>,
    /// Processes whose program was read, and that may still write a START record for it, in the order of the readings.
    unconfirmed: VecDeque<ProcessId>,
    /// Those settled last.
    departed: VecDeque<Departed>,
    next_id: u64,
    next_group: u64,
    main: Option<ProcessId>,
    born: u64,
    failed_spawns: u64,
    autoreaped: u64,
    outside: u64,
    /// Execs that the kernel told of before the launcher told of the command.
    early_execs: Vec<(Key, u64)>,
    lost: u64,
    silent_programs: u64,
}

/// A settled process, as far as records that come late may still be about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Departed {
    key: Key,
    id: ProcessId,
    command: Arc<str>,
    awaits_reaping: bool,
    settled_ns: u64,
}

/// How many of those are kept.
const DEPARTED_KEPT: usize = 4096;

/// So many of one pid don't wait for their reapers' words at a time: the pid was used again, so they are reaped.
const MOST_OF_ONE_PID: usize = 64;

impl Tree {
    /// An empty tree.
    #[must_use]
    pub fn new(context: RunContext) -> Self {
        Self {
            context,
            processes: Processes::default(),
            index: HashMap::new(),
            groups: HashMap::new(),
            alive: Vec::new(),
            ended: Vec::new(),
            seen_dead: BTreeSet::new(),
            strays: BTreeSet::new(),
            inner: BTreeSet::new(),
            mute: BTreeSet::new(),
            could_not_exec: BTreeSet::new(),
            unproven: BTreeSet::new(),
            intervals: Vec::new(),
            settled: Vec::new(),
            silent: BTreeSet::new(),
            kernel_ends: BTreeSet::new(),
            unconfirmed: VecDeque::new(),
            forks: HashMap::new(),
            numbered: None,
            departed: VecDeque::new(),
            next_id: 0,
            next_group: 0,
            main: None,
            born: 0,
            failed_spawns: 0,
            autoreaped: 0,
            outside: 0,
            early_execs: Vec::new(),
            lost: 0,
            silent_programs: 0,
        }
    }

    /// The constants of the run.
    #[must_use]
    pub fn context(&self) -> &RunContext {
        &self.context
    }

    /// A process that is not settled.
    #[must_use]
    pub fn get(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(&id)
    }

    /// A process that is not settled.
    pub fn get_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    /// The live processes, oldest first.
    #[must_use]
    pub fn alive(&self) -> &[ProcessId] {
        &self.alive
    }

    /// Pids of the live processes, as we see them.
    pub fn host_pids(&self) -> impl Iterator<Item = u32> {
        self.alive.iter().filter_map(|id| self.processes.get(id)?.host_pid)
    }

    /// A live image group.
    #[must_use]
    pub fn group(&self, group: ImageGroup) -> Option<&Group> {
        self.groups.get(&group)
    }

    /// Processes that ever lived, as far as known.
    #[must_use]
    pub fn born(&self) -> u64 {
        self.born
    }

    /// Children of posix_spawn that could not exec. They are in [`Tree::born`], and have no figures of their own.
    #[must_use]
    pub fn failed_spawns(&self) -> u64 {
        self.failed_spawns
    }

    /// Processes that the kernel reaped by itself: because their parent ignores SIGCHLD, or because it killed them with
    /// the init of their pid namespace. Nobody's sums have what they used.
    #[must_use]
    pub fn autoreaped(&self) -> u64 {
        self.autoreaped
    }

    /// Processes that joined, and of which nobody in the tree told that it waited for them. Where the kernel told of all
    /// processes of the tree, a service started them for the command (`srun`), with its environment, and the launcher's sums
    /// don't have what they used.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Those that the kernel reaped of whom nobody can tell what they used.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How often a process ran a program that never said anything, as far as the kernel told.
    #[must_use]
    pub fn silent_programs(&self) -> u64 {
        self.silent_programs
    }

    /// When anybody was last there for certain, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn last_sign_ns(&self) -> u64 {
        let last_sign = |process: &Process| process.last_sign_ns().max(process.end_ns.unwrap_or(0));
        self.processes.values().map(last_sign).max().unwrap_or(0)
    }

    /// CPU time of the unsettled that was counted so far, nanoseconds.
    #[must_use]
    pub fn counted_cpu_ns(&self) -> u64 {
        self.processes.values().fold(0, |sum: u64, process| sum.saturating_add(process.counted_cpu_ns))
    }

    /// What is known of lives up to this time. What is left of them, and those that began later, wait for the next time.
    pub fn take_intervals(&mut self, at_ns: u64) -> Vec<LiveInterval> {
        let mut taken = Vec::with_capacity(self.intervals.len());
        for life in std::mem::take(&mut self.intervals) {
            if life.start_ns >= at_ns {
                self.intervals.push(life);
            } else if life.end_ns > at_ns {
                self.intervals.push(LiveInterval {
                    start_ns: at_ns,
                    counted_at_ns: life.end_ns,
                    cpu_ns: 0,
                    ..life.clone()
                });
                taken.push(LiveInterval { end_ns: at_ns, ..life });
            } else {
                taken.push(life);
            }
        }
        taken
    }

    /// How many are waiting to be taken.
    #[must_use]
    pub fn intervals_waiting(&self) -> usize {
        self.intervals.len()
    }

    /// When the last of those ended that wait to be taken and held so much, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn last_end_of(&self, bytes: u64) -> Option<u64> {
        self.intervals.iter().filter(|life| life.bytes >= bytes).map(|life| life.end_ns).max()
    }

    /// Processes that were settled since this was last asked.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// The launcher's word on the command's first process.
    pub fn set_main(&mut self, pid: u32, start_ns: u64, command: &str) {
        let key = Key { pid_ns: self.context.pid_ns, pid };
        let id = match self.main {
            Some(id) => id,
            None => match self.open_instance(key) {
                Some(id) => id,
                None => self.insert(key, Parent::Launcher, FoundBy::Subreaper, start_ns),
            },
        };
        self.main = Some(id);
        self.adopt(key, id);
        self.apply_early_exec(id, key);
        if let Some(process) = self.processes.get_mut(&id) {
            process.is_main = true;
            process.is_proven = true;
            process.start_ns = start_ns.min(process.start_ns);
            process.counted_at_ns = process.counted_at_ns.max(start_ns);
            if !process.spoke {
                process.command = Arc::from(command);
            }
        }
    }

    /// The parent's pid in the collector's namespace, where it is known and not final.
    #[must_use]
    pub fn parent_host_pid(&self, process: &Process) -> Option<u32> {
        let Parent::Known(parent) = process.parent else { return None };
        self.processes.get(&parent)?.host_pid
    }

    /// A live process with this pid, the youngest if there are several claims.
    #[must_use]
    pub fn open_instance(&self, key: Key) -> Option<ProcessId> {
        let of_pid = self.index.get(&key)?;
        of_pid.iter().rev().copied().find(|id| self.processes.get(id).is_some_and(Process::is_alive))
    }

    /// Whether this pid and pidfd inode, of a process that started at about this time, belong to one that is not
    /// settled, be it dead.
    #[must_use]
    pub fn knows(&self, key: Key, pidfd_inode: u64, start_ns: u64) -> bool {
        let of_pid = self.index.get(&key).into_iter().flatten().filter_map(|id| self.processes.get(id));
        of_pid.rev().any(|process| {
            let are_known = process.pidfd_inode != 0 && pidfd_inode != 0;
            (process.is_alive() && !are_known) || process.identity().can_be(pidfd_inode, start_ns)
        })
    }

    /// A child that /proc shows below a known process.
    pub fn found_in_proc(&mut self, child: &ChildSeen) -> ProcessId {
        let parent = Parent::Known(child.parent);
        let id = self.insert(child.key, parent, FoundBy::Scan, child.start_ns);
        if let Some(process) = self.processes.get_mut(&id) {
            process.host_pid = Some(child.host_pid);
            process.pidfd_inode = child.pidfd_inode;
        }
        // Until it is known to run something else, it may share its parent's memory.
        if let Some(group) = self.processes.get(&child.parent).map(|parent| parent.group) {
            self.join_group(id, group);
        }
        if child.key.pid_ns != self.context.pid_ns {
            self.index.entry(Key { pid_ns: self.context.pid_ns, pid: child.host_pid }).or_default().push(id);
        }
        self.adopt(child.key, id);
        id
    }

    /// /proc told which of our pids a process of another pid namespace has.
    pub fn set_host_pid(&mut self, id: ProcessId, host_pid: u32) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.host_pid.is_none() {
            process.host_pid = Some(host_pid);
            process.is_proven = true;
            self.index.entry(Key { pid_ns: self.context.pid_ns, pid: host_pid }).or_default().push(id);
        }
    }

    /// What /proc tells at this time (CLOCK_MONOTONIC, nanoseconds) of the memory of a live process of which this image
    /// never said anything itself. That it is one of its own does not count where the kernel tells of execs: its word is
    /// about to come, with the time.
    pub fn set_silent_image(&mut self, id: ProcessId, memory: UnreportedMemory, at_ns: u64) {
        let was_forked = |process: &Process| matches!(process.image, Image::Forked { .. });
        let said = |process: &Process| {
            (process.spoke && !was_forked(process)) || (process.is_watched && memory == UnreportedMemory::Own)
        };
        let Some(process) = self.processes.get_mut(&id).filter(|process| !said(process)) else { return };
        let image = match memory {
            UnreportedMemory::Parents => Image::Borrowed,
            UnreportedMemory::Copy => Image::Unknown,
            UnreportedMemory::Own => Image::Silent,
        };
        if was_forked(process) && memory == UnreportedMemory::Own {
            // What it had of its parent's memory goes with the image. It may still say what it runs now.
            let peak = process.told_peak;
            process.change_image(Some(&mut self.intervals), image, at_ns, peak);
            process.args = None;
        } else {
            process.image = image;
        }
        let group = process.group;
        if memory == UnreportedMemory::Own
            && self.groups.get(&group).is_some_and(|group| group.members.len() > 1)
        {
            let own = self.new_group();
            self.join_group(id, own);
        }
    }

    /// Live processes that only records tell of, as far as they are new: the pid that a record names may be that of a
    /// process outside of the tree.
    pub fn memberships_to_check(&self) -> impl Iterator<Item = Target> {
        let unproven = self.unproven.iter().filter_map(|id| self.processes.get(id));
        unproven.filter(|process| process.is_alive() && !process.is_proven).filter_map(Process::target)
    }

    /// Whether the pid of such a process is that of a process of the tree. If not, nothing is counted for it.
    pub fn prove(&mut self, id: ProcessId, is_ours: bool, now_ns: u64) {
        self.unproven.remove(&id);
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.is_alive()) else { return };
        if is_ours {
            process.is_proven = true;
        } else {
            process.host_pid = None;
            self.end(id, now_ns);
        }
    }

    /// Whether more than a record says that the process with this pid, as we see it, is of the tree.
    #[must_use]
    pub fn is_proven(&self, pid: u32) -> bool {
        let id = self.open_instance(Key { pid_ns: self.context.pid_ns, pid });
        id.and_then(|id| self.processes.get(&id)).is_some_and(|process| process.is_proven)
    }

    /// How many live processes of other pid namespaces only records tell of.
    #[must_use]
    pub fn unseen(&self) -> usize {
        let inner = self.inner.iter().filter_map(|(_, id)| self.processes.get(id));
        inner.filter(|process| process.is_alive() && process.host_pid.is_none()).count()
    }

    /// Whether there can be so many of those.
    #[must_use]
    pub fn may_have_unseen(&self, count: usize) -> bool {
        self.inner.len() >= count
    }

    /// A process was dead at this time: it was found as a zombie, or not at all. Its own last words may still be on
    /// their way: this counts at a [`Tree::settle`] when all that was written before is taken in. `gone_ns` is when it
    /// was not found at all.
    pub fn observe_end(&mut self, id: ProcessId, at_ns: u64, gone_ns: Option<u64>) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.seen_dead_ns.get_or_insert(at_ns);
            self.seen_dead.insert(id);
            process.gone_ns = process.gone_ns.or(gone_ns);
            self.kernel_ends.remove(&id);
        }
    }

    fn insert(&mut self, key: Key, parent: Parent, found_by: FoundBy, start_ns: u64) -> ProcessId {
        let id = ProcessId(self.next_id);
        self.next_id += 1;
        self.born += 1;
        let group = self.new_group();
        if let Parent::Known(parent) = parent
            && let Some(parent) = self.processes.get_mut(&parent)
        {
            parent.has_children = true;
        }
        let silent_ancestor = self.silent_ancestor(parent);
        let process = Process {
            id,
            key,
            host_pid: (key.pid_ns == self.context.pid_ns).then_some(key.pid),
            inside: None,
            pidfd_inode: 0,
            parent,
            parent_pid: 0,
            silent_ancestor,
            was_silent_ancestor: false,
            found_by,
            spoke: false,
            is_main: false,
            is_proven: !matches!(found_by, FoundBy::Preload | FoundBy::Wait),
            start_ns,
            end_ns: None,
            seen_dead_ns: None,
            gone_ns: None,
            clock_skew_ns: 0,
            command: Arc::from("(unseen)"),
            args: None,
            static_executable: None,
            image: Image::Unknown,
            group,
            image_start_ns: start_ns,
            told_peak: None,
            earlier_peak: None,
            has_sampled_past: false,
            is_watched: false,
            has_children: false,
            silent_exec: None,
            kernel_exit: None,
            kept_status: None,
            exit: None,
            reaped: None,
            reaped_children: gpu_track_abi::record::Usage::default(),
            unreaped_children: gpu_track_abi::record::Usage::default(),
            unreaped_count: 0,
            observed: Observed::default(),
            is_clock_final: false,
            counted_cpu_ns: 0,
            counted_at_ns: start_ns,
        };
        if parent == Parent::Unknown {
            self.strays.insert(id);
        }
        if key.pid_ns != self.context.pid_ns {
            self.inner.insert((key.pid_ns, id));
        }
        if found_by == FoundBy::Connector {
            self.mute.insert(id);
        }
        if found_by == FoundBy::Preload && key.pid_ns == self.context.pid_ns {
            self.unproven.insert(id);
        }
        self.processes.insert(process);
        let of_pid = self.index.entry(key).or_default();
        of_pid.push(id);
        let oldest = of_pid.first().copied().filter(|_| of_pid.len() > MOST_OF_ONE_PID);
        if let Some(oldest) = oldest
            && self.processes.get(&oldest).is_some_and(|process| !process.is_alive())
        {
            self.settle_one(oldest, start_ns);
        }
        self.alive.push(id);
        self.groups.entry(group).or_default().members.push(id);
        id
    }

    fn new_group(&mut self) -> ImageGroup {
        self.next_group += 1;
        ImageGroup(self.next_group)
    }

    fn leave_group(&mut self, id: ProcessId, group: ImageGroup) {
        if let Some(members) = self.groups.get_mut(&group) {
            members.members.retain(|member| *member != id);
            members.epoch += 1;
            if members.members.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    fn join_group(&mut self, id: ProcessId, group: ImageGroup) {
        let Some(old) = self.processes.get(&id).map(|process| process.group) else { return };
        self.leave_group(id, old);
        let members = self.groups.entry(group).or_default();
        members.members.push(id);
        members.epoch += 1;
        if let Some(process) = self.processes.get_mut(&id) {
            process.group = group;
        }
    }

    /// A process is over: its life goes to whoever adds up RAM and CPU over time.
    fn end(&mut self, id: ProcessId, at_ns: u64) {
        self.confirm_silent(id);
        let tick_us = self.context.tick_us;
        let Some(process) = self.processes.get_mut(&id) else { return };
        let end_ns = at_ns.max(process.start_ns);
        process.end_ns = Some(end_ns);
        let own = process.own(tick_us);
        let cpu_ns = process::cpu_us(&own.usage).saturating_mul(1000);
        // Who said his last word and was still seen by a sample was there until then: that sample has counted him.
        let until_ns = end_ns.max(process.observed.at_ns);
        let memory = LiveInterval {
            bytes: process.share_since_sample(self.context.page),
            ..image_interval(process, until_ns)
        };
        self.intervals.push(LiveInterval {
            counted_at_ns: process.counted_at_ns,
            cpu_ns: cpu_ns.saturating_sub(process.counted_cpu_ns),
            ..process_interval(process, until_ns)
        });
        self.intervals.push(memory);
        process.counted_cpu_ns = process.counted_cpu_ns.max(cpu_ns);
        let group = process.group;
        self.leave_group(id, group);
        self.no_longer_alive(id);
        self.ended.push(id);
    }

    fn no_longer_alive(&mut self, id: ProcessId) {
        if let Ok(at) = self.alive.binary_search(&id) {
            self.alive.remove(at);
        }
        self.seen_dead.remove(&id);
    }

    /// It wrote a record itself.
    fn hear(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.spoke = true;
        }
        self.mute.remove(&id);
    }
}

/// The life of a process's image up to now, still without bytes.
fn image_interval(process: &Process, end_ns: u64) -> LiveInterval {
    LiveInterval {
        is_process: false,
        start_ns: process.image_start_ns.max(process.observed.at_ns).min(end_ns),
        ..process_interval(process, end_ns)
    }
}

/// The life of a process up to now, still without CPU time.
fn process_interval(process: &Process, end_ns: u64) -> LiveInterval {
    LiveInterval {
        is_process: true,
        is_main: process.is_main,
        id: process.id,
        pid: process.host_pid.unwrap_or(process.key.pid),
        command: process.command.clone(),
        // Each record has a time of its own: one of a later event can name an earlier one.
        start_ns: process.start_ns.max(process.observed.at_ns).min(end_ns),
        end_ns,
        bytes: 0,
        counted_at_ns: end_ns,
        cpu_ns: 0,
        threads: process.observed.threads.max(1),
    }
}

impl Process {
    /// What a process that started since the last sample adds to the time until now: itself, and its memory.
    #[must_use]
    pub fn intervals_until(&self, now_ns: u64, bytes: u64) -> [LiveInterval; 2] {
        [process_interval(self, now_ns), LiveInterval { bytes, ..image_interval(self, now_ns) }]
    }
}
