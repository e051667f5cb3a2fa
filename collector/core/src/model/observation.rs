//! What sources report to the core, and what the core requests of them. All that happens to a run enters the core as an
//! [`Observation`] with a time, so a run can be written down and replayed without /proc.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::attached::{Attached, UsedBefore};
use super::config::Message;
use super::containers::{ContainerDaemon, ContainerNote, ContainerSeen, DaemonState};
use super::exit_account::{ExitAccount, Remains, StatCounts};
use super::gpu::{GpuObservation, TorchMemory};
use super::ids::{Key, Parent, ProcessId, Target};
use super::io_calls::{CallsReading, IoCalls, NoIoCalls};
use super::record_or_event::{Damage, Finding};
use super::report::{DiskRole, TimeState};
use super::signal::SignalReceived;
use super::stalls::StallReading;
use super::thread_state::ThreadState;
use super::tree_sample::{IoBytes, Wants};
use super::waited_for::WaitedFor;

/// One thing that a source has seen. Times are CLOCK_MONOTONIC nanoseconds, sizes bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Observation {
    /// Event records of processes and events of the kernel, in order of time.
    Findings(Vec<Finding>),
    /// How many processes and threads the machine has created since the session's start. `None`: the kernel does not count them.
    MachineForks(Option<u64>),
    /// The launcher started the command.
    CommandStarted {
        /// Its pid.
        pid: u32,
        /// Before its fork.
        start_ns: u64,
        /// Base name of its program.
        command: String,
    },
    /// The run has attached to a process, which is its first.
    Attached {
        /// The process, and what it had used.
        process: Attached,
        /// Base name of its program.
        command: String,
    },
    /// A process of the collector's pid namespace has a pidfd of this inode. Each new pid gets the next inode (pidfs), so this pair
    /// shows which pids belong to other inodes.
    PidNumber {
        /// Its pid.
        pid: u32,
        /// The inode.
        pidfd_inode: u64,
    },
    /// /proc shows a child or an orphan that was not known.
    Child(ChildSeen),
    /// /proc shows a child that had ended before the run began.
    OverBefore(OverBefore),
    /// /proc shows the pid, in the collector's namespace, of a process of another pid namespace.
    HostPid {
        /// The process.
        id: ProcessId,
        /// Its pid in the collector's pid namespace.
        pid: u32,
    },
    /// What /proc shows of the program that a process runs.
    Program(ProgramSeen),
    /// A process has exec'd, and no connector event reported it.
    Exec {
        /// The process.
        id: ProcessId,
        /// When the exec had happened at the latest.
        by_ns: u64,
    },
    /// Whether a process that only a record names belongs to the tree.
    Membership {
        /// The process.
        id: ProcessId,
        /// The answer; `None`: not known yet.
        is_member: Option<bool>,
    },
    /// A process was found dead, or gone.
    Ended {
        /// The process.
        id: ProcessId,
        /// When it was dead for certain.
        at_ns: u64,
        /// When it was no longer in /proc; `None`: it still was.
        gone_ns: Option<u64>,
        /// Figures of its zombie; `None`: they were not read.
        remains: Option<Remains>,
    },
    /// The kernel's account of a process that exited.
    Accounted {
        /// The process.
        id: ProcessId,
        /// The account.
        account: ExitAccount,
    },
    /// The kernel reported the end of a process's first thread, and other threads live on.
    FirstThreadEnded(ProcessId),
    /// Processes that were no longer in /proc at these times.
    Absent(Vec<(ProcessId, u64)>),
    /// The wait status that the kernel keeps for holders of a pidfd.
    WaitStatus {
        /// The process.
        id: ProcessId,
        /// The status.
        status: i32,
    },
    /// Time has passed: programs that had time to write a START record and did not are uninstrumented.
    Tick,
    /// The core shall compute the final figures of processes that have ended.
    Finalize {
        /// All records that were written before this are applied.
        complete_ns: u64,
    },
    /// A sample's first pass: CPU clock, RSS and state of the live processes.
    Readings(Vec<Reading>),
    /// A sample's second pass: peaks so far, as many as the budget allowed.
    Peaks(Vec<PeakReading>),
    /// A sample's third pass: how processes that may share memory with each other do so.
    Sharing(SharingReadings),
    /// The sample's passes are over. Processes that are known to have ended by now ended before the sample.
    SampleRead,
    /// The sample is complete: records of all processes that it found dead are applied.
    SampleComplete,
    /// The machine's own figures.
    System {
        /// Memory in use.
        memory_used_bytes: Option<u64>,
        /// Busy time of all cores since boot, clock ticks.
        busy_ticks: Option<u64>,
        /// The cores that the command may use.
        cores: Result<CoreTicks, NoCoreTicks>,
        /// CPU time of launcher and collector since the reading before, nanoseconds.
        tools_ns: u64,
    },
    /// Block I/O of the launcher and of all processes that are not reaped, with that of the children that they waited for. Processes
    /// that can't be read are missing. A launcher that attached to a process is left out, since no process of the run is its child.
    Io {
        /// The sum. `None`: the kernel does not count block I/O.
        sum: Option<IoBytes>,
        /// Written bytes of `sum` that never reached storage, because their file was truncated or removed before. `None`: as `sum`.
        cancelled: Option<u64>,
        /// What the same processes passed by calls since the start of the run, without the launcher itself.
        calls: Result<IoCalls, NoIoCalls>,
        /// What each process of the run passed by calls.
        by_process: CallsReading,
        /// It is the first reading of this collector, which only shows where later ones begin. If the run attached to a process, its
        /// first reading also has I/O of the run: what is above the I/O from before the attach.
        is_first: bool,
    },
    /// Pressure, CPU quota, and memory of the run's cgroup.
    Stalls(Box<StallReading>),
    /// File systems have answered how much space they have.
    FreeSpace(Vec<FreeSpace>),
    /// What the run's threads do, and how long they ran and waited for a core since each was last read.
    ThreadStates(ThreadStates),
    /// What a process waits for.
    WaitedFor {
        /// The process.
        id: ProcessId,
        /// The state in which it was.
        state: TimeState,
        /// What was found. `None`: nothing.
        what: Option<WaitedFor>,
    },
    /// A process sent the launcher a signal, which it passed on to the command.
    SignalReceived(SignalReceived),
    /// Another message of the launcher that is about the run. A restarted collector is told again.
    Told(Message),
    /// What is known by now of a container that a daemon runs.
    Container(Box<ContainerSeen>),
    /// What came of containers that docker's proxy was asked for.
    ContainerNotes {
        /// How many bytes of the notes are read by now.
        read_bytes: u64,
        /// The new ones.
        notes: Vec<ContainerNote>,
    },
    /// Whether the containers of a daemon can be followed.
    ContainerDaemon {
        /// The daemon.
        daemon: ContainerDaemon,
        /// The answer.
        state: DaemonState,
    },
    /// The segment's name was removed during the run.
    SegmentUnlinked,
    /// Why the process connector can't be had.
    ConnectorAbsent(String),
    /// What was wrong with the records so far.
    RecordsDamaged(Damage),
    /// How many records were left at the end, because there was no time to read them.
    Unread(u64),
    /// Whether there are GPU backends, which read the devices of a driver.
    GpuBackends(bool),
    /// GPU backends are about to be asked about the processes that live now.
    GpuTick,
    /// What GPU backends read.
    Gpu(Box<GpuObservation>),
    /// No more readings of GPUs come.
    GpuEnd,
    /// Block I/O of a process that lives on at the end of the run.
    Survivor {
        /// The process.
        id: ProcessId,
        /// Input and output, waited-for children included, 512-byte units. `None`: it could not be read.
        blocks: Option<(u64, u64)>,
    },
    /// The run ends, and so does the last window over which CPU utilisation is measured.
    WindowsEnd {
        /// When it ends.
        end_ns: u64,
    },
    /// The run is over, so the launcher obeys no order any more.
    OrdersEnd,
    /// The run is over. The core shall compute the final figures of all processes, those of live ones as they are now.
    FinalizeAll,
    /// What the sinks (outputs) of this run take from the core.
    SinksWant(Wants),
    /// An output failed, and is closed.
    SinkFailed {
        /// Its name, for the report.
        sink: String,
        /// Why it failed.
        error: String,
    },
    /// The rules of jobs of Snakemake, each by the hash of the job's mark ([`gpu_track_abi::task`]).
    SnakemakeRules(Vec<(u32, String)>),
    /// The names of Nextflow's tasks, each with the hash of the task's mark.
    NextflowNames(Vec<(u32, String)>),
    /// What processes told of PyTorch's memory over the run.
    Torch(Vec<TorchMemory>),
    /// An output misses something.
    SinkLost {
        /// Its name, for the report.
        sink: String,
        /// How many lines or samples more than were known to be lost.
        lost: u64,
        /// Why they were lost; `None`: the output was too slow.
        error: Option<String>,
    },
}

/// Space on the file system of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpace {
    /// What the directory is to the run.
    pub role: DiskRole,
    /// Its path.
    pub path: String,
    /// The file system's device number.
    pub device: u64,
    /// What the user of the run may still fill, bytes.
    pub free_bytes: u64,
}

/// Time since boot of the cores that the command may use, clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreTicks {
    /// How many of these cores are online.
    pub cores: u32,
    /// Time in user mode and in the kernel. Time of interrupts is left out, since the kernel may also count it for the process that was
    /// interrupted.
    pub busy: u64,
    /// Time that a hypervisor gave to others while a process was ready.
    pub stolen: u64,
}

/// Why the time of the cores is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NoCoreTicks {
    /// No reading yet.
    #[error("the run ended before its cores were read")]
    NotRead,
    /// The file can't be read, or lacks the lines of these cores.
    #[error("/proc/stat does not have the cores")]
    Unreadable,
    /// The container's /proc/stat is made by lxcfs.
    #[error(
        "/proc/stat comes from a file system of the container, which shows only the container's own processes"
    )]
    Virtual,
    /// sched_getaffinity(2) failed.
    #[error("which cores the run may use is not known")]
    NoAffinity,
}

/// A process whose threads are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadTarget {
    /// The process.
    pub target: Target,
    /// How many threads it has.
    pub threads: u64,
    /// State of its first thread in /proc/PID/stat.
    pub letter: u8,
    /// It used no CPU time since the sample before.
    pub has_rested: bool,
    /// Major faults so far.
    pub major_faults: u64,
    /// A child of it is alive.
    pub has_child: bool,
}

/// What the threads of the run do at a sample.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// Processes whose threads do something else than at the sample before, and new ones.
    pub changed: Vec<ProcessThreads>,
    /// How long all threads that were read ran and waited since the sample before.
    pub times: TaskTimes,
    /// The longest that one of them ran, nanoseconds.
    pub longest_ran_ns: u64,
    /// The longest that one of them ran or waited for a core, nanoseconds.
    pub longest_ready_ns: u64,
    /// How many cores those that ran or waited may use together (sched_getaffinity(2)); 0: not known.
    pub cores: u32,
    /// How many threads have a known state: they were read now, or they are blocked as when they were read last.
    pub known: u32,
    /// How many threads there are.
    pub total: u32,
}

/// What the threads of a process do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessThreads {
    /// The process.
    pub id: ProcessId,
    /// States, and how many of its threads are in each.
    pub states: Vec<(ThreadState, u32)>,
    /// How long its threads waited for a core since the sample before, nanoseconds.
    pub waited_ns: u64,
}

/// How long some threads of the run ran and waited, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTimes {
    /// How long they ran, nanoseconds.
    pub ran_ns: u64,
    /// How long they were ready and waited for a core, nanoseconds.
    pub waited_ns: u64,
}

/// A zombie child of a known process. It started before the run began, and had ended when it was first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverBefore {
    /// Its pid as it saw it itself.
    pub key: Key,
    /// Its pid in the collector's namespace.
    pub host_pid: u32,
    /// When it started, CLOCK_MONOTONIC nanoseconds, rounded down to a clock tick.
    pub start_ns: u64,
    /// Block input and output of it and its waited-for children, 512-byte units. `None`: it could not be read.
    pub blocks: Option<(u64, u64)>,
}

impl OverBefore {
    /// Whether the zombie is the process that another reading of /proc shows with this start, CLOCK_MONOTONIC nanoseconds.
    ///
    /// Each reading converts the clock of /proc, so two readings of one start differ by less than a microsecond. Different starts
    /// differ by at least a clock tick.
    pub fn has_started_at(&self, start_ns: u64) -> bool {
        const HALF_A_MILLISECOND_NS: u64 = 500_000;
        self.start_ns.abs_diff(start_ns) < HALF_A_MILLISECOND_NS
    }
}

/// A child that /proc shows below a known process, or an orphan below the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSeen {
    /// Its pid as it sees it itself.
    pub key: Key,
    /// Its pid in the collector's namespace.
    pub host_pid: u32,
    /// Its parent: a known process, or the launcher, which adopted it.
    pub parent: Parent,
    /// When it started at the earliest, CLOCK_MONOTONIC nanoseconds. /proc rounds starts down to a clock tick.
    pub earliest_start_ns: u64,
    /// When it started at the latest, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Inode of a pidfd of it, or 0.
    pub pidfd_inode: u64,
    /// When /proc showed it, CLOCK_MONOTONIC nanoseconds.
    pub seen_ns: u64,
    /// What it had used by then, if it started before the run. The run's figures leave that out.
    pub before: Option<UsedBefore>,
}

impl ChildSeen {
    /// The earliest and the latest start that a process can have had. All times are CLOCK_MONOTONIC nanoseconds. It started within
    /// the clock tick that /proc shows, which begins at `shown_ns`, before it was seen, and after the session's start.
    pub fn starts(shown_ns: u64, tick_ns: u64, seen_ns: u64, session_start_ns: u64) -> (u64, u64) {
        let earliest_ns = shown_ns.max(session_start_ns);
        let latest_ns = shown_ns.saturating_add(tick_ns).min(seen_ns);
        // /proc can show a start a little too early or too late, so that the latest is before the earliest.
        (earliest_ns, latest_ns.max(earliest_ns))
    }
}

#[cfg(test)]
impl ChildSeen {
    /// A child with a known start and without a pidfd, in the collector's pid namespace.
    pub fn of_test(key: Key, parent: ProcessId, start_ns: u64) -> Self {
        let earliest_start_ns = start_ns;
        Self {
            key,
            host_pid: key.pid,
            parent: Parent::Known(parent),
            earliest_start_ns,
            start_ns,
            pidfd_inode: 0,
            seen_ns: 0,
            before: None,
        }
    }
}

/// The memory of a process that has not written a record for the program that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnreportedMemory {
    /// Its parent's memory itself: vfork, not yet exec'd.
    Parents,
    /// Perhaps a copy of its parent's, shared until written to.
    Copy,
    /// That of a program of its own.
    Own,
}

/// A program as /proc shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Command name.
    pub command: Option<String>,
    /// Arguments.
    pub args: Option<Vec<String>>,
    /// The executable, if it has no dynamic loader.
    pub static_executable: Option<String>,
    /// Its effective user, if that is another than the launcher's.
    pub other_user: Option<u32>,
    /// Peak RSS so far, bytes.
    pub peak_rss_bytes: Option<u64>,
}

impl Program {
    /// Whether the process had ended before all of this was read. A zombie shows no peak, no arguments and no executable. The peak
    /// is read last, so if it is there, the process lived while the rest was read.
    pub fn is_over(&self) -> bool {
        self.peak_rss_bytes.is_none()
    }
}

/// A reading of the program that a process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSeen {
    /// The process.
    pub id: ProcessId,
    /// The program.
    pub program: Program,
    /// Its pid as it sees it itself, where that is in another pid namespace.
    pub inner: Option<Key>,
    /// Whose memory it has, and a time by which the program had begun, CLOCK_MONOTONIC nanoseconds. `None`: this was not asked.
    pub memory: Option<(UnreportedMemory, u64)>,
    /// Whether it answers [`Request::ReadProgram`]. Otherwise a scan found it.
    pub is_answer: bool,
}

/// A process to be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTarget {
    /// The process.
    pub target: Target,
    /// Its arguments are not known yet.
    pub wants_args: bool,
    /// No other process shares its memory. So its memory is as it was if it used no CPU time since it was last read.
    pub is_alone: bool,
}

/// What a sample's first pass found of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The process.
    pub id: ProcessId,
    /// Its arguments, where they were asked for.
    pub args: Option<Vec<String>>,
    /// What was found.
    pub state: ReadingState,
}

/// See [`Reading`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadingState {
    /// It used no CPU time since it was last read, so its figures have not changed.
    Rested,
    /// It lives. `None`: it has no memory just now, as in the middle of an exec.
    Alive(Vitals, Option<Size>),
    /// It was a zombie at this time, CLOCK_MONOTONIC nanoseconds.
    Zombie(u64, Remains),
    /// The kernel was tearing it down at this time, CLOCK_MONOTONIC nanoseconds.
    Ending(u64, Vitals),
    /// It was not in /proc at this time, CLOCK_MONOTONIC nanoseconds.
    Gone(u64),
}

/// Figures of /proc/PID/stat and of the process's CPU clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vitals {
    /// CPU clock, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// What else it has used.
    pub counts: StatCounts,
    /// Threads.
    pub threads: u64,
    /// Address space, bytes.
    pub virtual_bytes: u64,
    /// Address of the bottom of the stack, which an exec changes; 0: not known.
    pub start_stack: u64,
    /// State of the first thread, a letter as in /proc/PID/stat; 0: not known.
    pub letter: u8,
}

impl Vitals {
    /// Whether a signal or a debugger has stopped the first thread.
    pub fn is_stopped(&self) -> bool {
        matches!(self.letter, b'T' | b't')
    }

    /// These figures less what the process had used before the run.
    #[must_use]
    pub fn since(self, before: &UsedBefore) -> Self {
        Self {
            cpu_ns: self.cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(before.cpu_ns)),
            counts: self.counts.since(before.counts),
            ..self
        }
    }
}

/// Figures of /proc/PID/statm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// RSS, bytes.
    pub rss_bytes: u64,
    /// The part of it that belongs to files or shared memory, bytes.
    pub shared_bytes: u64,
}

/// Figures of /proc/PID/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakReading {
    /// The process.
    pub id: ProcessId,
    /// VmHWM, bytes.
    pub vm_hwm_bytes: Option<u64>,
    /// Memory in huge pages of hugetlbfs, which RSS and PSS leave out, bytes; `None`: not read.
    pub hugetlb_bytes: Option<u64>,
    /// Swapped-out memory, which a walk of smaps looks at as well, bytes; `None`: not read.
    pub swap_bytes: Option<u64>,
    /// Its own resource limits; `None`: not read.
    pub limits: Option<ProcessLimits>,
}

/// Resource limits of a process that can end it (getrlimit(2)). `None`: it has no such limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// RLIMIT_AS, bytes.
    pub address_space_bytes: Option<u64>,
    /// RLIMIT_CPU, seconds: SIGXCPU is sent there.
    pub cpu_s: Option<u64>,
    /// The hard limit of RLIMIT_CPU, seconds: SIGKILL is sent there.
    pub hard_cpu_s: Option<u64>,
    /// RLIMIT_FSIZE, bytes: SIGXFSZ is sent there.
    pub file_size_bytes: Option<u64>,
}

/// Figures of /proc/PID/smaps_rollup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollup {
    /// RSS, bytes.
    pub rss_bytes: u64,
    /// PSS, bytes.
    pub pss_bytes: u64,
    /// Anonymous part of the PSS, bytes.
    pub pss_anon_bytes: u64,
    /// Pages that no other process has mapped, those of hugetlbfs included, bytes.
    pub private_bytes: u64,
    /// Anonymous part of the RSS, bytes.
    pub anonymous_bytes: u64,
    /// Shared pages of files that the PSS lacks, because nothing told how many processes have them, bytes.
    pub uncounted_bytes: u64,
    /// How many more distinct anonymous pages the process and its fork relatives may have than `pss_anon_bytes` counts, bytes.
    /// Shared pages that several of them have at the same address count as one there, if nothing shows that they differ.
    pub unseen_bytes: u64,
}

impl Rollup {
    /// The size that statm shows for the same pages.
    pub fn size(&self) -> Size {
        let shared_bytes = self.rss_bytes.saturating_sub(self.anonymous_bytes);
        Size { rss_bytes: self.rss_bytes, shared_bytes }
    }
}

/// Resident pages of a file, of shared memory or of hugetlbfs in a process. From smaps; pages that the process has copied
/// by writing to a private mapping are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMapping {
    /// Device and inode.
    pub file: (u64, u64),
    /// Where the mapping begins in the file, bytes.
    pub start: u64,
    /// Where it ends in the file, bytes.
    pub end: u64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Proportional size of these pages, bytes.
    pub pss_bytes: u64,
}

/// Figures of /proc/PID/smaps, or the same figures computed from pagemap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mappings {
    /// Resident pages of files.
    pub files: Vec<FileMapping>,
    /// Anonymous pages that no other process has mapped, bytes.
    pub private_anon_bytes: u64,
    /// The sums that smaps_rollup has.
    pub rollup: Rollup,
    /// Anonymous pages whose part of `rollup.pss_anon_bytes` is estimated, bytes. They are copied pages of private file mappings that
    /// other processes have mapped, too.
    pub estimated_bytes: u64,
}

/// How processes that may share memory share it. They are read one after another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SharingReadings {
    /// All processes whose proportional sizes depend on each other.
    pub members: Vec<ProcessId>,
    /// The members that were read, in the order of reading.
    pub read: Vec<(ProcessId, SharingReading)>,
    /// Sizes of all members after the last reading, if there are several members. `None`: the memory of this one is gone.
    pub sizes_after: Vec<(ProcessId, Option<Size>)>,
    /// The files of all members were to be read, too.
    pub with_files: bool,
}

/// See [`SharingReadings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharingReading {
    /// It was read.
    Read {
        /// Figures of smaps_rollup.
        rollup: Rollup,
        /// Figures of smaps, if they were asked for.
        mappings: Option<Mappings>,
        /// Figures of statm right after that. `None`: its memory was gone by then.
        size: Option<Size>,
    },
    /// Its memory is gone: it is about to end.
    NoMemory,
    /// Only another user may read it.
    Denied,
}

/// A process whose sharing is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharingTarget {
    /// The process.
    pub id: ProcessId,
    /// What is to be read of it.
    pub source: SharingSource,
}

/// The file in /proc that shows how a process shares its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingSource {
    /// smaps_rollup: sums alone.
    Rollup,
    /// smaps, which also shows the files that its memory belongs to. That takes up to four times as long.
    Smaps,
    /// pagemap, together with all other processes that are read with it. A walk of smaps would hold the mmap lock of a large process
    /// for too long.
    Pages {
        /// About how many bytes of its memory are looked at.
        bytes: u64,
        /// Its anonymous pages are looked at, too. Otherwise all of them are its own.
        with_anonymous: bool,
    },
}

/// What the core wants to have read of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Which program it runs. [`Observation::Program`] with `is_answer` answers it.
    ReadProgram(Target, ProgramQuestion),
    /// What is left of it. The kernel reported its end at this time, CLOCK_MONOTONIC nanoseconds. [`Observation::Ended`] or
    /// [`Observation::FirstThreadEnded`] answers it.
    ReadEnd(Target, u64),
}

/// What is asked of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramQuestion {
    /// What the program is. It is certain that the process runs one of its own.
    What,
    /// What the program is, and whether its memory is its own or that of its parent, which has this pid.
    WhatAndWhose(Option<u32>),
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ATTACH-2
    #[test]
    fn vitals_since_an_attach_have_nothing_from_before() {
        let before = UsedBefore {
            cpu_ns: 5_000,
            counts: StatCounts { user_ticks: 3, system_ticks: 2, minor_faults: 70, major_faults: 7 },
            ..UsedBefore::default()
        };
        let vitals = Vitals {
            cpu_ns: Some(6_000),
            counts: StatCounts { user_ticks: 4, system_ticks: 4, minor_faults: 71, major_faults: 7 },
            threads: 9,
            ..Vitals::default()
        };
        let since = Vitals {
            cpu_ns: Some(1_000),
            counts: StatCounts { user_ticks: 1, system_ticks: 2, minor_faults: 1, major_faults: 0 },
            ..vitals
        };
        assert_eq!(vitals.since(&before), since);
        assert_eq!(Vitals { cpu_ns: None, ..vitals }.since(&before).cpu_ns, None);
    }
}
