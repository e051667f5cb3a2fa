//! A file that grows by whole items: lines or packets.
//!
//! The kernel copies a write into the file page by page, from first to last, and a fatal signal stops it between two pages. So a
//! killed writer leaves whole items, and at most the beginning of one more. The next collector cuts that off.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file;
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// How many bytes are read at once.
pub(super) const BLOCK: u64 = 64 * 1024;

/// A file of items.
pub(super) struct GrowingFile {
    file: File,
    /// Where the next item is written, as bytes from the start of the file.
    end: u64,
    loss: Loss,
}

impl GrowingFile {
    /// Opens the file as it is. If it ends in a part of an item, the caller must remove that with [`Self::cut`].
    pub(super) fn open(target: &StreamFile) -> io::Result<Self> {
        let file = file::open(target)?;
        let end = file.metadata()?.len();
        Ok(Self { file, end, loss: Loss::default() })
    }

    /// Makes the file `end` bytes long.
    pub(super) fn cut(&mut self, end: u64) -> io::Result<()> {
        if end != self.end {
            self.file.set_len(end)?;
            self.end = end;
        }
        Ok(())
    }

    /// Where the next item is written, as bytes from the start of the file.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether the file has no item.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Reads the bytes from `begin` to `end`.
    pub(super) fn read(&self, begin: u64, end: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(begin)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok(bytes)
    }

    /// Appends `bytes`, which are `items` whole items. Returns whether they were written: if there is no space, none of them is, and
    /// they count as lost. Later items may find space.
    pub(super) fn append(&mut self, bytes: &[u8], items: u64) -> io::Result<bool> {
        self.write(self.end, bytes, items)
    }

    /// As [`Self::append`], but from byte `begin` of the file on, so the last item is written anew. If nothing could be appended, the
    /// file has its former length, and the caller must restore that item.
    pub(super) fn write(&mut self, begin: u64, bytes: &[u8], items: u64) -> io::Result<bool> {
        if let Err(error) = self.file.write_all_at(bytes, begin) {
            // A part of the bytes may be written. It can be cut off, because that needs no space.
            self.file.set_len(self.end)?;
            if !is_no_space(&error) {
                return Err(error);
            }
            self.loss.lines += items;
            self.loss.error.get_or_insert(error.to_string());
            return Ok(false);
        }
        self.end = begin + bytes.len() as u64;
        Ok(true)
    }

    /// Overwrites bytes of written items, from byte `at` of the file on.
    pub(super) fn replace(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// What was lost so far because there was no space.
    pub(super) fn loss(&self) -> Loss {
        self.loss.clone()
    }
}

/// Whether a write failed because the disk or a quota is full, or the file would be larger than the limit (RLIMIT_FSIZE).
fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
