//! Event records: one [`Event`] is one record of [`RECORD_WORDS`] 32-bit words.
//!
//! | kind | written by | when |
//! |---|---|---|
//! | START | the new image | it was loaded (constructor) |
//! | FORK | the fork child | fork, daemon, forkpty or `_Fork` returned in it |
//! | EXEC | the old image | it is about to exec and its peak RSS would be lost otherwise |
//! | EXIT | the process | it is about to end by exit, `_exit`, `quick_exit` or return from main |
//! | REAPED | the reaper | a wait function returned an ended child |
//! | SPAWN_FAILED | the parent | posix_spawn made a child whose exec then failed, and reaped it internally |
//!
//! A process that may be hostile or broken wrote what [`Event::decode`] returns: no number in it can be trusted.

use crate::rank::Rank;

/// 32-bit words of a record.
pub const RECORD_WORDS: usize = 48;

/// Bytes for the names in a START record.
pub const NAME_BYTES: usize = 48;

/// EXIT by a process that runs in its parent's memory (vfork): its RSS figures are not its own.
pub const FLAG_BORROWED_MEMORY: u8 = 1;
/// REAPED by a process that traces others (strace, gdb): the child may not be its own.
pub const FLAG_TRACER: u8 = 2;
/// EXIT of a process that ignores SIGCHLD at its end: the kernel reaps its children, and adds their usage nowhere.
pub const FLAG_AUTOREAP: u8 = 4;
/// EXIT written by the destructor: the status is unknown.
pub const FLAG_NO_STATUS: u8 = 8;
/// EXIT of an image that wrote a START. A fork child that did not exec wrote none.
pub const FLAG_IMAGE: u8 = 16;

/// The usage that getrusage(2) and wait4(2) return for a process, or for its waited-for children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// User CPU time, microseconds.
    pub user_us: u64,
    /// System CPU time, microseconds.
    pub system_us: u64,
    /// ru_maxrss, KiB. It survives exec. For children it is that of the largest one.
    pub max_rss_kib: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Block input, 512-byte units.
    pub input_blocks: u64,
    /// Block output, 512-byte units.
    pub output_blocks: u64,
}

/// Which process wrote a record, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// The writer's pid in its own pid namespace.
    pub pid: u32,
    /// Inode of the writer's pid namespace; 0 if it could not be read.
    pub pid_ns: u32,
    /// Its parent's pid. START and EXIT: from getppid, 0 if the parent is in another pid namespace. FORK: in the
    /// parent's own pid namespace.
    pub parent: u32,
    /// CLOCK_MONOTONIC of the writer, nanoseconds.
    pub monotonic_ns: u64,
    /// `FLAG_*` of this module.
    pub flags: u8,
}

/// An event of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A new image was loaded.
    Start {
        /// CLOCK_REALTIME, nanoseconds since the epoch.
        realtime_ns: u64,
        /// Inode of a pidfd of the process; 0 in the launcher's pid namespace, and where the kernel has no pidfs.
        pidfd_inode: u64,
        /// ru_maxrss in KiB, which exec inherited.
        max_rss_kib: u64,
        /// Base name of argv\[0\], NUL, base name of the first script argument, NUL-padded.
        names: [u8; NAME_BYTES],
        /// Its rank in a job; a `count` of 0: none.
        rank: Rank,
    },
    /// A fork child runs in a copy of its parent's memory.
    Fork {
        /// CLOCK_REALTIME, nanoseconds since the epoch.
        realtime_ns: u64,
        /// Inode of a pidfd of the process; 0 in the launcher's pid namespace, and where the kernel has no pidfs.
        pidfd_inode: u64,
        /// ru_maxrss at the fork in KiB: the RSS that it shares with its parent.
        max_rss_kib: u64,
        /// Inode of the parent's pid namespace.
        parent_pid_ns: u32,
    },
    /// An image is about to be replaced.
    Exec {
        /// VmHWM of the image in KiB.
        vm_hwm_kib: u64,
    },
    /// The process is about to end.
    Exit {
        /// The argument of exit; meaningless with [`FLAG_NO_STATUS`].
        status: i32,
        /// VmHWM of the image in KiB; 0 if ru_maxrss is the image's own peak.
        vm_hwm_kib: u64,
        /// RUSAGE_SELF.
        own: Usage,
        /// RUSAGE_CHILDREN.
        children: Usage,
    },
    /// A child was reaped by the writer.
    Reaped {
        /// The child's pid in the reaper's pid namespace.
        child: u32,
        /// Its wait status, as wait4 gives it.
        status: i32,
        /// The reaper's own ru_maxrss in KiB.
        reaper_max_rss_kib: u64,
        /// Usage of the child and of all descendants that it waited for.
        usage: Usage,
    },
    /// posix_spawn's child could not exec.
    SpawnFailed {
        /// The error that posix_spawn returned.
        error: i32,
    },
}

const KIND_START: u8 = 1;
const KIND_FORK: u8 = 2;
const KIND_EXEC: u8 = 3;
const KIND_EXIT: u8 = 4;
const KIND_REAPED: u8 = 5;
const KIND_SPAWN_FAILED: u8 = 6;

/// Writes words in order. Words that do not fit are skipped, not a panic; an assertion below shows that all fit.
struct Words<'a> {
    out: core::slice::IterMut<'a, u32>,
}

impl Words<'_> {
    fn u32(&mut self, value: u32) {
        if let Some(word) = self.out.next() {
            *word = value;
        }
    }
    fn u64(&mut self, value: u64) {
        self.u32(value as u32);
        self.u32((value >> 32) as u32);
    }
    fn usage(&mut self, usage: &Usage) {
        for value in [
            usage.user_us,
            usage.system_us,
            usage.max_rss_kib,
            usage.minor_faults,
            usage.major_faults,
            usage.voluntary_switches,
            usage.involuntary_switches,
            usage.input_blocks,
            usage.output_blocks,
        ] {
            self.u64(value);
        }
    }
}

/// Reads words in order; behind the end there are zeros.
struct Reader<'a> {
    words: core::slice::Iter<'a, u32>,
}

impl Reader<'_> {
    fn u32(&mut self) -> u32 {
        self.words.next().copied().unwrap_or(0)
    }
    fn u64(&mut self) -> u64 {
        let low = u64::from(self.u32());
        low | u64::from(self.u32()) << 32
    }
    fn usage(&mut self) -> Usage {
        Usage {
            user_us: self.u64(),
            system_us: self.u64(),
            max_rss_kib: self.u64(),
            minor_faults: self.u64(),
            major_faults: self.u64(),
            voluntary_switches: self.u64(),
            involuntary_switches: self.u64(),
            input_blocks: self.u64(),
            output_blocks: self.u64(),
        }
    }
}

impl Event {
    /// The record of this event.
    #[must_use]
    pub fn encode(&self, origin: &Origin) -> [u32; RECORD_WORDS] {
        let mut record = [0; RECORD_WORDS];
        self.encode_into(origin, &mut record);
        record
    }

    /// Writes the record of this event into one of zeros.
    pub fn encode_into(&self, origin: &Origin, record: &mut [u32; RECORD_WORDS]) {
        let kind = match self {
            Event::Start { .. } => KIND_START,
            Event::Fork { .. } => KIND_FORK,
            Event::Exec { .. } => KIND_EXEC,
            Event::Exit { .. } => KIND_EXIT,
            Event::Reaped { .. } => KIND_REAPED,
            Event::SpawnFailed { .. } => KIND_SPAWN_FAILED,
        };
        let mut words = Words { out: record.iter_mut() };
        words.u32(u32::from(kind) | u32::from(origin.flags) << 8);
        words.u32(origin.pid);
        words.u32(origin.pid_ns);
        words.u32(origin.parent);
        words.u64(origin.monotonic_ns);
        match self {
            Event::Start { realtime_ns, pidfd_inode, max_rss_kib, names, rank } => {
                words.u64(*realtime_ns);
                words.u64(*pidfd_inode);
                words.u64(*max_rss_kib);
                let (chunks, _) = names.as_chunks::<4>();
                for chunk in chunks {
                    words.u32(u32::from_le_bytes(*chunk));
                }
                words.u32(rank.job);
                words.u32(rank.rank);
                words.u32(rank.count);
            }
            Event::Fork { realtime_ns, pidfd_inode, max_rss_kib, parent_pid_ns } => {
                words.u64(*realtime_ns);
                words.u64(*pidfd_inode);
                words.u64(*max_rss_kib);
                words.u32(*parent_pid_ns);
            }
            Event::Exec { vm_hwm_kib } => words.u64(*vm_hwm_kib),
            Event::Exit { status, vm_hwm_kib, own, children } => {
                words.u32(status.cast_unsigned());
                words.u64(*vm_hwm_kib);
                words.usage(own);
                words.usage(children);
            }
            Event::Reaped { child, status, reaper_max_rss_kib, usage } => {
                words.u32(*child);
                words.u32(status.cast_unsigned());
                words.u64(*reaper_max_rss_kib);
                words.usage(usage);
            }
            Event::SpawnFailed { error } => words.u32(error.cast_unsigned()),
        }
    }

    /// The event of a record; `None` if its kind is unknown.
    #[must_use]
    pub fn decode(record: &[u32; RECORD_WORDS]) -> Option<(Origin, Event)> {
        let mut words = Reader { words: record.iter() };
        let head = words.u32();
        let origin = Origin {
            flags: (head >> 8) as u8,
            pid: words.u32(),
            pid_ns: words.u32(),
            parent: words.u32(),
            monotonic_ns: words.u64(),
        };
        let event = match head as u8 {
            KIND_START => {
                let (realtime_ns, pidfd_inode, max_rss_kib) = (words.u64(), words.u64(), words.u64());
                let mut names = [0; NAME_BYTES];
                let (chunks, _) = names.as_chunks_mut::<4>();
                for chunk in chunks {
                    *chunk = words.u32().to_le_bytes();
                }
                let rank = Rank { job: words.u32(), rank: words.u32(), count: words.u32() };
                Event::Start { realtime_ns, pidfd_inode, max_rss_kib, names, rank }
            }
            KIND_FORK => Event::Fork {
                realtime_ns: words.u64(),
                pidfd_inode: words.u64(),
                max_rss_kib: words.u64(),
                parent_pid_ns: words.u32(),
            },
            KIND_EXEC => Event::Exec { vm_hwm_kib: words.u64() },
            KIND_EXIT => Event::Exit {
                status: words.u32().cast_signed(),
                vm_hwm_kib: words.u64(),
                own: words.usage(),
                children: words.usage(),
            },
            KIND_REAPED => Event::Reaped {
                child: words.u32(),
                status: words.u32().cast_signed(),
                reaper_max_rss_kib: words.u64(),
                usage: words.usage(),
            },
            KIND_SPAWN_FAILED => Event::SpawnFailed { error: words.u32().cast_signed() },
            _ => return None,
        };
        Some((origin, event))
    }
}

// The longest record is EXIT: 6 words of origin, 3 of status and VmHWM, 18 for each of two usages.
const _: () = assert!(6 + 3 + 2 * 18 <= RECORD_WORDS);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn usage(seed: u64) -> Usage {
        Usage {
            user_us: seed << 40,
            system_us: seed + 1,
            max_rss_kib: seed + 2,
            minor_faults: seed + 3,
            major_faults: seed + 4,
            voluntary_switches: seed + 5,
            involuntary_switches: seed + 6,
            input_blocks: seed + 7,
            output_blocks: u64::MAX - seed,
        }
    }

    #[test]
    fn every_kind_decodes_to_what_was_encoded() {
        let origin =
            Origin { pid: 7, pid_ns: 0xEFFF_FFFC, parent: 3, monotonic_ns: u64::MAX - 9, flags: 0xA5 };
        let mut names = [0; NAME_BYTES];
        names[..14].copy_from_slice(b"python3\0run.py");
        names[NAME_BYTES - 1] = 0xFF;
        for event in [
            Event::Start {
                realtime_ns: 1 << 60,
                pidfd_inode: 1 << 33,
                max_rss_kib: 99,
                names,
                rank: Rank { job: u32::MAX, rank: 3, count: 4 },
            },
            Event::Fork { realtime_ns: 5, pidfd_inode: 6, max_rss_kib: 1 << 40, parent_pid_ns: u32::MAX },
            Event::Exec { vm_hwm_kib: 300_000 },
            Event::Exit { status: -1, vm_hwm_kib: 12, own: usage(3), children: usage(9) },
            Event::Reaped { child: 8, status: 9, reaper_max_rss_kib: 4, usage: usage(1) },
            Event::SpawnFailed { error: 2 },
        ] {
            assert_eq!(Event::decode(&event.encode(&origin)), Some((origin, event)));
        }
    }

    #[test]
    fn unknown_kinds_decode_to_none() {
        assert_eq!(Event::decode(&[0; RECORD_WORDS]), None);
        assert_eq!(Event::decode(&[u32::MAX; RECORD_WORDS]), None);
    }
}
