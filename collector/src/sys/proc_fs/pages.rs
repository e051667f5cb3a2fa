//! Which pages of a file mapping a process has touched: /proc/PID/pagemap, without page frames, so any user may read it of
//! its own processes.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// One entry of pagemap, bytes.
const ENTRY: u64 = 8;
/// The page is in memory.
const PRESENT: u64 = 1 << 63;
/// It belongs to a file or to shared memory: no copy that the process has written.
const OF_FILE: u64 = 1 << 61;
/// A larger mapping takes too long: 8 MB of entries.
const MOST_BYTES: u64 = 4 << 30;
/// Entries are read in parts of this many bytes.
const PART_BYTES: u64 = 64 << 10;
/// A mapping with more pieces stays whole: each is part of every estimate.
const MOST_PIECES: usize = 256;

/// pagemap of a process.
#[derive(Debug)]
pub(super) struct PageMap {
    file: File,
    page_bytes: u64,
}

impl PageMap {
    pub(super) fn new(file: File, page_bytes: u64) -> Self {
        Self { file, page_bytes }
    }

    /// Finds the pieces of these addresses that are all resident pages of the file, as offsets from the first address.
    /// `None`: there are too many, or they can't be read.
    pub(super) fn pieces(&self, addresses: &Range<u64>) -> Option<Vec<Range<u64>>> {
        let length = addresses.end - addresses.start;
        if length > MOST_BYTES {
            return None;
        }
        let mut pieces: Vec<Range<u64>> = Vec::new();
        // `at` is how far the pages were looked at, bytes from the first address.
        let mut entries = vec![0; PART_BYTES.min(length / self.page_bytes * ENTRY) as usize];
        let mut at = 0;
        while at < length {
            let left = ((length - at) / self.page_bytes * ENTRY).min(entries.len() as u64) as usize;
            let entries = entries.get_mut(..left).filter(|entries| !entries.is_empty())?;
            let offset = (addresses.start + at) / self.page_bytes * ENTRY;
            self.file.read_exact_at(entries, offset).ok()?;
            for entry in entries.chunks_exact(ENTRY as usize) {
                let entry = u64::from_ne_bytes(entry.try_into().ok()?);
                if entry & PRESENT != 0 && entry & OF_FILE != 0 {
                    // The page lengthens the piece that ends where it begins, or is a new one.
                    match pieces.last_mut().filter(|last| last.end == at) {
                        Some(last) => last.end += self.page_bytes,
                        None => pieces.push(at..at + self.page_bytes),
                    }
                }
                at += self.page_bytes;
            }
            if pieces.len() > MOST_PIECES {
                return None;
            }
        }
        Some(pieces)
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
        let pieces = MOST_PIECES as u64;
        let map = page_map((0..2 * pieces + 2).map(|at| if at % 2 == 0 { PRESENT | OF_FILE } else { 0 }));
        assert_eq!(map.pieces(&(0..2 * pieces * PAGE)).unwrap().len(), MOST_PIECES);
        assert_eq!(map.pieces(&(0..(2 * pieces + 2) * PAGE)), None);
    }
}
