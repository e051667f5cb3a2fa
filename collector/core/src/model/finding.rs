//! Findings: event records of processes and events of the process connector, in one order of time.
//!
//! They come from the two discovery layers that never wait for a sample.

use std::fmt;

use gpu_track_abi::record::{Event, Origin, RECORD_WORDS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What an event of the process connector says, or what happened to the connector itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The process was created.
    Fork {
        /// Pid of the process that created it.
        parent: u32,
    },
    /// The process executed another program.
    Exec,
    /// The first thread of the process ended.
    Exit {
        /// Wait status.
        status: i32,
    },
    /// The socket's buffer was full and events were lost. The pid has no meaning.
    Lost {
        /// Lost events of the whole machine since the subscription, as far as the kernel counts them.
        dropped: u32,
    },
    /// The connector is no longer read. The pid has no meaning.
    GivenUp(AbsenceReason),
}

/// Why the process connector is no longer read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceReason {
    /// The kernel accepted the subscription but sends no events.
    NoEvents,
    /// Processes outside the tree start and end too fast.
    Cost,
}

impl fmt::Display for AbsenceReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoEvents => "the kernel sends no events here: not in the initial namespaces",
            Self::Cost => {
                "given up: the machine starts so many processes that reading it would cost 5% of a core"
            }
        })
    }
}

/// One event about a process (not a thread). Pids are those of the initial pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The process.
    pub pid: u32,
    /// What happened.
    pub what: What,
}

impl KernelEvent {
    /// The event as a slot of the state file.
    #[must_use]
    pub fn encode(&self) -> EventSlot {
        let (kind, value) = match self.what {
            What::Fork { parent } => (0, parent),
            What::Exec => (1, 0),
            What::Exit { status } => (2, status.cast_unsigned()),
            What::Lost { dropped } => (3, dropped),
            What::GivenUp(AbsenceReason::NoEvents) => (4, 0),
            What::GivenUp(AbsenceReason::Cost) => (4, 1),
        };
        [kind, value, self.pid, self.at_ns as u32, (self.at_ns >> 32) as u32, 0, 0, 0]
    }

    /// The event in a slot of the state file.
    #[must_use]
    pub fn decode(words: &[u32]) -> Option<Self> {
        let [kind, value, pid, low, high, ..] = *words else { return None };
        let what = match kind {
            0 => What::Fork { parent: value },
            1 => What::Exec,
            2 => What::Exit { status: value.cast_signed() },
            3 => What::Lost { dropped: value },
            4 if value == 0 => What::GivenUp(AbsenceReason::NoEvents),
            4 => What::GivenUp(AbsenceReason::Cost),
            _ => return None,
        };
        Some(Self { at_ns: u64::from(high) << 32 | u64::from(low), pid, what })
    }
}

/// An event record and where it was read.
#[derive(Debug, Clone, Copy)]
pub struct StoredRecord {
    /// Position in the ring, or in the overflow area (see [`number`]).
    pub position: u64,
    /// The process that wrote it, and when.
    pub origin: Origin,
    /// What happened.
    pub event: Event,
}

/// Marks a position in the overflow area.
pub const OVERFLOW_MARK: u64 = 1 << 63;

/// The number of a record in the overflow area, from its position; `None` for a record of the ring.
pub fn number(position: u64) -> Option<u64> {
    (position & OVERFLOW_MARK != 0).then_some(position & !OVERFLOW_MARK)
}

/// An observation of a layer that never waits for a sample.
#[derive(Debug, Clone, Copy)]
pub enum Finding {
    /// A record that a process wrote.
    Record(StoredRecord),
    /// An event of the process connector.
    Kernel(KernelEvent),
}

/// As an entry of the journal: that is the one form that is written down.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words = match self {
            Self::Record(stored) => stored.event.encode(&stored.origin),
            Self::Kernel(_) => [0; RECORD_WORDS],
        };
        self.entry(&words).as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Finding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = Vec::deserialize(deserializer)?.try_into().ok().and_then(|entry| Self::of_entry(&entry));
        entry.ok_or_else(|| D::Error::custom("no finding"))
    }
}

/// Stands for a position in the ring that no record ever has.
const NO_POSITION: u64 = u64::MAX;

impl Finding {
    /// The finding as a journal entry; `words` are those of a record.
    #[must_use]
    pub fn entry(&self, words: &[u32; RECORD_WORDS]) -> Entry {
        let mut entry = [0; ENTRY_WORDS];
        let position = match self {
            Self::Record(stored) => {
                entry[..RECORD_WORDS].copy_from_slice(words);
                stored.position
            }
            Self::Kernel(event) => {
                let event = event.encode();
                entry[..event.len()].copy_from_slice(&event);
                NO_POSITION
            }
        };
        (entry[RECORD_WORDS], entry[RECORD_WORDS + 1]) = (position as u32, (position >> 32) as u32);
        entry
    }

    /// The finding in a journal entry.
    #[must_use]
    pub fn of_entry(entry: &Entry) -> Option<Self> {
        let (words, [low, high, ..]) = entry.split_first_chunk()? else { return None };
        let position = u64::from(*high) << 32 | u64::from(*low);
        if position == NO_POSITION {
            return KernelEvent::decode(words).map(Self::Kernel);
        }
        let (origin, event) = Event::decode(words)?;
        Some(Self::Record(StoredRecord { position, origin, event }))
    }
}

/// An entry of the journal: the words of a record, or an encoded [`KernelEvent`]; the record's position, or [`NO_POSITION`]; zeros.
pub type Entry = [u32; ENTRY_WORDS];

/// Words of an [`Entry`].
pub const ENTRY_WORDS: usize = (RECORD_WORDS + 2).next_power_of_two();

/// An encoded [`KernelEvent`].
pub type EventSlot = [u32; 8];

/// How far the findings have been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadUpTo {
    /// Number of findings, which is the number of journal entries.
    pub count: u64,
    /// Position in the ring after the last record.
    pub position: u64,
    /// Number of records read from the overflow area.
    pub overflow: u64,
    /// Number of findings that are events of the process connector.
    pub events: u64,
}

/// What was wrong with the event records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Records that no writer of this project produces.
    pub events: u64,
    /// The ring was overwritten or its records are forged, so no more records are read.
    pub is_untrusted: bool,
}

impl Damage {
    /// The damage of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            is_untrusted: self.is_untrusted || other.is_untrusted,
        }
    }
}

/// The kernel's account of a process that exited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitAccount {
    /// CPU time of all its threads, nanoseconds. `None`: the kernel was built without it (CONFIG_TASK_DELAY_ACCT).
    pub cpu_ns: Option<u64>,
    /// It lacks only what the kernel takes to tear the process down. Else it is as of a clock tick before the exit.
    pub is_cpu_whole: bool,
    /// Peak RSS of the address space that it had last, bytes. `None`: the kernel was built without it (CONFIG_TASK_XACCT), or
    /// its CPUs had not added up the few pages of a small process.
    pub peak_rss_bytes: Option<u64>,
    /// `None` if it had several threads.
    pub thread: Option<ThreadAccount>,
}

/// What the kernel adds up for each thread only; of the only thread of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// User CPU time by clock ticks, microseconds.
    pub user_us: u64,
    /// System CPU time by clock ticks, microseconds.
    pub system_us: u64,
    /// Minor faults of all images of the process, in bytes: it wrote no more memory, but for huge pages.
    pub faulted_bytes: u64,
}

/// Final figures of a process, read from its zombie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// CPU time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// User CPU time, clock ticks.
    pub user_ticks: u64,
    /// System CPU time, clock ticks.
    pub system_ticks: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
}
