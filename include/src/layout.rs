//! The segment: header page and event ring, in one file of [`FILE_SIZE`] bytes.
//!
//! ```text
//! 0          HEADER_SIZE              FILE_SIZE
//! | Header   | RING_CAPACITY slots    |
//! ```
//!
//! Records that find the ring full are appended after it in the same file ([`crate::overflow`]).
//!
//! A tracked process maps header and event ring, less than 1 MiB. If it mapped more, an unprivileged `mlockall` in the process could
//! fail (RLIMIT_MEMLOCK). An all-zero ring is a valid empty one.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::record::{ABI_VERSION, RECORD_WORDS};
use crate::task::{KINDS, NAMES_BYTES};

/// First eight bytes of a segment: "gputrack" as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gputrack");

/// Bytes of the header page (the smallest page size of a supported machine).
pub const HEADER_SIZE: usize = 4096;

/// Slots of the event ring: a power of two, and as many as fit into 1 MiB with the header.
pub const RING_CAPACITY: usize = 2048;

/// Bytes of one slot: [`RECORD_WORDS`] words, each 32 bits of payload and a 32-bit lap tag.
pub const SLOT_SIZE: usize = RECORD_WORDS * size_of::<u64>();

/// Bytes of the event ring.
pub const RING_SIZE: usize = RING_CAPACITY * SLOT_SIZE;

/// Bytes that a tracked process maps.
pub const TRACKED_SIZE: usize = HEADER_SIZE + RING_SIZE;

/// Bytes of the segment file before records are appended to it.
pub const FILE_SIZE: usize = TRACKED_SIZE;

/// Header flag: the kernel has pidfs (Linux 6.9), so a pidfd's inode number identifies a process uniquely.
pub const FLAG_PIDFS: u32 = 1;

/// Header flag: do not repair the environments of exec'd programs (`--no-env-repair`).
pub const FLAG_NO_ENV_REPAIR: u32 = 2;

/// Header flag: the wait layer is off, so no REAPED records are written (`--layers`).
pub const FLAG_NO_WAIT_RECORDS: u32 = 4;

/// Header flag: each thread buffers the RSS changes of its page faults (Linux before 6.2). A process makes the kernel
/// count them before it reads its peak.
pub const FLAG_SPLIT_RSS: u32 = 8;

/// [`Header::state`]: the session takes records.
pub const STATE_OPEN: u32 = 1;

/// [`Header::state`]: the report is written, and no more records are accepted.
pub const STATE_CLOSED: u32 = 2;

/// [`Header::state`]: the session takes records, and the reader sleeps until one comes.
pub const STATE_RESTING: u32 = 3;

/// [`Header::nodes`]: no process has to tell the launcher anything.
pub const NODES_NONE: u32 = 0;

/// [`Header::nodes`]: the launcher is to be told before the first srun.
pub const NODES_BY_SRUN: u32 = 1;

/// [`Header::nodes`]: the launcher is to be told before the first program that starts an agent, such as ssh.
pub const NODES_BY_SSH: u32 = 2;

/// [`Header::nodes`]: a process has told the launcher, and waits until this value changes.
pub const NODES_ASKED: u32 = 3;

/// [`Header::nodes`]: a process has told the launcher, and no process waits any more.
pub const NODES_GIVEN_UP: u32 = 4;

/// [`Header::nodes`]: the launcher is to be told before the first program that starts others on the nodes of a job, such as mpirun.
pub const NODES_BY_LAUNCHER: u32 = 5;

/// A counter on a cache line of its own, so that writers and reader do not slow each other down.
#[repr(C, align(64))]
pub struct Line(pub AtomicU64);

/// The first page of a segment. The launcher writes it before another process can map it. Later only the atomics
/// change.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`].
    pub abi_version: u32,
    /// [`RECORD_WORDS`].
    pub record_words: u32,
    /// [`RING_CAPACITY`].
    pub ring_capacity: u32,
    /// `FLAG_*`.
    pub flags: u32,
    /// A random number that identifies the session.
    pub session_id: u64,
    /// The launcher's pid in its own pid namespace.
    pub launcher_pid: u32,
    /// Inode of the launcher's pid namespace.
    pub launcher_pid_ns: u32,
    /// CLOCK_MONOTONIC at creation, nanoseconds, in the launcher's time namespace.
    pub created_monotonic_ns: u64,
    /// CLOCK_REALTIME at creation, nanoseconds since the epoch.
    pub created_realtime_ns: u64,
    /// [`STATE_OPEN`], [`STATE_CLOSED`] or [`STATE_RESTING`].
    pub state: AtomicU32,
    /// Futex that the collector waits on. It is incremented and woken when a quarter of the ring is used, by the first record
    /// after a rest, and when the command ends.
    pub doorbell: AtomicU32,
    /// Tickets that writers took.
    pub head: Line,
    /// Records that the reader has released.
    pub tail: Line,
    /// Records that were lost: the ring was full, and the overflow was full or could not be written.
    pub dropped: Line,
    /// Programs that were started where they can't see the shim or the segment (another root or /dev, Landlock).
    pub unreachable: Line,
    /// Programs that were started without the shim because of a seccomp filter.
    pub filtered: Line,
    /// The names of `--by-env`, each with a NUL after it.
    pub task_names: [AtomicU8; NAMES_BYTES],
    /// The hashes of the launcher's own [`crate::task::TaskKeys`]: these marks are no task of the run.
    pub task_baseline: [u32; KINDS],
    /// Which programs reach other nodes, so that the launcher has to prepare for them, and whether one is about to start: `NODES_*`. A
    /// futex.
    pub nodes: AtomicU32,
}

const _: () = {
    assert!(RING_CAPACITY.is_power_of_two());
    assert!(size_of::<Header>() <= HEADER_SIZE);
    assert!(TRACKED_SIZE <= 1 << 20);
    assert!(SLOT_SIZE.is_multiple_of(64));
    assert!(TRACKED_SIZE.is_multiple_of(64));
};

impl Header {
    /// Whether a process that was built with this crate can use the segment.
    pub fn is_compatible(&self) -> bool {
        self.magic == MAGIC
            && self.abi_version == ABI_VERSION
            && self.record_words as usize == RECORD_WORDS
            && self.ring_capacity as usize == RING_CAPACITY
    }

    /// Whether the session takes records.
    pub fn is_open(&self) -> bool {
        matches!(self.state.load(Ordering::Relaxed), STATE_OPEN | STATE_RESTING)
    }

    /// Announces that the reader goes to sleep: the next record rings the doorbell. A record that is being written at this moment may
    /// not ring it, so the reader may sleep only for a limited time. For the reader only.
    pub fn begin_rest(&self) {
        let _ = self.state.compare_exchange(STATE_OPEN, STATE_RESTING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the reader's rest, for a writer that has stored a record. Returns whether the reader was resting: then the writer must
    /// ring the doorbell.
    pub fn end_rest(&self) -> bool {
        // This comes first, because even an exchange that fails would take the cache line from the other writers.
        self.state.load(Ordering::Relaxed) == STATE_RESTING
            && self
                .state
                .compare_exchange(STATE_RESTING, STATE_OPEN, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Causes the header page's first page fault by a write that changes no counter. On a read fault the kernel would also
    /// map up to 15 pages of the ring ("fault-around", mm/memory.c, do_read_fault). That takes time, and a process
    /// that writes two records does not need them.
    pub fn fault_in_for_writing(&self) {
        // On x86 a failed exchange is a write to the MMU, too. On other machines it may be a read.
        let _ = self.head.0.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
