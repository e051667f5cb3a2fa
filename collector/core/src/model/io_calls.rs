//! What processes passed by system calls that read and write, whatever was behind the descriptor.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ids::ProcessId;

/// Successful calls of read(2), write(2) and their kin, with their bytes: `syscr`, `rchar`, `syscw` and `wchar` of /proc/PID/io. Pipes,
/// sockets, terminals and cached files count. What mmap(2), io_uring and sendmsg(2) move does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCalls {
    /// Bytes that read calls returned.
    pub read_bytes: u64,
    /// Bytes that write calls took.
    pub write_bytes: u64,
    /// Read calls.
    pub reads: u64,
    /// Write calls.
    pub writes: u64,
}

impl IoCalls {
    /// Combines each of the counts with the same one of `other` by `combine`.
    #[must_use]
    pub fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            read_bytes: combine(self.read_bytes, other.read_bytes),
            write_bytes: combine(self.write_bytes, other.write_bytes),
            reads: combine(self.reads, other.reads),
            writes: combine(self.writes, other.writes),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What is left without `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Whether no count of `other` is larger than the same one here.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.with(other, u64::max) == self
    }
}

/// A process whose I/O is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoTarget {
    /// Its pid in the collector's namespace.
    pub pid: u32,
    /// Its id, with the number of children that it is known to have waited for. `None`: the figures leave it out.
    pub id: Option<(ProcessId, u64)>,
    /// Whether its first thread is to be read, too.
    pub needs_first_thread: bool,
}

/// Readings of what single processes passed by calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallsReading {
    /// The processes that were read, parents before their children.
    pub processes: Vec<ProcessCalls>,
    /// Those that could not be read: they are gone.
    pub unread: Vec<ProcessId>,
    /// All records from before its end are applied.
    pub is_complete: bool,
    /// When the first of them was read, CLOCK_MONOTONIC nanoseconds.
    pub began_ns: u64,
}

/// What a process passed by calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCalls {
    /// The process.
    pub id: ProcessId,
    /// How many children it was known to have waited for.
    pub waits: u64,
    /// Its calls, and those of the children that it waited for (`/proc/PID/io`).
    pub whole: IoCalls,
    /// Those of its first thread alone (`/proc/PID/task/PID/io`), before and after `whole` was read. `None`: they were not read.
    pub first_thread: Option<[IoCalls; 2]>,
}

/// Why a reading does not tell what the run's processes passed by calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NoIoCalls {
    /// The run is younger than 50 ms: the reads would slow a short run down.
    #[default]
    #[error("it is not read in a run below 50 ms")]
    Early,
    /// The run attached to a process.
    #[error("what the processes had read and written before the attach is in the kernel's counts")]
    Attached,
    /// The kernel does not count it, or the launcher is gone.
    #[error("/proc/PID/io of gpu-track-run cannot be read")]
    Unreadable,
    /// A live process is another user's.
    #[error("/proc/PID/io of a live process cannot be read: it is another user's, or not dumpable")]
    Denied,
}
