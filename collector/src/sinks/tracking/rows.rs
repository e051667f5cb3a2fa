//! A file of lines that survives a kill of its writer.
//!
//! The kernel copies a write into the file page by page, and a fatal signal stops it between two pages. So a line is written as a whole
//! or not at all if it does not cross the end of a page. If the next line does not fit in the page, spaces before the last line break
//! fill up the page.
//!
//! Lines are written at a known offset, not with O_APPEND. So a disk that is full for a time costs lines, and leaves no torn one.

use std::io;

use super::growing::GrowingFile;
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// Bytes of a page of the file. No line may be longer, its line break included.
pub(super) const PAGE: u64 = 4096;

/// A file of lines.
pub(super) struct RowFile {
    file: GrowingFile,
    /// How many bytes the lines before the first row have. 0: all lines are rows.
    head: u64,
}

impl RowFile {
    /// Opens the file, and cuts off what follows its last line break. A file that is shorter than `head` bytes is emptied.
    pub(super) fn open(target: &StreamFile, head: u64) -> io::Result<Self> {
        let mut rows = Self { file: GrowingFile::open(target)?, head };
        let mut end = 0;
        if rows.file.end() >= head {
            let (begin, tail) = rows.tail()?;
            let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            end = begin + whole as u64;
        }
        rows.file.cut(end)?;
        Ok(rows)
    }

    /// The rows in the last two pages, as the byte of the file at which they begin, and their bytes. If the file has a whole row,
    /// these bytes have one, too.
    fn tail(&self) -> io::Result<(u64, Vec<u8>)> {
        let end = self.file.end();
        let begin = end.saturating_sub(2 * PAGE).max(self.head);
        Ok((begin, self.file.read(begin, end)?))
    }

    /// Calls `find` with the rows of the last two pages, the last row first, until it returns something. The first row in these pages
    /// can lack its beginning.
    pub(super) fn find_last<T>(&self, find: impl Fn(&str) -> Option<T>) -> io::Result<Option<T>> {
        let (_, tail) = self.tail()?;
        Ok(tail.split(|byte| *byte == b'\n').rev().find_map(|line| find(std::str::from_utf8(line).ok()?)))
    }

    /// Whether the file has no line.
    pub(super) fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// Appends lines, which must have their line breaks and at most [`PAGE`] bytes each. Returns whether they were written: if
    /// there is no space, none of them is, and they count as one lost line. Later lines may find space.
    pub(super) fn append(&mut self, lines: &[String]) -> io::Result<bool> {
        // The file's last line break is written again: after spaces, if the first line does not fit in its page.
        let line_break = self.file.end().checked_sub(1);
        let begin = line_break.unwrap_or(0);
        let mut bytes: Vec<u8> = line_break.map(|_| b'\n').into_iter().collect();
        for line in lines {
            lengthen(&mut bytes, begin, line.len());
            bytes.extend_from_slice(line.as_bytes());
        }
        let is_written = self.file.write(begin, &bytes, 1);
        if let (Ok(false) | Err(_), Some(line_break)) = (&is_written, line_break) {
            self.replace(line_break, "\n")?;
        }
        is_written
    }

    /// Overwrites bytes of written lines, from byte `at` of the file on. That needs no space on the disk.
    pub(super) fn replace(&self, at: u64, bytes: &str) -> io::Result<()> {
        self.file.replace(at, bytes.as_bytes())
    }

    /// What was lost so far because there was no space.
    pub(super) fn loss(&self) -> Loss {
        self.file.loss()
    }
}

/// Lengthens the last of `lines` with spaces to the end of its page, unless a line of `length` bytes fits after it.
/// `lines` begin at byte `begin` of the file, and end in a line break.
fn lengthen(lines: &mut Vec<u8>, begin: u64, length: usize) {
    let end = begin + lines.len() as u64;
    let rest = end.next_multiple_of(PAGE) - end;
    if rest < length as u64 && rest > 0 && lines.pop().is_some() {
        lines.extend(std::iter::repeat_n(b' ', usize::try_from(rest).unwrap_or(0)));
        lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::tracking::TrackingFile;

    /// Lines of all lengths up to a page, each with its number.
    fn line(number: usize) -> String {
        let length = number * 977 % (PAGE as usize - 8) + 8;
        format!("{number:<width$}\n", width = length - 1)
    }

    fn numbers(text: &str) -> Vec<usize> {
        text.lines().map(|line| line.trim().parse().unwrap()).collect()
    }

    // Requirement: TIME-3
    #[test]
    fn no_line_of_any_length_crosses_a_page_and_a_cut_file_goes_on_after_its_last_whole_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("t.csv");
        let file = TrackingFile::create(path.clone(), false).unwrap();
        let mut rows = RowFile::open(&file.target(), 0).unwrap();
        let lines: Vec<String> = (1..=60).map(line).collect();
        // One by one, and some at once.
        lines.chunks(1).take(30).chain(lines[30..].chunks(3)).for_each(|some| {
            assert!(rows.append(some).unwrap());
        });
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(numbers(std::str::from_utf8(&whole).unwrap()), (1..=60).collect::<Vec<_>>());
        let mut begin = 0;
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            let end = begin + line.len() as u64;
            assert_eq!(begin / PAGE, (end - 1) / PAGE, "a line from {begin} to {end}");
            begin = end;
        }
        for cut in (0..=whole.len()).rev().step_by(389) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut next = RowFile::open(&file.target(), 0).unwrap();
            let last = next.find_last(|line| line.trim().parse::<usize>().ok()).unwrap().unwrap_or(0);
            assert!(next.append(&lines[last..]).unwrap());
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(numbers(&text), (1..=60).collect::<Vec<_>>(), "cut at {cut}");
        }
    }
}
