//! A file of lines of any length. Its last line can be torn: see [`growing`](super::growing).

use std::io;

use super::growing::{BLOCK, GrowingFile};
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// A file of lines.
pub(in crate::sinks) struct LineFile(GrowingFile);

impl LineFile {
    /// Opens the file, and cuts off a last line without a line break, which a killed writer left.
    pub(in crate::sinks) fn open(target: &StreamFile) -> io::Result<Self> {
        let mut lines = Self(GrowingFile::open(target)?);
        let end = lines.end_of_whole_lines()?;
        lines.0.cut(end)?;
        Ok(lines)
    }

    /// Where the last whole line ends, as bytes from the start of the file. Looks for its line break from the end backwards.
    fn end_of_whole_lines(&self) -> io::Result<u64> {
        let mut end = self.0.end();
        while end > 0 {
            let begin = end.saturating_sub(BLOCK);
            let bytes = self.0.read(begin, end)?;
            if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
                return Ok(begin + last as u64 + 1);
            }
            end = begin;
        }
        Ok(0)
    }

    /// Hands the lines in the last `most` bytes to `take`, first to last, each with its line break. A line that begins before
    /// those bytes is left out, and so are lines that are not UTF-8.
    pub(in crate::sinks) fn last_lines(&self, most: u64, mut take: impl FnMut(&str)) -> io::Result<()> {
        let mut begin = self.0.end().saturating_sub(most);
        // Whether the next line may lack its beginning.
        let mut is_cut = begin > 0;
        // Bytes that were read, and not yet handed to `take`.
        let mut rest = Vec::new();
        while begin < self.0.end() {
            let end = (begin + BLOCK).min(self.0.end());
            rest.extend(self.0.read(begin, end)?);
            begin = end;
            // The bytes after the last line break begin a line that ends in a later block.
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            let left = rest.split_off(whole);
            for line in rest.split_inclusive(|byte| *byte == b'\n') {
                if let Ok(line) = std::str::from_utf8(line)
                    && !is_cut
                {
                    take(line);
                }
                is_cut = false;
            }
            rest = left;
        }
        Ok(())
    }

    /// Whether the file has no line.
    pub(in crate::sinks) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends lines, which must have their line breaks. Returns whether they were written: if there is no space, none of them is,
    /// and they count as lost. Later lines may find space.
    pub(in crate::sinks) fn append(&mut self, lines: &[String]) -> io::Result<bool> {
        self.0.append(lines.concat().as_bytes(), lines.len() as u64)
    }

    /// What was lost so far because there was no space.
    pub(in crate::sinks) fn loss(&self) -> Loss {
        self.0.loss()
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
    #[test]
    fn line_cut_within_a_character_is_left_out_and_the_next_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("t.jsonl");
        let file = TrackingFile::create(path.clone(), false).unwrap();
        std::fs::write(&path, "\u{e9}\nwhole\n").unwrap();
        let found = LineFile::open(&file.target()).unwrap();
        let mut read = Vec::new();
        let second_byte_on = "\u{e9}\nwhole\n".len() as u64 - 1;
        found.last_lines(second_byte_on, |line| read.push(line.to_owned())).unwrap();
        assert_eq!(read, ["whole\n"]);
    }
}
