//! How the figures are known, and what may be missing.

use serde::{Deserialize, Serialize};

/// How many processes are known from which source, and what was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Why tracking could not begin, so that only what the launcher was told as the command's parent is known. `None`: the run
    /// was tracked.
    pub untracked_reason: Option<String>,
    /// All processes.
    pub processes: u64,
    /// Processes whose CPU time is from the EXIT or REAPED record, from wait4, or from the CPU clock after the end.
    pub exact: u64,
    /// Processes whose CPU time is from the last sample only.
    pub sampled: u64,
    /// Processes of unknown CPU time.
    pub unknown: u64,
    /// Why short processes may be missing from `processes`, which is a lower bound then. `None`: nothing speaks for that.
    pub uncounted_reason: Option<String>,
    /// Processes that carried the session, and of which no known process is the parent.
    pub joined: u64,
    /// Children of posix_spawn that could not exec; they are in `processes` and `unknown`.
    pub failed_spawns: u64,
    /// Processes of gpu-track itself, such as `gpu-track watch`: no figure has them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub helpers: u64,
    /// Processes that exited without an EXIT record: their programs don't carry the shim (static, setuid, another user's). Without the
    /// process connector, short children of theirs may be missing.
    pub uninstrumented: u64,
    /// The processes by the layer that found them first.
    pub layers: Layers,
    /// How the peak RSS of the processes is known.
    pub peaks: Peaks,
    /// The largest RAM is only known to be no less than this: one process held it, and no sample saw that. `None`: the
    /// largest RAM is a sum at one time.
    pub ram_floor_bytes: Option<u64>,
    /// Why private and shared RAM of main, descendants or all is unknown though the total is known. `None`: they are known.
    pub private_ram_reason: Option<String>,
    /// Paths of executables without a dynamic loader, which never carry the shim.
    pub static_executables: Vec<String>,
    /// Event records that were lost because ring and overflow file were full.
    pub dropped_events: u64,
    /// Why event records were no longer trusted; none that was written later counts. `None`: all were.
    pub records_untrusted: Option<String>,
    /// Why the process connector was not used, or not to the end. `None`: it was.
    pub connector_absent: Option<String>,
    /// How often the connector's socket overflowed, so that events of the kernel were lost.
    pub connector_overruns: u64,
    /// Work that the tree handed to programs outside of it. It is in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<StartedElsewhere>,
    /// Processes that are in `uninstrumented` because they ran as other users than the launcher.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_users: Vec<OtherUser>,
    /// Other machines on which the tree started processes. `None`: as far as is known, there are none.
    pub nodes: Option<Nodes>,
    /// Reports of other nodes that stayed there, since those nodes don't see the directory of the run. They are in no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_reports: Vec<LeftReport>,
    /// Ranks of MPI jobs and Slurm steps without a record here. `None`: as far as is known, there are none.
    pub ranks: Option<UnseenRanks>,
}

/// Work that was started outside of the tree, by one program and for one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedElsewhere {
    /// What runs it.
    pub kind: ElsewhereKind,
    /// The program that asked for it, such as docker; of a node, the daemon that was started there, or srun.
    pub program: String,
    /// The image or container, host, unit, pod or node. `None`: the program's arguments don't name it.
    pub target: Option<String>,
    /// How often it was started; of nodes without a name, how many they are.
    pub count: u64,
    /// gpu-track-run was to run there, with a report of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tracked: bool,
}

/// What runs work that was started elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElsewhereKind {
    /// A daemon, in a container.
    Container,
    /// Another host.
    Host,
    /// The service manager, in a unit.
    Unit,
    /// A cluster of Kubernetes, in a pod.
    Pod,
    /// A batch system, or atd, as a job.
    Job,
    /// Another node, for an MPI launcher or Slurm.
    Node,
}

/// Processes of another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherUser {
    /// The user's number.
    pub uid: u32,
    /// How many processes.
    pub processes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Ranks of jobs of which some ranks wrote records and others did not. The others run elsewhere, or can't carry the shim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenRanks {
    /// Ranks without a record.
    pub unseen: u64,
    /// All ranks of these jobs, by the environment of those that were seen.
    pub expected: u64,
}

/// Machines whose processes are in no figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// How many, as far as is known.
    pub unseen: u64,
    /// Their names, where they are known.
    pub unseen_names: Vec<String>,
}

/// A report of another node that is on that node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftReport {
    /// The node.
    pub node: String,
    /// Where it is there: the file as the node's agent told it, or the directory in which it would be.
    pub path: String,
    /// The agent told the path, so there is a report. Otherwise it is where an agent writes that does not see the directory of the run,
    /// and there may be no report.
    pub is_certain: bool,
}

/// Processes by the layer that found them first. `None`: the layer was off, or could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// By a record of the process itself, or of its parent when it forked.
    pub preload: Option<u64>,
    /// By the REAPED record of its parent.
    pub wait: Option<u64>,
    /// By the launcher, which reaped it as subreaper.
    pub subreaper: Option<u64>,
    /// In /proc, among the children of a known process.
    pub scan: Option<u64>,
    /// By the kernel's process connector.
    pub connector: Option<u64>,
}

/// Processes by the source of their peak RSS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peaks {
    /// The kernel's high-water mark at the end.
    pub exact: u64,
    /// A lower bound: what a sample saw, or the peak of some of the programs that the process ran.
    pub sampled: u64,
    /// An upper bound: the kernel's figure, which may be an unknown child's, or include a copy of the parent's memory.
    pub bound: u64,
    /// No sample saw the process, and the kernel's figure is another process's.
    pub unknown: u64,
}
