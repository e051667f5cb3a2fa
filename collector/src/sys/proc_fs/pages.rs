//! Finds out which pages of a file mapping a process has in memory, by /proc/PID/pagemap. Page frame numbers, which only root may
//! read, are not needed.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of an entry of pagemap. Each page has one.
pub(super) const ENTRY: u64 = 8;
/// The bit of an entry whose page is in memory.
pub(super) const PRESENT: u64 = 1 << 63;
/// The bit of an entry whose page belongs to a file or to shared memory. The bit is 0 for the process's own copy of a page.
pub(super) const OF_FILE: u64 = 1 << 61;
/// The bit of an entry whose page no other process has mapped. Kernels before 4.2 lack it.
pub(super) const EXCLUSIVE: u64 = 1 << 56;
/// The bits of an entry that have the page frame number. They are 0 for users other than root.
pub(super) const FRAME: u64 = (1 << 55) - 1;
/// A mapping with more bytes is not looked at. A mapping of this size has 8 MiB of entries.
const MAX_BYTES: u64 = 4 << 30;
/// Entries are read in parts of this many bytes.
const PART_BYTES: u64 = 64 << 10;
/// A mapping with more pieces is not divided, because each piece costs time in every estimate of shared memory.
pub(super) const MAX_PIECES: usize = 256;

/// The pagemap of a process.
#[derive(Debug)]
pub(super) struct PageMap {
    file: File,
    page_bytes: u64,
}

impl PageMap {
    pub(super) fn new(file: File, page_bytes: u64) -> Self {
        Self { file, page_bytes }
    }

    /// Finds the stretches of these addresses in which all pages are in memory and belong to the file. Returns them as offsets from
    /// the first address, in bytes. `None`: the mapping is too large, has too many pieces, or can't be read.
    pub(super) fn pieces(&self, addresses: &Range<u64>) -> Option<Vec<Range<u64>>> {
        let length = addresses.end - addresses.start;
        if length > MAX_BYTES {
            return None;
        }
        let mut pieces: Vec<Range<u64>> = Vec::new();
        let mut buffer = vec![0; PART_BYTES.min(length / self.page_bytes * ENTRY) as usize];
        // Where the next page begins, as an offset from the first address.
        let mut at = 0;
        while at < length {
            let unread_bytes = (length - at) / self.page_bytes * ENTRY;
            let part_bytes = unread_bytes.min(buffer.len() as u64) as usize;
            let entries = buffer.get_mut(..part_bytes)?;
            // Less than a page is left. A mapping has whole pages, so these addresses are not from the kernel's maps.
            if entries.is_empty() {
                return None;
            }
            let offset = (addresses.start + at) / self.page_bytes * ENTRY;
            self.file.read_exact_at(entries, offset).ok()?;
            for entry in entries.as_chunks().0 {
                let entry = u64::from_ne_bytes(*entry);
                if entry & PRESENT != 0 && entry & OF_FILE != 0 {
                    add_page(&mut pieces, at, self.page_bytes);
                }
                at += self.page_bytes;
            }
            if pieces.len() > MAX_PIECES {
                return None;
            }
        }
        Some(pieces)
    }
}

/// Adds the page at this offset to the pieces of a mapping: it lengthens the last one if that ends there, else it begins a new one.
/// Stops at one piece more than [`MAX_PIECES`], which shows that there are too many.
pub(super) fn add_page(pieces: &mut Vec<Range<u64>>, at: u64, page_bytes: u64) {
    if let Some(last) = pieces.last_mut().filter(|last| last.end == at) {
        last.end += page_bytes;
    } else if pieces.len() <= MAX_PIECES {
        pieces.push(at..at + page_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PAGE: u64 = 4096;

    fn page_map(entries: impl IntoIterator<Item = u64>) -> PageMap {
        let mut file = tempfile::tempfile().unwrap();
        for entry in entries {
            file.write_all(&entry.to_ne_bytes()).unwrap();
        }
        PageMap::new(file, PAGE)
    }

    #[test]
    fn pieces_are_resident_pages_of_the_file() {
        let (page, copy, swapped) = (PRESENT | OF_FILE, PRESENT, 1 << 62 | OF_FILE);
        let map = page_map([page, page, 0, page, copy, swapped, page, page]);
        let pages = |pages: Range<u64>| pages.start * PAGE..pages.end * PAGE;
        assert_eq!(map.pieces(&pages(1..8)).unwrap(), [pages(0..1), pages(2..3), pages(5..7)]);
        assert_eq!(map.pieces(&pages(4..6)).unwrap(), []);
        assert_eq!(map.pieces(&pages(7..9)), None, "the file ends before");
    }

    #[test]
    fn mapping_in_too_many_pieces_stays_whole() {
        let pieces = MAX_PIECES as u64;
        let map = page_map((0..2 * pieces + 2).map(|at| if at % 2 == 0 { PRESENT | OF_FILE } else { 0 }));
        assert_eq!(map.pieces(&(0..2 * pieces * PAGE)).unwrap().len(), MAX_PIECES);
        assert_eq!(map.pieces(&(0..(2 * pieces + 2) * PAGE)), None);
    }
}
