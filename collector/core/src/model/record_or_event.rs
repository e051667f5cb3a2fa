//! Findings: event records, which the shim in each process writes, and events of the kernel's process connector, in one order of
//! time. Unlike what a scan of /proc finds, they don't wait for a sample.

use gpu_track_abi::record::{Event, Origin, RECORD_WORDS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kernel_event::KernelEvent;

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

/// The number of a record in the overflow area (which takes what finds the ring full), from its position. `None`: it is in the ring.
pub fn number(position: u64) -> Option<u64> {
    (position & OVERFLOW_MARK != 0).then_some(position & !OVERFLOW_MARK)
}

/// What a process wrote of itself, or the kernel reported of it.
#[derive(Debug, Clone, Copy)]
pub enum Finding {
    /// A record that a process wrote.
    Record(StoredRecord),
    /// An event of the process connector.
    Kernel(KernelEvent),
}

/// Writes the finding as an entry of the journal, the only form that findings are stored in.
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
    /// Encodes the finding as a journal entry. `words`: the record as it was read; unused for a kernel event.
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

    /// Reads what [`Self::entry`] encoded. `None`: the entry is damaged.
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
    /// Invalid records, which no shim writes.
    pub events: u64,
    /// The ring was overwritten or its records are forged, so no more records are read.
    pub is_untrusted: bool,
}

impl Damage {
    /// The damage of both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            is_untrusted: self.is_untrusted || other.is_untrusted,
        }
    }
}
