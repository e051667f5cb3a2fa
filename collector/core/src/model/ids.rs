//! Ids of processes, which stay unique when pids are reused.
//!
//! A process is identified by pid, pid namespace and start time. The start is compared with /proc before anything is read there.
//! Uninstrumented processes (without the shim), and those in another pid namespace, are also identified by the inode of a pidfd (pidfs,
//! Linux 6.9). Others need no pidfd, since a record of their end comes before the pid is used again. To open one costs more than all
//! other work at a start.

use serde::{Deserialize, Serialize};

/// A process of this run. Never used twice, unlike a pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

/// A task of a pipeline within a run, in the order in which they began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The processes that are in no task.
    pub const WORKFLOW: Self = Self(0);
    /// The tasks that are too many to be told apart.
    pub const OTHERS: Self = Self(1);
    /// The task that began first.
    pub const FIRST: Self = Self(2);
}

/// Names a set of processes that may share memory copy-on-write: one that executed a program, and its fork children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageGroup(pub u64);

/// A pid in a pid namespace (its inode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Inode of the namespace.
    pub pid_ns: u32,
    /// The pid there.
    pub pid: u32,
}

/// The creator of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parent {
    /// The launcher: the process is the command's first one, or was reparented before it wrote a record.
    Launcher,
    /// A process of the tree, whose figures may be final already.
    Known(ProcessId),
    /// Not known.
    Unknown,
}

impl Parent {
    /// The process of the tree that it is. `None`: the launcher, or unknown.
    pub fn known(self) -> Option<ProcessId> {
        if let Self::Known(id) = self { Some(id) } else { None }
    }
}

/// Distinguishes a process from one that gets its pid later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Inode of a pidfd of it; 0: unknown.
    pub pidfd_inode: u64,
    /// The latest start that /proc can show for it, CLOCK_MONOTONIC nanoseconds. A process that gets its pid later has a later
    /// start.
    pub latest_start_ns: u64,
    /// Its start comes from the clock of another time namespace, so it is only roughly known.
    pub is_start_rough: bool,
    /// The launcher has not reaped it, so no other process can have its pid.
    pub is_pid_held: bool,
}

impl Identity {
    /// Whether a process with this pidfd inode (0: unknown) and start, CLOCK_MONOTONIC nanoseconds, can be this one. If the inodes
    /// of both are known, they decide, because the kernel never uses an inode number twice. Otherwise the start may not be later than
    /// the latest that this process can have.
    pub fn can_be(&self, pidfd_inode: u64, start_ns: u64) -> bool {
        if self.pidfd_inode != 0 && pidfd_inode != 0 {
            return self.pidfd_inode == pidfd_inode;
        }
        start_ns <= self.latest_start_ns
    }

    /// Whether the process that /proc shows under its pid, with this start (CLOCK_MONOTONIC nanoseconds), is this one. `pidfd_inode`
    /// finds the inode of a pidfd of the shown process; it is called only if there is a known inode to compare with.
    pub fn is_shown(&self, start_ns: u64, pidfd_inode: impl FnOnce() -> u64) -> bool {
        self.is_pid_held || self.can_be_shown(start_ns, pidfd_inode)
    }

    /// Whether the process that /proc shows under its pid can be this one, although that pid may have been used again. For the
    /// arguments see [`Self::is_shown`]. If no inodes can be compared and the start is rough, the answer is yes.
    pub fn can_be_shown(&self, start_ns: u64, pidfd_inode: impl FnOnce() -> u64) -> bool {
        let inode = if self.pidfd_inode == 0 { 0 } else { pidfd_inode() };
        self.can_be(inode, start_ns) || (inode == 0 && self.is_start_rough)
    }
}

/// A live process as sources address it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Its id in this run.
    pub id: ProcessId,
    /// Its pid in the collector's pid namespace.
    pub pid: u32,
    /// Distinguishes it from a later process of that pid.
    pub identity: Identity,
}
