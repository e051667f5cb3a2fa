//! Where records go that find the event ring full: behind the segment in the same file, by plain writes, one slot each.
//!
//! The ring is small, since every tracked process maps it. A tree with more runnable processes than cores can leave an
//! ordinary user's collector without a core for longer than the ring lasts. The kernel appends one write after the other
//! (O_APPEND), and no slot lies on two pages, so a writer's end leaves whole ones. What was read is given back.
//!
//! A slot has the ring's `head` beside the record: what its writer may have known of has a ticket before that, and
//! whatever follows from it a later one. Clocks don't tell that: a writer can lose its CPU between clock and ticket.

use crate::layout::FILE_SIZE;
use crate::record::RECORD_WORDS;

const RECORD: usize = RECORD_WORDS * size_of::<u32>();

/// Bytes of a slot: a record's words, the ring's head, then zeros.
pub const SLOT: usize = (RECORD + size_of::<u64>()).next_power_of_two();

/// Where the first slot is in the file.
pub const START: u64 = FILE_SIZE as u64;

/// So much may wait to be read, bytes.
pub const MOST_BYTES: u64 = 16 << 20;

const _: () = assert!(FILE_SIZE.is_multiple_of(SLOT));

/// A record as it is written, by one who read this `head` before.
#[must_use]
pub fn slot(record: &[u32; RECORD_WORDS], head: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let (words, rest) = slot.split_at_mut(RECORD);
    for (bytes, word) in words.chunks_exact_mut(size_of::<u32>()).zip(record) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    rest.iter_mut().zip(head.to_ne_bytes()).for_each(|(byte, of_head)| *byte = of_head);
    slot
}

/// The record in a slot, and the head. Zeros where the slot is too short.
#[must_use]
pub fn record(slot: &[u8]) -> ([u32; RECORD_WORDS], u64) {
    let mut record = [0; RECORD_WORDS];
    for (word, bytes) in record.iter_mut().zip(slot.chunks_exact(size_of::<u32>())) {
        *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    let head = slot.get(RECORD..RECORD + size_of::<u64>()).unwrap_or_default();
    (record, u64::from_ne_bytes(head.try_into().unwrap_or_default()))
}

/// Whether a file of this size (bytes) with so many blocks of 512 bytes takes another record.
#[must_use]
pub fn has_room(size: u64, blocks: u64) -> bool {
    size >= START && blocks.saturating_mul(512) < START + MOST_BYTES
}
