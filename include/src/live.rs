//! The live file: what a run does now, for programs that watch it. It is beside the segment and has the segment's name with
//! [`SUFFIX`]. No tracked process maps it.
//!
//! ```text
//! 0            HEADER_SIZE                 FILE_SIZE
//! | LiveHeader | SAMPLE_CAPACITY samples   |
//! ```
//!
//! It has a version of its own, [`LIVE_VERSION`]: it can grow without a change to the shim. A reader maps it read-only, compares
//! magic and version, and reads sample number `samples - 1`, which is the latest ([`crate::sample`]).

use crate::layout::{HEADER_SIZE, Line};
use crate::sample::{SAMPLE_CAPACITY, SampleSlot};

/// What the live file's name has after the segment's.
pub const SUFFIX: &str = ".live";

/// First eight bytes of a live file: "gputlive" as a little-endian number.
pub const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"gputlive");

/// Version of the live file's form.
pub const LIVE_VERSION: u32 = 1;

/// Bytes of a live file.
pub const LIVE_SIZE: usize = HEADER_SIZE + SAMPLE_CAPACITY * size_of::<SampleSlot>();

/// The first page of a live file. The collector writes it before the file has a name. Later only `samples` changes.
#[repr(C)]
pub struct LiveHeader {
    /// [`LIVE_MAGIC`].
    pub magic: u64,
    /// [`LIVE_VERSION`].
    pub version: u32,
    /// Bytes of a sample's slot.
    pub slot_size: u32,
    /// [`SAMPLE_CAPACITY`].
    pub capacity: u32,
    /// Offset of the first slot.
    pub first_slot: u32,
    /// The segment's session.
    pub session_id: u64,
    /// Samples written so far. Sample number `n` is in slot `n % capacity`.
    pub samples: Line,
}

const _: () = assert!(size_of::<LiveHeader>() <= HEADER_SIZE);

impl LiveHeader {
    /// Whether this crate can read the file.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.magic == LIVE_MAGIC
            && self.version == LIVE_VERSION
            && self.slot_size as usize == size_of::<SampleSlot>()
            && self.capacity as usize == SAMPLE_CAPACITY
            && self.first_slot as usize == HEADER_SIZE
    }
}
