//! I/O, page faults and context switches. Block I/O, faults and switches are sums of the processes' rusage at their ends: processes
//! that are known from samples only add nothing. `None`: no process's rusage is known. If the run attached to a process, block I/O and
//! faults come from samples. I/O by calls is the kernel's sum over the launcher's reaped descendants.

use serde::{Deserialize, Serialize};

/// Block I/O, bytes (rusage's 512-byte blocks), and what calls passed, wherever from and to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Io {
    /// Read from storage.
    pub read_bytes: Option<u64>,
    /// Written to storage.
    pub write_bytes: Option<u64>,
    /// Part of `write_bytes` that was truncated or removed before, bytes.
    pub cancelled_write_bytes: Option<u64>,
    /// Why the first two are null.
    pub reason: Option<String>,
    /// Passed by read(2) and its kin: cached files, pipes, sockets and /proc count; mmap, io_uring and recvmsg don't (`rchar`).
    pub read_call_bytes: Option<u64>,
    /// Passed by write(2) and its kin: cached files, pipes, sockets and terminals count; mmap, io_uring and sendmsg don't (`wchar`).
    pub write_call_bytes: Option<u64>,
    /// Read calls, those of an exec included (`syscr` of /proc/PID/io).
    pub read_calls: Option<u64>,
    /// Write calls (`syscw` of /proc/PID/io).
    pub write_calls: Option<u64>,
    /// Why the bytes and numbers of calls are null.
    pub calls_reason: Option<String>,
}

/// Page faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Faults {
    /// A major one needs I/O.
    pub minor: Option<u64>,
    /// A major one needs I/O.
    pub major: Option<u64>,
}

/// Context switches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextSwitches {
    /// Involuntary ones preempt the process.
    pub voluntary: Option<u64>,
    /// Involuntary ones preempt the process.
    pub involuntary: Option<u64>,
}
