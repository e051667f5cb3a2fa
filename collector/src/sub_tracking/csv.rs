//! Rows of comma-separated values (RFC 4180), as Python's `csv` writes and reads them. A cell may be quoted, and then have commas,
//! quotes and line breaks. Only at the start of a cell does a quote begin a quoted text: in `5" disk` it is an ordinary character.

use std::io::{self, BufRead, Read};

use crate::database::unreadable;

/// Maximum number of bytes of a row. A file can be any program's, so a longer row must not fill the memory.
const LONGEST_ROW: u64 = 1 << 20;

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A row.
    Row,
    /// The file ends.
    End,
    /// The file ends within a row, which may lack a part of its last cell. The number is that of the row's lines: more than one if
    /// the file ends within quotes.
    Torn(u64),
}

/// A file that is read row by row.
pub(super) struct Rows<R> {
    reader: R,
    /// The last line that was read.
    line: Vec<u8>,
    /// Cells of the last row, without their quotes.
    cells: Vec<Vec<u8>>,
    /// How many of `cells` the last row has. The memory of the others is used again for longer rows.
    count: usize,
    /// Where in the row's last cell the next byte comes.
    position: CellPosition,
    /// The number of the last line that was read.
    line_number: u64,
}

impl<R: BufRead> Rows<R> {
    pub(super) fn new(reader: R) -> Self {
        let (line, cells) = (Vec::new(), Vec::new());
        Self { reader, line, cells, count: 0, position: CellPosition::Start, line_number: 0 }
    }

    /// The number of the line in which the last row ends, from 1 on.
    pub(super) fn line_number(&self) -> u64 {
        self.line_number
    }

    /// Reads the next row, whose cells are then in [`Self::cells`]. Empty lines are skipped.
    ///
    /// # Errors
    /// If the file can't be read, or has a row that is too long.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        self.begin_row();
        // The number of the last line before the row, and how many bytes of the row were read.
        let (mut line_before, mut length) = (self.line_number, 0);
        loop {
            self.line.clear();
            let room = LONGEST_ROW.saturating_sub(length);
            let read = self.reader.by_ref().take(room).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return match (room, length) {
                    (0, _) => Err(io::Error::other("a line is longer than 1 MiB")),
                    (_, 0) => Ok(Next::End),
                    _ => Ok(Next::Torn(self.line_number - line_before)),
                };
            }
            length += read as u64;
            self.line_number += 1;
            let has_line_break = self.line.last() == Some(&b'\n');
            let content =
                if has_line_break { length_without_line_break(&self.line) } else { self.line.len() };
            self.take_bytes(0..content);
            // A line without a line break ends at the row's limit or at the end of the file. The next read tells which.
            if !has_line_break {
                continue;
            }
            // Within quotes, the line break belongs to the cell.
            if self.position == CellPosition::Quoted {
                self.take_bytes(content..self.line.len());
                continue;
            }
            let is_empty_line = self.position == CellPosition::Start && self.count == 1;
            if is_empty_line {
                (line_before, length) = (self.line_number, 0);
                continue;
            }
            return Ok(Next::Row);
        }
    }

    /// Reads the first row, which names the columns. Returns all names, and for each column in `wanted` its index among them.
    ///
    /// # Errors
    /// If the row can't be read, or lacks a column of `wanted`. For the first one that it lacks, `lacks` makes the text from its name.
    pub(super) fn head(
        &mut self,
        wanted: &[&str],
        lacks: impl Fn(&str) -> String,
    ) -> Result<(Vec<String>, Vec<usize>), String> {
        let names = match self.next().map_err(unreadable)? {
            Next::Row => self.texts(),
            // The file is empty, or ends within its first row. So it lacks all columns.
            Next::End | Next::Torn(_) => Vec::new(),
        };
        let index = |column: &&str| names.iter().position(|name| name == column).ok_or_else(|| lacks(column));
        let indices = wanted.iter().map(index).collect::<Result<_, _>>()?;
        Ok((names, indices))
    }

    /// Hands each further row to `take`. Returns how many lines at the end of the file are left out, because it ends within a row.
    ///
    /// # Errors
    /// If the file can't be read. An error of `take` is returned as it is, and ends the reading.
    pub(super) fn each(&mut self, mut take: impl FnMut(&Self) -> Result<(), String>) -> Result<u64, String> {
        loop {
            match self.next().map_err(unreadable)? {
                Next::End => return Ok(0),
                Next::Torn(lines) => return Ok(lines),
                Next::Row => take(self)?,
            }
        }
    }

    /// The cells of the last row.
    pub(super) fn cells(&self) -> &[Vec<u8>] {
        &self.cells[..self.count]
    }

    /// The cells of the last row as texts, without white space around them.
    pub(super) fn texts(&self) -> Vec<String> {
        self.cells().iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
    }

    /// Begins a row with an empty cell.
    fn begin_row(&mut self) {
        self.count = 0;
        self.position = CellPosition::Start;
        begin_cell(&mut self.cells, &mut self.count);
    }

    /// Adds the bytes at `range` of the last line to the row's cells, without the quotes around cells. Begins a cell at each comma
    /// outside of quotes, and notes where in the last cell the next byte comes.
    fn take_bytes(&mut self, range: std::ops::Range<usize>) {
        for byte in &self.line[range] {
            self.position = match (self.position, byte) {
                (CellPosition::Start, b'"') => CellPosition::Quoted,
                (CellPosition::Quoted, b'"') => CellPosition::AtQuote,
                (CellPosition::Start | CellPosition::Plain | CellPosition::AtQuote, b',') => {
                    begin_cell(&mut self.cells, &mut self.count);
                    CellPosition::Start
                }
                (before, byte) => {
                    self.cells[self.count - 1].push(*byte);
                    match (before, byte) {
                        // Two quotes within quotes are one.
                        (CellPosition::Quoted, _) | (CellPosition::AtQuote, b'"') => CellPosition::Quoted,
                        // As in Python, text after the closing quote belongs to the cell.
                        _ => CellPosition::Plain,
                    }
                }
            };
        }
    }
}

/// Where in a cell the next byte comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellPosition {
    /// At the start of the cell.
    Start,
    /// In a cell without quotes, or after the closing quote.
    Plain,
    /// Within quotes.
    Quoted,
    /// After a quote within quotes. It was the closing one unless another quote follows.
    AtQuote,
}

/// The length of a line without the line breaks (CR, LF) at its end.
fn length_without_line_break(line: &[u8]) -> usize {
    line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1)
}

/// Begins the cell after the first `count` ones, and counts it. Uses the memory of an earlier row's cell again.
fn begin_cell(cells: &mut Vec<Vec<u8>>, count: &mut usize) {
    match cells.get_mut(*count) {
        Some(cell) => cell.clear(),
        None => cells.push(Vec::new()),
    }
    *count += 1;
}

/// A text as a cell, in quotes if it needs them.
pub(super) fn cell(text: &str) -> String {
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The finite number in a cell. `None`: the cell has something else.
pub(super) fn number(cell: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(cell).ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn rows(text: &str) -> (Vec<Vec<String>>, Next) {
        let mut rows = Rows::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match rows.next().unwrap() {
                Next::Row => all.push(rows.texts()),
                end => return (all, end),
            }
        }
    }

    #[test]
    fn cells_are_those_of_pythons_csv() {
        let text = "a,b\r\n\n1,\"x, \"\"y\"\"\nz\"\n,\n";
        let expected = [vec!["a", "b"], vec!["1", "x, \"y\"\nz"], vec!["", ""]];
        let (all, end) = rows(text);
        assert_eq!(
            (all, end),
            (expected.iter().map(|row| row.iter().map(|cell| (*cell).into()).collect()).collect(), Next::End)
        );
        for text in ["plain", "x, \"y\"\nz"] {
            assert_eq!(rows(&format!("{},1\n", cell(text))).0, [[text, "1"]]);
        }
    }

    // Requirement: CMD-44
    #[test]
    fn quote_is_special_at_the_start_of_a_cell_only() {
        // What Python's csv.reader gives for the same lines.
        let text = "7,5\" disk,0\n8,b,1\na \"b, c\" d\n\"x\"y\"z,\"\"\"\"\n";
        let expected =
            [vec!["7", "5\" disk", "0"], vec!["8", "b", "1"], vec!["a \"b", "c\" d"], vec!["xy\"z", "\""]];
        assert_eq!(
            rows(text),
            (expected.iter().map(|row| row.iter().map(|cell| (*cell).into()).collect()).collect(), Next::End)
        );
    }

    proptest! {
        #[test]
        fn cells_that_were_written_are_read_again(table in vec(vec(".*|[a\"\r\n,]*", 2..4), 0..4)) {
            let line = |row: &Vec<String>| row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",") + "\n";
            let text: String = table.iter().map(line).collect();
            let mut rows = Rows::new(text.as_bytes());
            for row in table {
                prop_assert_eq!(rows.next().unwrap(), Next::Row);
                prop_assert!(rows.cells().iter().map(Vec::as_slice).eq(row.iter().map(String::as_bytes)));
            }
            prop_assert_eq!(rows.next().unwrap(), Next::End);
        }

        // Requirement: CMD-44
        #[test]
        fn any_bytes_have_an_end(bytes in vec(any::<u8>(), 0..200)) {
            let mut rows = Rows::new(&bytes[..]);
            let mut count = 0;
            while rows.next().unwrap() == Next::Row {
                count += 1;
            }
            prop_assert!(count <= bytes.len());
        }
    }

    // Requirement: CMD-44
    #[test]
    fn torn_row_is_no_row() {
        for (text, count, lines) in
            [("a,b\n1,2\n3,4", 2, 1), ("a,b\n1,\"2\n3,4\n", 1, 2), ("a", 0, 1), ("\n\"a\nb\nc", 0, 3)]
        {
            let (all, end) = rows(text);
            assert_eq!((all.len(), end), (count, Next::Torn(lines)), "{text}");
        }
    }

    // Requirement: CMD-44
    #[test]
    fn row_without_an_end_does_not_fill_the_memory() {
        let mut endless = Rows::new(io::BufReader::new(io::repeat(b'1')));
        assert_eq!(endless.next().unwrap_err().to_string(), "a line is longer than 1 MiB");
        assert!(endless.line.len() as u64 <= LONGEST_ROW);
        let mut open =
            Rows::new(io::BufReader::new(io::Cursor::new(b"\"\n".to_vec()).chain(io::repeat(b'\n'))));
        assert_eq!(open.next().unwrap_err().to_string(), "a line is longer than 1 MiB");
    }

    #[test]
    fn numbers_are_finite() {
        assert_eq!(
            [" 1e3 ", "-0.5", "nan", "inf", "", "x"].map(|cell| number(cell.as_bytes())),
            [Some(1000.0), Some(-0.5), None, None, None, None]
        );
    }
}
