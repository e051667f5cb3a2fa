//! The live file: what a run does now, for programs that watch it. It is beside the segment and has the segment's name with
//! [`SUFFIX`]. No tracked process maps it.
//!
//! ```text
//! 0            HEADER_SIZE
//! | LiveHeader | samples | GPUs | processes | summary |
//! ```
//!
//! The header says where each section is. The file has a version of its own, [`LIVE_VERSION`], so it can grow without a change to the
//! shim. A reader maps it read-only, and compares magic, version and size. Sample number `samples - 1` is the latest
//! ([`crate::sample`]). The other sections are tables ([`crate::table`]).

use crate::layout::{HEADER_SIZE, Line};
use crate::sample::{SAMPLE_CAPACITY, SampleSlot};
use crate::table::{
    GPU_CAPACITY, GpuEntry, GpuTable, PROCESS_CAPACITY, ProcessEntry, ProcessTable, SUMMARY_CAPACITY,
    SummaryTable,
};
use crate::words::Words;

/// What follows the segment's name in the name of the live file.
pub const SUFFIX: &str = ".live";

/// First eight bytes of a live file: "gputlive" as a little-endian number.
pub const LIVE_MAGIC: u64 = u64::from_le_bytes(*b"gputlive");

/// Version of the live file's form. Version 1 had samples only.
pub const LIVE_VERSION: u32 = 2;

/// Bytes of a live file.
pub const LIVE_SIZE: usize = SUMMARY.end();

/// Where a section of the file is, and how large its entries are.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Offset of its first byte in the file.
    pub offset: u32,
    /// Its size, bytes.
    pub size: u32,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// Maximum number of entries.
    pub capacity: u32,
}

impl Section {
    /// Describes a section. `offset`, `size` and `entry_size` are bytes. `offset` must be a multiple of 64, because slots are aligned
    /// to that.
    const fn new(offset: usize, size: usize, entry_size: usize, capacity: usize) -> Self {
        assert!(offset.is_multiple_of(64));
        Self {
            offset: offset as u32,
            size: size as u32,
            entry_size: entry_size as u32,
            capacity: capacity as u32,
        }
    }

    /// The offset of the first byte after the section.
    const fn end(self) -> usize {
        self.offset as usize + self.size as usize
    }
}

/// The ring of samples.
pub const SAMPLES: Section = Section::new(
    HEADER_SIZE,
    SAMPLE_CAPACITY * size_of::<SampleSlot>(),
    size_of::<SampleSlot>(),
    SAMPLE_CAPACITY,
);
/// The table of GPUs.
pub const GPUS: Section =
    Section::new(SAMPLES.end(), size_of::<GpuTable>(), GpuEntry::WORDS * 8, GPU_CAPACITY);
/// The table of processes.
pub const PROCESSES: Section =
    Section::new(GPUS.end(), size_of::<ProcessTable>(), ProcessEntry::WORDS * 8, PROCESS_CAPACITY);
/// The summary, a text of JSON.
pub const SUMMARY: Section = Section::new(PROCESSES.end(), size_of::<SummaryTable>(), 1, SUMMARY_CAPACITY);

/// All sections, in the order of the header.
pub const SECTIONS: [Section; 4] = [SAMPLES, GPUS, PROCESSES, SUMMARY];

/// The first page of a live file. The collector writes it before the file has a name. Later only `samples` changes.
#[repr(C)]
pub struct LiveHeader {
    /// [`LIVE_MAGIC`].
    pub magic: u64,
    /// [`LIVE_VERSION`].
    pub version: u32,
    /// How many sections there are.
    pub section_count: u32,
    /// The session that the segment is of.
    pub session_id: u64,
    /// [`LIVE_SIZE`].
    pub file_size: u64,
    /// Samples written so far. Sample number `n` is in slot `n % capacity`.
    pub samples: Line,
    /// [`SECTIONS`].
    pub sections: [Section; 4],
}

const _: () = {
    assert!(size_of::<LiveHeader>() <= HEADER_SIZE);
    assert!(core::mem::offset_of!(LiveHeader, samples) == 64);
    assert!(core::mem::offset_of!(LiveHeader, sections) == 128);
};

#[cfg(not(loom))]
const _: () = {
    assert!(SAMPLES.offset == 4096 && SAMPLES.size == 65_536);
    assert!(GPUS.offset == 69_632 && GPUS.size == 64 + 64 * 200);
    assert!(PROCESSES.offset == 82_496 && PROCESSES.size == 64 + 256 * 112);
    assert!(SUMMARY.offset == 111_232 && SUMMARY.size == 64 + 65_536);
    assert!(LIVE_SIZE == 176_832);
};

impl LiveHeader {
    /// Whether this crate can read the file.
    pub fn is_compatible(&self) -> bool {
        self.magic == LIVE_MAGIC
            && self.version == LIVE_VERSION
            && self.section_count as usize == SECTIONS.len()
            && self.file_size == LIVE_SIZE as u64
            && self.sections == SECTIONS
    }
}
