//! Who exists: the layers that find processes. What they find goes to the tree.

pub mod connector;
pub mod ends;
pub mod kernel_side;
pub mod kin;
pub mod overflow;
pub mod pump;
pub mod records;
pub mod scan;
pub mod trust;

use gpu_track_abi::record::{Event, RECORD_WORDS};

use crate::state::Entry;
use connector::KernelEvent;
use records::Stored;

/// What a layer that never waits found.
#[derive(Debug, Clone, Copy)]
pub enum Finding {
    /// A process said so itself.
    Record(Stored),
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
        Some(Self::Record(Stored { position: *position, origin, event }))
    }
}
