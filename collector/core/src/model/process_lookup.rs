//! What sources may ask about the processes of the run.

use super::ids::{Key, ProcessId, Target};

/// The processes whose figures are not final, as sources see them.
pub trait ProcessLookup {
    /// Whether the command's first process, or the process that the run attached to, is known.
    fn has_main(&self) -> bool;

    /// The live processes, oldest first.
    fn live(&self) -> Vec<ProcessId>;

    /// How to address a live process. `None`: it is dead, or its pid in the collector's pid namespace is not known.
    fn target(&self, id: ProcessId) -> Option<Target>;

    /// Finds the live process that has this pid in its own pid namespace. If several count as alive, as when the end of one is not
    /// known yet, this is the youngest.
    fn live_by_key(&self, key: Key) -> Option<ProcessId>;

    /// Finds the live process with this pidfd inode and this pid in its own pid namespace, whose pid in the collector's is not known.
    fn live_by_inode(&self, pidfd_inode: u64, pid: u32) -> Option<ProcessId>;

    /// Whether this pid and pidfd inode belong to a process whose figures are not final, dead or alive. The process started
    /// at about this time, CLOCK_MONOTONIC nanoseconds.
    fn is_known(&self, key: Key, pidfd_inode: u64, start_ns: u64) -> bool;

    /// What is known of the program that a live process runs. `None`: it is dead.
    fn program(&self, id: ProcessId) -> Option<KnownProgram>;

    /// Inode of the collector's pid namespace.
    fn pid_ns(&self) -> u32;

    /// When the session began, CLOCK_MONOTONIC, nanoseconds.
    fn session_start_ns(&self) -> u64;
}

/// What is known of the program that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProgram {
    /// The source that reported it.
    pub origin: ProgramOrigin,
    /// The process has written a record.
    pub has_record: bool,
    /// An exec was seen, and no START record since.
    pub has_unreported_exec: bool,
    /// When the program began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Pid of the parent, where that is live and known.
    pub live_parent_pid: Option<u32>,
    /// Pid of the parent, dead or alive.
    pub parent_pid: Option<u32>,
}

/// The source that reported the program of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOrigin {
    /// Its START record.
    Reported,
    /// A FORK record: it is a copy of its parent.
    ForkCopy,
    /// It wrote no record, and may be a copy of its parent.
    Unknown,
    /// /proc: the program does not carry the shim, or the process still runs in its parent's memory (vfork).
    Read,
}
