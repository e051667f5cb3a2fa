//! What the layers that never wait find: event records of processes and events of the kernel, in one order of time.

use std::fmt;

use gpu_track_abi::record::{Event, Origin, RECORD_WORDS};
use serde::{Deserialize, Serialize};

/// What the kernel tells of a process, or why it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was made.
    Fork {
        /// By this process.
        parent: u32,
    },
    /// It runs another program.
    Exec,
    /// Its first thread ended.
    Exit {
        /// Wait status.
        status: i32,
    },
    /// There was no room for some events; the pid says nothing.
    Lost {
        /// How many in all by now, as far as the kernel tells: of the whole machine.
        dropped: u32,
    },
    /// There will be no more; the pid says nothing.
    GivenUp(AbsenceReason),
}

/// Why the layer was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceReason {
    /// The kernel took the subscription and sends nothing.
    NoEvents,
    /// Other people's processes come and go too fast.
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

/// One event about a process (not a thread), by its pid in the initial namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// About whom.
    pub pid: u32,
    /// What.
    pub what: What,
}

impl KernelEvent {
    /// For the next collector.
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

    /// From an earlier collector.
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

/// A record that was read.
#[derive(Debug, Clone, Copy)]
pub struct StoredRecord {
    /// Its position in the ring, or behind it (see [`super::overflow::number`]).
    pub position: u64,
    /// Who wrote it.
    pub origin: Origin,
    /// What it says.
    pub event: Event,
}

/// Marks the position of a record that was not in the ring.
pub const MARK: u64 = 1 << 63;

/// The number of a record among those that were appended, from the position that it is stored with; `None` for one of
/// the ring.
#[must_use]
pub fn number(position: u64) -> Option<u64> {
    (position & MARK != 0).then_some(position & !MARK)
}

/// What a layer that never waits found.
#[derive(Debug, Clone, Copy)]
pub enum Finding {
    /// A process said so itself.
    Record(StoredRecord),
    /// The kernel did.
    Kernel(KernelEvent),
}

/// Stands for a position in the ring that no record ever has.
const NO_POSITION: u64 = u64::MAX;

impl Finding {
    /// For the journal; `words` are those of a record.
    #[must_use]
    pub fn entry(&self, words: &[u32; RECORD_WORDS]) -> Entry {
        match self {
            Self::Record(stored) => (stored.position, *words),
            Self::Kernel(event) => {
                let mut words = [0; RECORD_WORDS];
                for (word, of_event) in words.iter_mut().zip(event.encode()) {
                    *word = of_event;
                }
                (NO_POSITION, words)
            }
        }
    }

    /// From the journal.
    #[must_use]
    pub fn of_entry((position, words): &Entry) -> Option<Self> {
        if *position == NO_POSITION {
            return KernelEvent::decode(words).map(Self::Kernel);
        }
        let (origin, event) = Event::decode(words)?;
        Some(Self::Record(StoredRecord { position: *position, origin, event }))
    }
}

/// An entry of the journal: a record's position in the ring and its words, or what stands for them.
pub type Entry = (u64, [u32; RECORD_WORDS]);

/// An event of the kernel. No slot lies on two pages, so the end of a writer leaves whole ones.
pub type EventSlot = [u32; 8];

/// Which findings are in an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadUpTo {
    /// How many: as many journal entries there are.
    pub count: u64,
    /// Position in the ring behind the last record.
    pub position: u64,
    /// How many records were read from behind the ring.
    pub overflow: u64,
    /// How many of them are events of the kernel.
    pub events: u64,
}

/// What was wrong with the records of the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Records that made no sense.
    pub events: u64,
    /// The ring was overwritten, or its records are forged: nothing more is read.
    pub is_untrusted: bool,
}

impl Damage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            is_untrusted: self.is_untrusted || other.is_untrusted,
        }
    }
}

/// What a zombie still tells of the process that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remains {
    /// CPU time of all its threads, nanoseconds.
    pub cpu_ns: u64,
    /// User part of it, clock ticks.
    pub user_ticks: u64,
    /// System part of it, clock ticks.
    pub system_ticks: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
}
