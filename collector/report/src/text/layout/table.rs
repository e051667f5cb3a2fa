//! Tables, with a bar beside each row that is a part of a whole.

use super::{Arrangement, LEAST_CELLS, PERCENT, Page};
use crate::document::{Column, Table, Tone};
use crate::figures::percent;
use crate::quote;
use crate::text::terminal::{left, right};

/// Maximum number of rows; the JSON form has all of them.
const MOST_ROWS: usize = 15;
/// Fewest columns of words on a terminal.
const NAME: usize = 19;
/// Fewest columns of a figure without a unit on a terminal.
const COUNT: usize = 8;
/// Fewest columns of a figure with a unit on a terminal.
const FIGURE: usize = 9;
/// Columns before a bar.
const GAP_OF_BAR: usize = 2;
/// Maximum number of cells of a bar.
const MOST_CELLS: usize = 12;

impl Page {
    /// Adds the lines of a table: its heads, its first rows, and how many more there are.
    pub(super) fn table(&mut self, indent: usize, table: &Table) {
        let clean = |row: &Vec<String>| row.iter().map(|cell| self.look.text(cell)).collect();
        let mut rows: Vec<Vec<String>> = vec![table.columns.iter().map(|column| self.head(column)).collect()];
        rows.extend(table.rows.iter().take(MOST_ROWS).map(clean));
        let room = self.page_width() - indent;
        let bar = if table.parts.is_empty() { 0 } else { GAP_OF_BAR + MOST_CELLS + PERCENT };
        let widths = self.widths(&table.columns, &rows, room, bar);
        shorten_words(&table.columns, &mut rows, &widths);
        for (i, row) in rows.iter().enumerate() {
            let line = quote::cut(&self.aligned(row, &widths, &table.columns), room);
            // Row 0 has the heads, which are no part of anything.
            let part = i.checked_sub(1).and_then(|i| *table.parts.get(i)?);
            let bar = part.map(|part| self.bar_beside(&line, part, room)).unwrap_or_default();
            let tone = if i == 0 { Tone::Faint } else { Tone::Plain };
            self.line(indent, &(self.look.paint(tone, &line) + &bar));
        }
        let missing = table.missing(MOST_ROWS);
        if missing > 0 {
            self.line(indent, &format!("... and {missing} more"));
        }
    }

    /// Joins the cells of a row: figures are aligned to the right, words to the left.
    fn aligned(&self, row: &[String], widths: &[usize], columns: &[Column]) -> String {
        let cells = row.iter().zip(widths).zip(columns).map(|((cell, width), column)| match column.is_text {
            true => left(cell, *width),
            false => right(cell, *width),
        });
        let line = cells.collect::<Vec<_>>().join(&" ".repeat(self.gap()));
        line.trim_end().to_owned()
    }

    /// How many spaces are between two columns of a table.
    fn gap(&self) -> usize {
        if self.arrangement == Arrangement::Outline { 2 } else { 1 }
    }

    /// The head of a column, with its unit.
    fn head(&self, Column { name, unit, .. }: &Column) -> String {
        match self.arrangement {
            _ if unit.is_empty() => (*name).to_owned(),
            Arrangement::Outline => format!("{name} [{unit}]"),
            Arrangement::Columns => format!("{name} {unit}"),
        }
    }

    /// The widths of the columns. A column of figures is as wide as its widest cell. A column of words has at most what is then left of
    /// the page beside a bar of `bar` columns. If that is less than [`NAME`], the words get room from the bar, which is drawn smaller.
    fn widths(&self, columns: &[Column], rows: &[Vec<String>], page: usize, bar: usize) -> Vec<usize> {
        let widest = |i: usize| rows.iter().map(|row| quote::width(&row[i])).max().unwrap_or(0);
        let mut widths: Vec<_> =
            columns.iter().enumerate().map(|(i, column)| widest(i).max(self.least(column))).collect();
        let figures = columns.iter().zip(&widths).filter(|(column, _)| !column.is_text);
        let rest = page.saturating_sub(figures.map(|(_, width)| width + self.gap()).sum());
        let most = if self.arrangement == Arrangement::Outline {
            rest
        } else {
            rest.saturating_sub(bar).max(rest.min(NAME))
        };
        for (width, _) in widths.iter_mut().zip(columns).filter(|(_, column)| column.is_text) {
            *width = most.min(*width);
        }
        widths
    }

    /// The least width of a column of the table, in columns of the terminal.
    fn least(&self, column: &Column) -> usize {
        match column {
            // In an outline, a column is as wide as its widest cell or head.
            _ if self.arrangement == Arrangement::Outline => 0,
            Column { is_text: true, .. } => NAME,
            Column { unit: "", .. } => COUNT,
            // Two heads of several words need more than a space between them.
            Column { name, unit, .. } => FIGURE.max(name.len() + unit.len() + 2),
        }
    }

    /// Draws a bar and a percentage, from 1% on; nothing where there is no room.
    fn bar_beside(&self, line: &str, part: f64, room: usize) -> String {
        let room = room.saturating_sub(quote::width(line) + GAP_OF_BAR + PERCENT);
        let cells = room.min(MOST_CELLS);
        // A smaller part would read as 0 %.
        if part < 0.005 || cells < LEAST_CELLS {
            return String::new();
        }
        let (filled, _) = self.look.bar(part, cells);
        format!("  {}{}", left(&filled, cells), right(&percent(part), PERCENT))
    }
}

/// Cuts the middle of words that are too wide for their column. Rows that would read alike stay apart.
fn shorten_words(columns: &[Column], rows: &mut [Vec<String>], widths: &[usize]) {
    for (i, width) in widths.iter().enumerate().filter(|(i, _)| columns[*i].is_text) {
        let shown = quote::shorten(&rows.iter().map(|row| &row[i]).collect::<Vec<_>>(), *width);
        for (row, shown) in rows.iter_mut().zip(shown) {
            row[i] = shown;
        }
    }
}
