//! A file of lines of any length.
//!
//! The kernel copies a write into the file page by page, in their order, and a fatal signal stops it between two. So a killed
//! writer leaves whole lines, and at most the beginning of one more, which its successor cuts off.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file;
use super::rows::is_no_space;
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// Bytes that are read at once.
const BLOCK: u64 = 64 * 1024;

/// A file of lines.
pub(super) struct LineFile {
    file: File,
    /// Bytes of its whole lines: where the next one begins.
    end: u64,
    loss: Loss,
}

impl LineFile {
    /// Opens the file and cuts a torn tail.
    pub(super) fn open(target: &StreamFile) -> io::Result<Self> {
        let file = file::open(target)?;
        let length = file.metadata()?.len();
        let mut lines = Self { file, end: length, loss: Loss::default() };
        lines.end = lines.whole(length)?;
        if lines.end != length {
            lines.file.set_len(lines.end)?;
        }
        Ok(lines)
    }

    /// Gives where the last whole line ends, of the first `length` bytes.
    fn whole(&self, length: u64) -> io::Result<u64> {
        let mut end = length;
        while end > 0 {
            let begin = end.saturating_sub(BLOCK);
            let bytes = self.read(begin, end)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
                return Ok(begin + last as u64 + 1);
            }
            end = begin;
        }
        Ok(0)
    }

    fn read(&self, begin: u64, end: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(begin)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok(bytes)
    }

    /// Hands the whole lines of the last `most` bytes to `take`, in their order.
    pub(super) fn last_lines(&self, most: u64, mut take: impl FnMut(&str)) -> io::Result<()> {
        let mut begin = self.end.saturating_sub(most);
        // The first one may have lost its beginning.
        let mut is_cut = begin > 0;
        let mut rest = Vec::new();
        while begin < self.end {
            let end = (begin + BLOCK).min(self.end);
            rest.extend(self.read(begin, end)?);
            begin = end;
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            let left = rest.split_off(whole);
            for line in rest.split_inclusive(|byte| *byte == b'\n') {
                if let Ok(line) = std::str::from_utf8(line)
                    && !std::mem::take(&mut is_cut)
                {
                    take(line);
                }
            }
            rest = left;
        }
        Ok(())
    }

    /// Whether it has no line.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Writes lines after the last one, each with its line break. Without space none of them is there; they count as lost, and
    /// later ones may find space. Gives whether they are there.
    pub(super) fn append(&mut self, lines: &[String]) -> io::Result<bool> {
        let text = lines.concat();
        if let Err(error) = self.file.write_all_at(text.as_bytes(), self.end) {
            // A part of it may be there. To cut a file needs no space.
            self.file.set_len(self.end)?;
            if !is_no_space(&error) {
                return Err(error);
            }
            self.loss.lines += lines.len() as u64;
            self.loss.error.get_or_insert(error.to_string());
            return Ok(false);
        }
        self.end += text.len() as u64;
        Ok(true)
    }

    /// What found no space so far.
    pub(super) fn loss(&self) -> Loss {
        self.loss.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::tracking::TrackingFile;

    // Requirement: TIME-3
    #[test]
    fn torn_line_of_any_length_is_cut_and_the_last_lines_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("t.jsonl");
        let file = TrackingFile::create(path.clone(), false).unwrap();
        // Longer than a block, too.
        let lines: Vec<String> = [10, 200_000, 3, 70_000].map(|length| "x".repeat(length) + "\n").into();
        let whole = lines.concat();
        for (cut, whole_lines) in
            [(0, 0), (5, 0), (11, 1), (200_011, 1), (200_012, 2), (200_017, 3), (270_016, 3), (270_017, 4)]
        {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let found = LineFile::open(&file.target()).unwrap();
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                lines[..whole_lines].concat(),
                "cut at {cut}"
            );
            let mut read = Vec::new();
            found.last_lines(u64::MAX, |line| read.push(line.to_owned())).unwrap();
            assert_eq!(read, lines[..whole_lines]);
        }
        let found = LineFile::open(&file.target()).unwrap();
        let mut read = 0;
        found.last_lines(100_000, |line| read += line.len()).unwrap();
        assert_eq!(read, lines[2..].concat().len(), "not the line that is cut");
    }
}
