//! Names of processes: what stays the same when pids are reused.

use serde::{Deserialize, Serialize};

/// A process of this run. Never used twice, unlike a pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

/// Processes whose memory may be shared copy-on-write: an image and its fork children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageGroup(pub u64);

/// A pid in a pid namespace (its inode).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Inode of the namespace.
    pub pid_ns: u32,
    /// The pid there.
    pub pid: u32,
}

/// Who made a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parent {
    /// The launcher: it is the command's first process, or was reparented before it could say more.
    Launcher,
    /// A process of the tree (which may be settled already).
    Known(ProcessId),
    /// Nobody that we know.
    Unknown,
}

/// The layer that found a process first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoundBy {
    /// Its own record.
    Preload,
    /// Its reaper's record.
    Wait,
    /// The launcher, as its parent or as subreaper.
    Subreaper,
    /// Looking at /proc.
    Scan,
    /// The kernel's process connector.
    Connector,
}
