//! The cgroups of a run. The launcher creates them; its collectors read them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::report::Cgroup;
use super::run_limit::KernelLimit;

/// The cgroups of a run, as they were at its start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cgroups {
    /// `--cgroup`: the command's own cgroup, or why it has none.
    pub own: Option<Result<RunCgroup, NoRunCgroup>>,
    /// Whether the kernel enforces the user's limit of RAM in that cgroup. `None`: there is no such limit, or no such cgroup.
    pub ram_limit: Option<KernelLimit>,
    /// OOM kills in the cgroup that the launcher was started in.
    pub oom: Option<OomCounter>,
    /// The groups with a memory limit that the launcher is in, innermost first.
    pub memory_limits: Vec<MemoryLimit>,
}

/// What a run did in its cgroups.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CgroupUse {
    /// The kernel's figures of the command's own cgroup, if one was made.
    pub own: Option<Cgroup>,
    /// Out-of-memory kills in the launcher's cgroup since the start; `None` if it has no counter.
    pub oom_kills: Option<u64>,
    /// The groups with a memory limit that the launcher is in, innermost first.
    pub memory_limits: Vec<MemoryLimitUse>,
}

/// Counts the processes of a cgroup that the kernel's OOM killer killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomCounter {
    /// The file of the group that has the count.
    pub file: PathBuf,
    /// The count at the start of the session.
    pub before: u64,
}

/// A cgroup with a memory limit that applies to the command, as it was at the start of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The group's directory.
    pub dir: PathBuf,
    /// Name of the group.
    pub name: String,
    /// The limit, bytes.
    pub limit_bytes: u64,
    /// How often the limit had been hit, if the kernel counts it.
    pub hits_before: Option<u64>,
    /// The largest charge until then, bytes, if the kernel keeps it.
    pub peak_before: Option<u64>,
}

/// What a run did in a cgroup with a memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimitUse {
    /// Name of the group.
    pub cgroup: String,
    /// The limit, bytes.
    pub limit_bytes: u64,
    /// How often an allocation met the limit during the run. In v1, hits that reclaim solved count, too. `None`: not known.
    pub hits: Option<u64>,
    /// The largest charge since the group was made, page cache included, bytes.
    pub peak_bytes: Option<u64>,
    /// That charge was reached during the run.
    pub is_peak_of_run: bool,
}

/// A cgroup (v2) made for one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCgroup {
    /// The group that the launcher was started in.
    pub home: PathBuf,
    /// The command's group, a child of `home`.
    pub dir: PathBuf,
    /// The launcher's group, a child of `home` too. `None`: the launcher stayed in `home`. It has to leave if controllers must be
    /// enabled for children there, since the kernel allows that only in a group without processes.
    pub aside: Option<PathBuf>,
    /// Controllers that were enabled for the command's group, to be disabled when it is removed.
    pub enabled: Vec<String>,
    /// Why other controllers could not be enabled.
    pub missing: Vec<String>,
}

/// Why a command has no cgroup of its own. Errors of the kernel are text, since the launcher sends this to the collector.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NoRunCgroup {
    /// There is no cgroup v2 hierarchy.
    #[error("no cgroup v2 is mounted")]
    NotMounted,
    /// The directory cannot be created.
    #[error("cannot create {dir}: {error}")]
    NotCreated {
        /// The directory.
        dir: String,
        /// Error of mkdir(2).
        error: String,
    },
    /// The command may not be moved into the cgroup.
    #[error("cannot move the command into it: {error}")]
    NotEntered {
        /// Error of opening `cgroup.procs`.
        error: String,
    },
}
