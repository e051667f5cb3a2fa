//! One process: what records, connector events, /proc and samples have reported of it so far.
//!
//! What is concluded from that is in `cpu` (own CPU time), `peak` (peak RSS) and `program` (which program it runs).

use std::sync::Arc;

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{FLAG_AUTOREAP, FLAG_NO_STATUS, Usage};
use serde::{Deserialize, Serialize};

use super::contribution::Contribution;
use super::namespace::ForkNumber;
use super::records::{ExitRecord, ReapRecord};
use super::tolerance::Tolerance;
use crate::model::attached::UsedBefore;
use crate::model::config::Layer;
use crate::model::exit_account::ExitAccount;
use crate::model::exit_account::StatCounts;
use crate::model::ids::{Identity, ImageGroup, Key, Parent, ProcessId, Target, TaskId};
use crate::model::observation::{ProcessLimits, Program};
use crate::model::quality::Quality;
use crate::model::report::Exit;

/// What a process runs, as far as its memory goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    /// A copy of its parent's memory.
    Forked {
        /// The parent's RSS at the fork, bytes.
        rss_at_fork_bytes: u64,
    },
    /// A program that wrote a START record.
    Loaded {
        /// ru_maxrss that it inherited over exec, bytes.
        inherited: u64,
    },
    /// A program of its own that does not carry the shim.
    Uninstrumented,
    /// No record exists; it may still be a copy of its parent.
    #[default]
    Unknown,
    /// Its parent's memory itself (vfork).
    Borrowed,
}

/// The end of a process's first thread, as the process connector reported it. Other threads may live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelExit {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// Wait status.
    pub status: i32,
}

/// An exec whose program has not written a START record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreportedExec {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The program as /proc shows it.
    pub program: Option<Program>,
    /// Peak RSS of the program before it as samples saw it, bytes.
    pub previous_peak_bytes: Option<u64>,
}

/// The last sample of a process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Observed {
    /// CLOCK_MONOTONIC, nanoseconds; 0: never sampled.
    pub at_ns: u64,
    /// CPU clock, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// CPU time by clock ticks, and faults.
    pub counts: StatCounts,
    /// RSS, bytes.
    pub rss_bytes: u64,
    /// The largest RSS or VmHWM seen, bytes.
    pub peak_rss_bytes: u64,
    /// What it adds to footprints for certain.
    pub contribution: Contribution,
    /// How much more may be private, bytes: how the process shares its memory was never read.
    pub unread_bytes: u64,
    /// How much of its growth after the sample may be other processes' memory too, bytes.
    pub common_growth_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// The most threads that a sample saw.
    pub most_threads: u64,
    /// Block input and output of the process and its waited-for children, 512-byte units; read at the run's end only.
    pub blocks: Option<(u64, u64)>,
}

/// How close the program that a process runs came to its resource limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// When the program began, CLOCK_MONOTONIC nanoseconds.
    program_start_ns: u64,
    /// The largest address space that a sample saw, bytes; 0: none did.
    pub peak_virtual_bytes: u64,
    /// Its limits at the last sample that read them.
    pub limits: ProcessLimits,
}

/// What identifies a process, and its place in the run: ids and pids, its role, its rank, its tasks.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ids {
    /// Its id in this run.
    pub id: ProcessId,
    /// Its pid in its own pid namespace.
    pub key: Key,
    /// Its pid in the collector's namespace; `None` until that is known.
    pub host_pid: Option<u32>,
    /// Its place among the forks of another pid namespace, while only the kernel has reported it.
    pub fork_number: Option<ForkNumber>,
    /// Inode of a pidfd of it; 0: unknown.
    pub pidfd_inode: u64,
    /// What must be added to times of its clock to get the collector's: not 0 in another time namespace.
    pub clock_skew_ns: i64,
    /// It is the command's first process, or the process that the run attached to.
    pub is_main: bool,
    /// Something other than a record shows that the pid belongs to a process of this tree.
    pub is_proven: bool,
    /// It is a process of gpu-track itself, which no figure has: see `helpers`.
    pub is_helper: bool,
    /// The rank of a job that its environment names, or that of its parent.
    pub rank: Option<Rank>,
    /// The innermost task that it is in.
    pub task: TaskId,
    /// The task that its parent was in when it made this process.
    pub born_in: TaskId,
    /// It ran another program before the one with which it entered its task.
    pub ran_before_task: bool,
    /// It executed the script of a task of Nextflow. Its subshells have the script's name, too, and did not execute it.
    pub ran_script: bool,
}

impl Ids {
    /// Its pid in the collector's namespace, or, where that is not known, in its own.
    pub(crate) fn pid(&self) -> u32 {
        self.host_pid.unwrap_or(self.key.pid)
    }
}

/// How a process is related to others.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ancestry {
    /// The process that made it.
    pub parent: Parent,
    /// Its parent's pid as its last START or FORK record, or the connector, named it; 0: none did.
    pub parent_pid: u32,
    /// The nearest ancestor that ran an uninstrumented program when this process was made, or whose own parent is unknown.
    /// If that program is a subreaper, it reaps orphans without a REAPED record.
    pub uninstrumented_ancestor: Option<ProcessId>,
    /// It was the nearest such ancestor of another process. It may have become instrumented since.
    pub was_uninstrumented_ancestor: bool,
    /// The layer that found it first.
    pub found_by: Layer,
    /// It has made children.
    pub has_children: bool,
    /// How many children it has waited for, or may have.
    pub waits: u64,
    /// The process connector has reported on it since it was made, so all its children are known.
    pub is_watched: bool,
}

/// What a process is called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Name {
    /// Base name of the program, with the script's if the program is an interpreter.
    pub command: Arc<str>,
    /// Arguments, if they could be read.
    pub args: Option<Vec<String>>,
    /// Its executable, if that has no dynamic loader.
    pub static_executable: Option<String>,
}

impl Name {
    /// The name of a program that could not be read while it ran.
    pub(super) fn unseen() -> Self {
        Self { command: Arc::from("(unseen)"), args: None, static_executable: None }
    }
}

/// The program that a process runs, and whether the program has written a record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProgramState {
    /// What it runs: a program, its parent's memory, or a copy of that.
    pub image: Image,
    /// Processes that may share its memory.
    pub group: ImageGroup,
    /// When the image began, CLOCK_MONOTONIC nanoseconds.
    pub image_start_ns: u64,
    /// The process has written a record, of this program or an earlier one.
    pub has_record: bool,
    /// An exec whose program has not written a record yet.
    pub unreported_exec: Option<UnreportedExec>,
    /// VmHWM by the image's EXEC record, the largest if there are several, bytes.
    pub exec_peak_bytes: Option<u64>,
    /// The largest known peak RSS of earlier images, bytes; never 0. `None`: none is known.
    pub earlier_images_peak_bytes: Option<u64>,
    /// The most that a copy of its parent's memory grew by before an exec, bytes. Pages of files that it read in again are in that.
    pub copy_growth_bytes: u64,
    /// An earlier image was uninstrumented, so its peak is that of a sample.
    pub had_uninstrumented_image: bool,
    /// The image that its last START or FORK record reported.
    pub recorded: Option<Image>,
    /// It ran another program before the one of its last START.
    pub follows_another: bool,
    /// It may have run a copy of an uninstrumented parent's memory, whose peak no record has.
    pub had_unread_copy: bool,
    /// The effective user that /proc showed, if it is another than the launcher's.
    pub other_user: Option<u32>,
}

/// When a process lived, CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Lifetime {
    /// Its start: it was there by then.
    pub start_ns: u64,
    /// Its earliest start, which is less where only /proc shows it.
    pub earliest_start_ns: u64,
    /// Its end.
    pub end_ns: Option<u64>,
    /// When it was first found dead: a zombie, or no longer in /proc.
    pub seen_dead_ns: Option<u64>,
    /// When it was first found to be no longer in /proc.
    pub gone_ns: Option<u64>,
    /// When its reaper reported that it had waited for it.
    pub reaped_ns: Option<u64>,
    /// The memory since its last sample that was queued for the next one when its end became known. `None`: it has not ended.
    pub queued_memory: Option<Contribution>,
    /// The time of the first sample that found it dead. From then on, what it shared counts with the processes that shared it.
    pub missing_ns: Option<u64>,
}

impl Lifetime {
    /// Sets the start that a source reported, CLOCK_MONOTONIC nanoseconds. A start after `start_ns` is false and left out, since
    /// the process was there by then.
    pub fn set_start(&mut self, start_ns: u64) {
        if start_ns <= self.start_ns {
            (self.start_ns, self.earliest_start_ns) = (start_ns, start_ns);
        }
    }

    /// The middle of the times at which it can have started, CLOCK_MONOTONIC nanoseconds: it is as often too early as too
    /// late.
    pub fn likely_start_ns(&self) -> u64 {
        self.earliest_start_ns.midpoint(self.start_ns)
    }
}

/// What the sources reported of a process's end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct EndReports {
    /// Its EXIT record.
    pub exit: Option<ExitRecord>,
    /// Its reaper's REAPED record.
    pub reaped: Option<ReapRecord>,
    /// The kernel's account of its exit.
    pub account: Option<ExitAccount>,
    /// The process connector's event.
    pub kernel_exit: Option<KernelExit>,
    /// The wait status that the kernel kept for a pidfd. Records of the process may still follow.
    pub kept_status: Option<i32>,
}

/// CPU time of a process's children, and how much of its own was counted so far.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct CpuState {
    /// Summed usage of the children that its REAPED records name.
    pub reaped_children: Usage,
    /// The largest RSS of a helper that is in `reaped_children` or in the sums of a child there, bytes.
    pub helpers_max_rss_bytes: u64,
    /// Summed usage of its children that ended without a REAPED record.
    pub unreaped_children: Usage,
    /// Number of its children that ended without a REAPED record.
    pub unreaped_count: u64,
    /// The usage of an unreaped child is not known exactly, or this process may have reaped a zombie that another one left.
    pub has_inexact_children: bool,
    /// A child that counts as waited for may be a zombie that this process left when it was killed.
    pub has_possible_zombies: bool,
    /// The usage of an unreaped child lacks the kernel's teardown of the child's memory.
    pub children_lack_teardown: bool,
    /// The kernel reaped some of its children by itself: they do not fit into its REAPED record.
    pub has_autoreaped_children: bool,
    /// The clock in `observed` was read after its end.
    pub is_clock_final: bool,
    /// CPU time already counted into the run's CPU over time, nanoseconds.
    pub counted_cpu_ns: u64,
    /// When that was counted.
    pub counted_at_ns: u64,
}

/// What is kept of a finalized process, as a late record may still be about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Finalized {
    pub key: Key,
    pub id: ProcessId,
    pub command: Arc<str>,
    /// See [`Ids::task`].
    pub task: TaskId,
    /// No REAPED record has come.
    pub awaits_reaping: bool,
    pub is_helper: bool,
    /// Its last program wrote records.
    pub was_instrumented: bool,
    /// CLOCK_MONOTONIC.
    pub finalized_ns: u64,
}

/// What an ended process without a REAPED record used. The sums of the process that waited for it include that: see `claims`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// What it and the children that it waited for used.
    pub used: Usage,
    /// The CPU time in `used` without the children that no record says were reaped, microseconds.
    pub least_cpu_us: u64,
    /// How `used` is known.
    pub quality: Quality,
    /// `used` lacks the kernel's teardown of the process, which its reaper's sums have.
    pub lacks_teardown: bool,
    /// Processes that may have reaped it as an orphan, nearest first.
    pub orphan_reapers: Vec<ProcessId>,
    /// Its pid namespace's init, if that is another process.
    pub init: Option<ProcessId>,
    /// When it ended, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: Option<u64>,
    /// SIGKILL ended it.
    pub was_killed: bool,
    /// No process but its parent can have reaped it.
    pub is_by_parent: bool,
}

/// A process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// Ids and pids.
    pub ids: Ids,
    /// Relations.
    pub ancestry: Ancestry,
    /// Names.
    pub name: Name,
    /// The program that it runs.
    pub program: ProgramState,
    /// Start and end.
    pub lifetime: Lifetime,
    /// Reports of its end.
    pub end: EndReports,
    /// CPU time.
    pub cpu: CpuState,
    /// Its last sample.
    pub observed: Observed,
    /// Its resource limits.
    pub bounds: Bounds,
    /// Claims of processes that it may have waited for without a record.
    pub claims: Vec<Claim>,
    /// What it had used before the run, if it started before that. All that is observed of it is without this.
    pub before: Option<UsedBefore>,
}

impl Process {
    /// Makes a process that nothing else is known of.
    pub(super) fn new(ids: Ids, ancestry: Ancestry, group: ImageGroup, start_ns: u64) -> Self {
        Self {
            ids,
            ancestry,
            name: Name::unseen(),
            program: ProgramState { group, image_start_ns: start_ns, ..ProgramState::default() },
            lifetime: Lifetime { start_ns, earliest_start_ns: start_ns, ..Lifetime::default() },
            end: EndReports::default(),
            cpu: CpuState { counted_at_ns: start_ns, ..CpuState::default() },
            observed: Observed::default(),
            bounds: Bounds::default(),
            claims: Vec::new(),
            before: None,
        }
    }

    /// The high-water mark of its memory, `vm_hwm_bytes`, if it was reached during the run. `None`: there is none, or it may be
    /// from before the run.
    pub(crate) fn peak_of_run(&self, vm_hwm_bytes: Option<u64>) -> Option<u64> {
        match self.before {
            Some(before) => before.later_peak(vm_hwm_bytes, self.program_start_ns()),
            None => vm_hwm_bytes,
        }
    }

    /// Its block input and output, 512-byte units, if all of that is of the run. `None`: they are not known, or the process
    /// is from before the run. Such a process may have waited since for children that had ended before.
    pub(crate) fn blocks_of_run(&self, blocks: Option<(u64, u64)>) -> Option<(u64, u64)> {
        blocks.filter(|_| self.before.is_none())
    }

    /// Notes that it started between this time, CLOCK_MONOTONIC nanoseconds, and `lifetime.start_ns`. Its CPU time counts from
    /// the middle of the two.
    pub(super) fn set_earliest_start(&mut self, earliest_ns: u64) {
        let lifetime = &mut self.lifetime;
        lifetime.earliest_start_ns = earliest_ns.min(lifetime.start_ns);
        self.cpu.counted_at_ns = lifetime.likely_start_ns();
    }

    /// Notes that it was there at this time, CLOCK_MONOTONIC nanoseconds. If that is before the known start, it started by then,
    /// and its first image with it. Then its CPU time counts from the middle of the times at which it can have started.
    pub(super) fn note_alive(&mut self, at_ns: u64) {
        let lifetime = &mut self.lifetime;
        // A start that is known exactly stays, since it is also the earliest possible start.
        let start_ns = at_ns.max(lifetime.earliest_start_ns);
        if start_ns < lifetime.start_ns {
            if self.program.image_start_ns == lifetime.start_ns {
                self.program.image_start_ns = start_ns;
            }
            lifetime.start_ns = start_ns;
            self.cpu.counted_at_ns = lifetime.likely_start_ns();
        }
    }

    /// Whether it has joined: it carries the session and is no descendant of the command's first process, as far as known.
    pub(super) fn has_joined(&self) -> bool {
        self.ancestry.parent == Parent::Unknown && !self.ids.is_main
    }

    /// Whether no source has reported its end.
    pub fn is_alive(&self) -> bool {
        self.lifetime.end_ns.is_none()
    }

    /// Notes the address space, bytes, and the resource limits that a sample read. Keeps the largest address space of the
    /// program that runs now.
    pub(crate) fn note_bounds(&mut self, virtual_bytes: u64, limits: ProcessLimits) {
        let program_start_ns = self.program_start_ns();
        let is_same_program = self.bounds.program_start_ns == program_start_ns;
        let earlier_peak_bytes = if is_same_program { self.bounds.peak_virtual_bytes } else { 0 };
        self.bounds =
            Bounds { program_start_ns, peak_virtual_bytes: earlier_peak_bytes.max(virtual_bytes), limits };
    }

    /// Notes the inode of a pidfd of it from a record. 0: the record has none, and an inode that is known stays.
    pub(super) fn note_inode(&mut self, pidfd_inode: u64) {
        if pidfd_inode != 0 {
            self.ids.pidfd_inode = pidfd_inode;
        }
    }

    /// What distinguishes it from a process that gets its pid later.
    pub(crate) fn identity(&self) -> Identity {
        let last_ns = self.lifetime.start_ns.max(self.last_seen_ns());
        Identity {
            pidfd_inode: self.ids.pidfd_inode,
            // /proc and the kernel's events may date a start this much later.
            latest_start_ns: last_ns.saturating_add(Tolerance::START_ROUNDING_NS),
            // In another time namespace, its start was converted from another clock.
            is_start_rough: self.ids.clock_skew_ns != 0,
            // The launcher notes the first process's start before the fork, so the real start can be later than all times
            // above. Only the launcher, which is its parent, can free its pid: so that alone identifies it.
            is_pid_held: self.ids.is_main && self.ancestry.parent == Parent::Launcher,
        }
    }

    /// How sources address it. `None` while its pid in the collector's namespace is unknown.
    pub fn target(&self) -> Option<Target> {
        Some(Target { id: self.ids.id, pid: self.ids.host_pid?, identity: self.identity() })
    }

    /// The latest time at which it certainly existed, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn last_seen_ns(&self) -> u64 {
        // Only EXIT dates an end by the process itself. What else reports an end may do so later.
        let recorded_end_ns = self.lifetime.end_ns.filter(|_| self.end.exit.is_some());
        let reported_ns = self.end.kernel_exit.map(|exit| exit.at_ns).max(recorded_end_ns).unwrap_or(0);
        reported_ns.max(self.observed.at_ns).max(self.program.image_start_ns)
    }

    /// Whether it ignored SIGCHLD at its end, so that the kernel reaped its children by itself. False without an EXIT record.
    pub(super) fn ignores_children(&self) -> bool {
        self.end.exit.is_some_and(|exit| exit.flags & FLAG_AUTOREAP != 0)
    }

    /// Whether its EXIT record says that it had a library of a GPU's driver loaded. `None`: it wrote no such record.
    pub(crate) fn had_gpu_library(&self) -> Option<bool> {
        self.end.exit.map(|exit| exit.had_gpu_library())
    }

    /// Whether its last program was uninstrumented, as far as its end shows, so that children of it may be unknown.
    /// Then it wrote no record at all, or exited without an EXIT record. An end by a signal tells nothing, as it leaves no EXIT.
    pub(super) fn ended_without_exit_record(&self) -> bool {
        let has_exited = self.end.reaped.is_some_and(|reaped| libc::WIFEXITED(reaped.status));
        !self.program.has_record || (self.end.exit.is_none() && has_exited)
    }

    /// Whether it may have made children that nothing reported: a program of it was uninstrumented, and the connector did not watch it.
    pub(super) fn may_have_unknown_children(&self) -> bool {
        let was_uninstrumented = self.program.had_uninstrumented_image || !self.is_instrumented();
        !self.ancestry.is_watched && (was_uninstrumented || self.ended_without_exit_record())
    }

    /// How it ended. The first of these sources that has a status counts: REAPED, EXIT, the connector, a pidfd. Without
    /// any, the result has neither code nor signal.
    pub(crate) fn exit_status(&self) -> Exit {
        match (&self.end.reaped, &self.end.exit) {
            (Some(reaped), _) => exit_of_wait_status(reaped.status),
            // EXIT has what exit(3) was given, unless its writer could not know that. The kernel keeps the lowest 8 bits.
            (None, Some(exit)) if exit.flags & FLAG_NO_STATUS == 0 => {
                Exit { code: Some(exit.status & 0xff), signal: None }
            }
            _ => {
                let status = self.end.kernel_exit.map(|exit| exit.status).or(self.end.kept_status);
                status.map_or_else(Exit::default, exit_of_wait_status)
            }
        }
    }

    /// Whether SIGKILL ended it.
    pub(crate) fn was_killed(&self) -> bool {
        self.exit_status().signal == Some(libc::SIGKILL)
    }
}

/// Exit code or signal of a wait status. The status of a process that has not ended (stopped, continued) has neither.
pub(crate) fn exit_of_wait_status(status: i32) -> Exit {
    if libc::WIFEXITED(status) {
        Exit { code: Some(libc::WEXITSTATUS(status)), signal: None }
    } else if libc::WIFSIGNALED(status) {
        Exit { code: None, signal: Some(libc::WTERMSIG(status)) }
    } else {
        Exit::default()
    }
}
