//! What processes passed by system calls that read and write, whatever was behind the descriptor.

use serde::{Deserialize, Serialize};
use thiserror::Error;

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
}

/// Why a reading does not tell what the run's processes passed by calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NoIoCalls {
    /// The run is too young: what is read costs a short run time.
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
