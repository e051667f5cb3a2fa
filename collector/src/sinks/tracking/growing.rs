//! A file that grows by whole items: lines or packets.
//!
//! The kernel copies a write into the file page by page, in their order, and a fatal signal stops it between two. So a killed
//! writer leaves whole items, and at most the beginning of one more, which its successor cuts off.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file;
use super::rows::is_no_space;
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// Bytes that are read at once.
pub(super) const BLOCK: u64 = 64 * 1024;

/// A file of items.
pub(super) struct GrowingFile {
    file: File,
    /// Bytes of its whole items: where the next one begins.
    end: u64,
    loss: Loss,
}

impl GrowingFile {
    /// Opens the file as it is. A torn tail is there still: see [`Self::cut`].
    pub(super) fn open(target: &StreamFile) -> io::Result<Self> {
        let file = file::open(target)?;
        let end = file.metadata()?.len();
        Ok(Self { file, end, loss: Loss::default() })
    }

    /// Cuts off what is behind byte `end`.
    pub(super) fn cut(&mut self, end: u64) -> io::Result<()> {
        if end != self.end {
            self.file.set_len(end)?;
            self.end = end;
        }
        Ok(())
    }

    /// Where its last item ends, bytes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether it has no item.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Reads the bytes from `begin` to `end`.
    pub(super) fn read(&self, begin: u64, end: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(begin)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok(bytes)
    }

    /// Writes this number of whole items, as one piece. Without space none of them is there; they count as lost, and
    /// later ones may find space. Gives whether they are there.
    pub(super) fn append(&mut self, bytes: &[u8], items: u64) -> io::Result<bool> {
        if let Err(error) = self.file.write_all_at(bytes, self.end) {
            // A part of it may be there. To cut a file needs no space.
            self.file.set_len(self.end)?;
            if !is_no_space(&error) {
                return Err(error);
            }
            self.loss.lines += items;
            self.loss.error.get_or_insert(error.to_string());
            return Ok(false);
        }
        self.end += bytes.len() as u64;
        Ok(true)
    }

    /// Gives what found no space so far.
    pub(super) fn loss(&self) -> Loss {
        self.loss.clone()
    }
}
