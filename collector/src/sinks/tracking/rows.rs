//! A file of lines that survives a kill of its writer.
//!
//! A process that is killed while it writes leaves each page of the file as it was or whole. So no line crosses a page. If
//! the next line does not fit, spaces before its line break lengthen the last one to the end of the page.
//!
//! Lines are written at their place, not appended, so that a disk that was full for a time costs lines only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file;
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;

/// The page of the file, bytes: what a killed process writes at once. No line may be longer, its line break included.
pub(super) const PAGE: u64 = 4096;

/// A file of lines.
pub(super) struct RowFile {
    file: File,
    /// Bytes before its first row; 0: all lines are rows.
    head: u64,
    /// Bytes of its whole lines: where the next one begins.
    end: u64,
    loss: Loss,
}

impl RowFile {
    /// Opens the file and cuts a torn tail. A file that is shorter than its head of `head` bytes is emptied.
    pub(super) fn open(target: &StreamFile, head: u64) -> io::Result<Self> {
        let file = file::open(target)?;
        let length = file.metadata()?.len();
        let mut rows = Self { file, head, end: 0, loss: Loss::default() };
        if length >= head {
            let (begin, tail) = rows.tail(length)?;
            let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
            rows.end = begin + whole as u64;
        }
        if rows.end != length {
            rows.file.set_len(rows.end)?;
        }
        Ok(rows)
    }

    /// Gives the rows of the last two pages before byte `end`, and where they begin: at least one whole line, if there is one.
    fn tail(&self, end: u64) -> io::Result<(u64, Vec<u8>)> {
        let begin = end.saturating_sub(2 * PAGE).max(self.head);
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(begin)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, begin)?;
        Ok((begin, bytes))
    }

    /// Looks through the rows of the last two pages, the last one first. Gives the first thing that `find` finds.
    pub(super) fn find_last<T>(&self, find: impl Fn(&str) -> Option<T>) -> io::Result<Option<T>> {
        let (_, tail) = self.tail(self.end)?;
        Ok(tail.split(|byte| *byte == b'\n').rev().find_map(|line| find(std::str::from_utf8(line).ok()?)))
    }

    /// Whether it has no line.
    pub(super) fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Writes lines after the last one, each with its line break and at most [`PAGE`] bytes long. Without space none of them
    /// is there; they count as one that was lost, and later ones may find space. Gives whether they are there.
    pub(super) fn append(&mut self, lines: &[String]) -> io::Result<bool> {
        match self.write(lines) {
            Ok(()) => Ok(true),
            Err(error) if is_no_space(&error) => {
                self.loss.lines += 1;
                self.loss.error.get_or_insert(error.to_string());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes lines after the last one. After an error none of them is there.
    fn write(&mut self, lines: &[String]) -> io::Result<()> {
        // Before the first line, the last one of the file is lengthened; before each other line, the one before it.
        if let Some(first) = lines.first() {
            self.make_room(first.len())?;
        }
        let mut bytes = Vec::new();
        for line in lines {
            lengthen(&mut bytes, self.end, line.len());
            bytes.extend_from_slice(line.as_bytes());
        }
        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            // A part of it may be there. To cut a file needs no space.
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Lengthens the last line to the end of its page, unless a line of `length` bytes fits after it.
    fn make_room(&mut self, length: usize) -> io::Result<()> {
        let Some(line_break) = self.end.checked_sub(1) else { return Ok(()) };
        // Of the last line, which is in the file, only the line break is written anew, behind spaces.
        let mut bytes = vec![b'\n'];
        lengthen(&mut bytes, line_break, length);
        if bytes.len() == 1 {
            return Ok(());
        }
        if let Err(error) = self.file.write_all_at(&bytes, line_break) {
            // The page has a line, so its block is there: space can lack only where blocks are smaller than pages. The
            // line is made as it was.
            self.file.set_len(self.end)?;
            self.file.write_all_at(b"\n", line_break)?;
            return Err(error);
        }
        self.end = line_break + bytes.len() as u64;
        Ok(())
    }

    /// Overwrites bytes from byte `at` on, all of lines that are there: that needs no space on the disk.
    pub(super) fn replace(&self, at: u64, bytes: &str) -> io::Result<()> {
        self.file.write_all_at(bytes.as_bytes(), at)
    }

    /// What found no space so far.
    pub(super) fn loss(&self) -> Loss {
        self.loss.clone()
    }
}

/// Lengthens the last of these lines with spaces to the end of its page, unless one of `length` bytes fits after it.
/// The first of the lines begins at byte `begin` of the file.
fn lengthen(lines: &mut Vec<u8>, begin: u64, length: usize) {
    let end = begin + lines.len() as u64;
    let rest = end.next_multiple_of(PAGE) - end;
    if rest < length as u64 && rest > 0 && lines.pop().is_some() {
        lines.extend(std::iter::repeat_n(b' ', usize::try_from(rest).unwrap_or(0)));
        lines.push(b'\n');
    }
}

/// Whether a write failed because the disk or a quota is full, or the file would be larger than the limit (RLIMIT_FSIZE).
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
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
        for cut in (0..=whole.len()).rev().step_by(97) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut next = RowFile::open(&file.target(), 0).unwrap();
            let last = next.find_last(|line| line.trim().parse::<usize>().ok()).unwrap().unwrap_or(0);
            assert!(next.append(&lines[last..]).unwrap());
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(numbers(&text), (1..=60).collect::<Vec<_>>(), "cut at {cut}");
        }
    }
}
