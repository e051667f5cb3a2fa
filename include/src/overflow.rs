//! Overflow: records that find the event ring full are appended to the segment's file by write(2), one slot each.
//!
//! The ring is small, because every tracked process maps it. If a tree has more runnable processes than cores, the
//! collector of an ordinary user can wait for a core until the ring is full. The kernel serializes appends
//! (O_APPEND), and no slot crosses a page, so a writer that is killed leaves only whole slots. The reader frees the
//! space of slots that it has read.
//!
//! Beside the record, a slot has the value of the ring's `head`. It orders the record among those in the ring. All events that the
//! writer can have seen have tickets below `head`. All events that the record's event causes have later tickets. Timestamps can't
//! order them, because a writer can be preempted between reading the clock and taking the ticket.

use crate::layout::FILE_SIZE;
use crate::record::RECORD_WORDS;

const RECORD_BYTES: usize = RECORD_WORDS * size_of::<u32>();

/// Bytes of a slot: a record's words, the ring's head, then zeros.
pub const SLOT: usize = (RECORD_BYTES + size_of::<u64>()).next_power_of_two();

/// The first slot's offset in the file.
pub const START: u64 = FILE_SIZE as u64;

/// Maximum number of bytes of slots that wait to be read: some 65,000 records. This bounds the memory that a stopped collector can cost.
pub const MAX_UNREAD_BYTES: u64 = 16 << 20;

/// Bytes of a block in `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

const _: () = assert!(FILE_SIZE.is_multiple_of(SLOT));

/// Makes the slot of a record. `head`: the ring's, as the writer read it just before it appends the slot.
pub fn slot(record: &[u32; RECORD_WORDS], head: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let (words, rest) = slot.split_at_mut(RECORD_BYTES);
    for (bytes, word) in words.chunks_exact_mut(size_of::<u32>()).zip(record) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    for (to, from) in rest.iter_mut().zip(head.to_ne_bytes()) {
        *to = from;
    }
    slot
}

/// Reads the record and the head from a slot. Words that are missing, because the slot is too short, read as zero.
pub fn record(slot: &[u8]) -> ([u32; RECORD_WORDS], u64) {
    let mut record = [0; RECORD_WORDS];
    for (word, bytes) in record.iter_mut().zip(slot.chunks_exact(size_of::<u32>())) {
        *word = u32::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    let head = slot.get(RECORD_BYTES..RECORD_BYTES + size_of::<u64>()).unwrap_or_default();
    (record, u64::from_ne_bytes(head.try_into().unwrap_or_default()))
}

/// Whether another record may be appended to a file of this size and number of blocks (`st_size`, `st_blocks` of stat(2)). The blocks
/// after the segment show how much is unread, because the reader frees those that it has read. Nothing may be appended to a truncated
/// file.
pub fn has_space(size_bytes: u64, blocks: u64) -> bool {
    size_bytes >= START && blocks.saturating_mul(BLOCK_BYTES) < START + MAX_UNREAD_BYTES
}
