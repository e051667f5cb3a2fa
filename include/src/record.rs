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
//! | PROGRAM | the old image, or the parent | it execs or has spawned a client of a daemon, or another user's program |
//!
//! The process that wrote a record may be hostile or broken. So no number that [`Event::decode`] returns can be trusted.

use crate::rank::Rank;
use crate::task::TaskKeys;
pub use crate::usage::Usage;

/// The number of [`ABI_VERSION`], for text.
macro_rules! abi_version {
    () => {
        8
    };
}
pub(crate) use abi_version;

/// Version of the records and of the segment's layout. A shim that finds another version goes inert.
pub const ABI_VERSION: u32 = abi_version!();

/// 32-bit words of a record.
pub const RECORD_WORDS: usize = 48;

/// Bytes for the names in a START record.
pub const NAME_BYTES: usize = 48;

/// Bytes for the arguments in a PROGRAM record.
pub const ARGUMENT_BYTES: usize = 160;

/// The user in a PROGRAM record if the program runs as the user with which the image before it was started. No user has this number
/// (chown(2)).
pub const SAME_USER: u32 = u32::MAX;

/// EXIT by a process that runs in its parent's memory (vfork): its RSS figures are not its own.
pub const FLAG_BORROWED_MEMORY: u8 = 1;
/// REAPED by a process that traces others (strace, gdb): the child may not be its own.
pub const FLAG_TRACER: u8 = 2;
/// EXIT of a process that ignores SIGCHLD at its end: the kernel reaps its children, and adds their usage to no process.
pub const FLAG_AUTOREAP: u8 = 4;
/// EXIT written by the destructor: the status is unknown.
pub const FLAG_NO_STATUS: u8 = 8;
/// EXIT of an image that wrote a START. A fork child that did not exec wrote none.
pub const FLAG_IMAGE: u8 = 16;
/// EXIT of a process that had a library loaded through which programs use a GPU, such as libcuda. Without this flag, no such library
/// was loaded, or the loader's list could not be read.
pub const FLAG_GPU_LIBRARY: u8 = 32;

/// Which process wrote a record, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// The writer's pid in its own pid namespace.
    pub pid: u32,
    /// Inode of the writer's pid namespace; 0 if it could not be read.
    pub pid_ns: u32,
    /// The pid of the writer's parent. START and EXIT: from getppid, 0 if the parent is in another pid namespace. FORK:
    /// in the parent's own pid namespace.
    pub parent: u32,
    /// CLOCK_MONOTONIC of the writer, nanoseconds.
    pub monotonic_ns: u64,
    /// `FLAG_*` of this module.
    pub flags: u8,
}

/// Declares the events. A record has the words of [`Origin`], then those of each field in this order.
macro_rules! events {
    ($($(#[$about:meta])* $name:ident = $kind:literal { $($(#[$doc:meta])* $field:ident: $type:ty,)* })*) => {
        /// An event of a process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event {
            $($(#[$about])* $name { $($(#[$doc])* $field: $type,)* },)*
        }

        $(const _: () = assert!(ORIGIN_BYTES $(+ size_of::<$type>())* <= RECORD_WORDS * size_of::<u32>());)*

        impl Event {
            /// The number of the event's kind in a record.
            fn kind(&self) -> u8 {
                match self {
                    $(Self::$name { .. } => $kind,)*
                }
            }

            /// Writes the fields of the event as the next words.
            fn put(&self, words: &mut Words<'_>) {
                match self {
                    $(Self::$name { $($field),* } => { $($field.put(words);)* })*
                }
            }

            /// Reads the fields of an event of this kind from the next words. `None`: there is no such kind.
            fn take(kind: u8, words: &mut Reader<'_>) -> Option<Self> {
                match kind {
                    $($kind => Some(Self::$name { $($field: Field::take(words)),* }),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    /// A new image was loaded.
    Start = 1 {
        /// CLOCK_REALTIME, nanoseconds since the epoch.
        realtime_ns: u64,
        /// Inode of a pidfd of the process; 0 in the launcher's pid namespace, and where the kernel has no pidfs.
        pidfd_inode: u64,
        /// ru_maxrss in KiB, which exec inherited.
        max_rss_kib: u64,
        /// Base name of argv\[0\], NUL, base name of an interpreter's script ([`crate::script`]), NUL-padded.
        names: [u8; NAME_BYTES],
        /// The process's rank in a job; a `count` of 0: none.
        rank: Rank,
        /// What marks the process as one of a task; all zeros: nothing does.
        task: TaskKeys,
    }
    /// A fork child runs in a copy of its parent's memory.
    Fork = 2 {
        /// CLOCK_REALTIME, nanoseconds since the epoch.
        realtime_ns: u64,
        /// Inode of a pidfd of the process; 0 in the launcher's pid namespace, and where the kernel has no pidfs.
        pidfd_inode: u64,
        /// ru_maxrss at the fork in KiB: the RSS that it shares with its parent.
        max_rss_kib: u64,
        /// Inode of the parent's pid namespace.
        parent_pid_ns: u32,
    }
    /// An image is about to be replaced.
    Exec = 3 {
        /// VmHWM of the image in KiB.
        vm_hwm_kib: u64,
    }
    /// The process is about to end.
    Exit = 4 {
        /// The argument of exit; meaningless with [`FLAG_NO_STATUS`].
        status: i32,
        /// VmHWM of the image in KiB. 0: ru_maxrss is the image's own peak, the process runs in its parent's memory, or VmHWM could not
        /// be read.
        vm_hwm_kib: u64,
        /// RUSAGE_SELF.
        own: Usage,
        /// RUSAGE_CHILDREN.
        children: Usage,
    }
    /// A child was reaped by the writer.
    Reaped = 5 {
        /// The child's pid in the reaper's pid namespace.
        child: u32,
        /// The child's wait status, as wait4 gives it.
        status: i32,
        /// The reaper's own ru_maxrss in KiB.
        reaper_max_rss_kib: u64,
        /// Usage of the child and of all descendants that it waited for.
        usage: Usage,
        /// The child's CPU clock after its end: its own CPU time without that of its children, nanoseconds; 0: not read.
        clock_ns: u64,
    }
    /// posix_spawn's child could not exec.
    SpawnFailed = 6 {
        /// The error that posix_spawn returned.
        error: i32,
    }
    /// A program of [`crate::client`] or of another user is about to be exec'd, or was spawned. An exec that fails leaves this record,
    /// too.
    Program = 7 {
        /// The pid of the child of posix_spawn; 0: the writer itself execs.
        child: u32,
        /// The effective user that the program will run as, in the writer's user namespace, or [`SAME_USER`].
        user: u32,
        /// The arguments of a program of [`crate::client`], each with a NUL after it, as far as there is room. The first is without
        /// its directory. All zeros: the program is none of those.
        arguments: [u8; ARGUMENT_BYTES],
    }
}

/// The words of a record that are still to be written. Values that do not fit would be cut; [`events`] asserts that all fit.
type Words<'a> = core::slice::IterMut<'a, u32>;
/// The words of a record that are still to be read.
type Reader<'a> = core::slice::Iter<'a, u32>;

/// A part of a record: a value of one or more words.
trait Field: Sized {
    /// Writes the value as the next words, as far as there is room.
    fn put(&self, words: &mut Words<'_>);
    /// Reads the value from the next words. Words beyond the record's end read as 0.
    fn take(words: &mut Reader<'_>) -> Self;
}

impl Field for u32 {
    fn put(&self, words: &mut Words<'_>) {
        if let Some(word) = words.next() {
            *word = *self;
        }
    }
    fn take(words: &mut Reader<'_>) -> Self {
        words.next().copied().unwrap_or(0)
    }
}

impl Field for i32 {
    fn put(&self, words: &mut Words<'_>) {
        self.cast_unsigned().put(words);
    }
    fn take(words: &mut Reader<'_>) -> Self {
        u32::take(words).cast_signed()
    }
}

impl Field for u64 {
    fn put(&self, words: &mut Words<'_>) {
        (*self as u32).put(words);
        ((self >> 32) as u32).put(words);
    }
    fn take(words: &mut Reader<'_>) -> Self {
        let low = u64::from(u32::take(words));
        low | u64::from(u32::take(words)) << 32
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, words: &mut Words<'_>) {
        let (chunks, _) = self.as_chunks::<4>();
        for chunk in chunks {
            u32::from_le_bytes(*chunk).put(words);
        }
    }
    fn take(words: &mut Reader<'_>) -> Self {
        let mut bytes = [0; N];
        let (chunks, _) = bytes.as_chunks_mut::<4>();
        for chunk in chunks {
            *chunk = u32::take(words).to_le_bytes();
        }
        bytes
    }
}

impl<const N: usize> Field for [u32; N] {
    fn put(&self, words: &mut Words<'_>) {
        for word in self {
            word.put(words);
        }
    }
    fn take(words: &mut Reader<'_>) -> Self {
        core::array::from_fn(|_| u32::take(words))
    }
}

/// Makes a struct a field of records: its words are those of its fields, in this order.
macro_rules! struct_of_fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Field for $name {
            fn put(&self, words: &mut Words<'_>) {
                $(self.$field.put(words);)*
            }
            fn take(words: &mut Reader<'_>) -> Self {
                Self { $($field: Field::take(words)),* }
            }
        }
    };
}

struct_of_fields!(Rank { job, rank, count });
struct_of_fields!(TaskKeys { hashes, text });
struct_of_fields!(Usage {
    user_us,
    system_us,
    max_rss_kib,
    minor_faults,
    major_faults,
    voluntary_switches,
    involuntary_switches,
    input_blocks,
    output_blocks,
});

/// Bytes of [`Origin`] in a record. The word of the flags has the event's kind, too.
const ORIGIN_BYTES: usize = 6 * size_of::<u32>();

impl Event {
    /// Encodes this event as a record.
    pub fn encode(&self, origin: &Origin) -> [u32; RECORD_WORDS] {
        let mut record = [0; RECORD_WORDS];
        self.encode_into(origin, &mut record);
        record
    }

    /// Writes the record of this event into `record`, which must be all zeros.
    pub fn encode_into(&self, origin: &Origin, record: &mut [u32; RECORD_WORDS]) {
        let words = &mut record.iter_mut();
        (u32::from(self.kind()) | u32::from(origin.flags) << 8).put(words);
        origin.pid.put(words);
        origin.pid_ns.put(words);
        origin.parent.put(words);
        origin.monotonic_ns.put(words);
        self.put(words);
    }

    /// Decodes the event of a record. `None`: its kind is unknown.
    pub fn decode(record: &[u32; RECORD_WORDS]) -> Option<(Origin, Event)> {
        let words = &mut record.iter();
        let head = u32::take(words);
        let origin = Origin {
            flags: (head >> 8) as u8,
            pid: Field::take(words),
            pid_ns: Field::take(words),
            parent: Field::take(words),
            monotonic_ns: Field::take(words),
        };
        Some((origin, Self::take(head as u8, words)?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::task::TEXT_BYTES;

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
        let mut form = 0;
        for event in [
            Event::Start {
                realtime_ns: 1 << 60,
                pidfd_inode: 1 << 33,
                max_rss_kib: 99,
                names,
                rank: Rank { job: u32::MAX, rank: 3, count: 4 },
                task: TaskKeys { hashes: [1, 0, u32::MAX, 4, 5, 6, 7], text: [b't'; TEXT_BYTES] },
            },
            Event::Fork { realtime_ns: 5, pidfd_inode: 6, max_rss_kib: 1 << 40, parent_pid_ns: u32::MAX },
            Event::Exec { vm_hwm_kib: 300_000 },
            Event::Exit { status: -1, vm_hwm_kib: 12, own: usage(3), children: usage(9) },
            Event::Reaped { child: 8, status: 9, reaper_max_rss_kib: 4, usage: usage(1), clock_ns: 1 << 34 },
            Event::SpawnFailed { error: 2 },
            Event::Program { child: 9, user: 1000, arguments: [b's'; ARGUMENT_BYTES] },
        ] {
            let record = event.encode(&origin);
            assert_eq!(Event::decode(&record), Some((origin, event)));
            // FNV-1a.
            let hash = |hash: u32, word: &u32| (hash ^ word).wrapping_mul(0x0100_0193);
            form = record.iter().fold(form, hash);
        }
        let of_version = (ABI_VERSION, form);
        assert_eq!(of_version, (8, 4_230_366_340), "where records have another form, ABI_VERSION must go up");
    }

    #[test]
    fn unknown_kinds_decode_to_none() {
        assert_eq!(Event::decode(&[0; RECORD_WORDS]), None);
        assert_eq!(Event::decode(&[u32::MAX; RECORD_WORDS]), None);
    }
}
