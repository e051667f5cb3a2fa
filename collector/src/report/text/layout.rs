//! Blocks as lines of text: nested sections with `Label: value`, tables, lists.

use super::look::{Look, WIDTH, left, right};
use crate::report::document::{Block, Cell, Column, Headline, Row, Section, Table};
use crate::report::figures::number;
use crate::report::quote;

/// Columns of one level of nesting, as in gpu_tracker.
const INDENT: usize = 3;
/// Columns between those of a table.
const GAP: usize = 2;
/// Most rows of a table; the JSON form has all of them.
const MOST_ROWS: usize = 15;

/// The lines of these blocks.
pub(super) fn lay_out(blocks: &[Block], look: Look) -> Vec<String> {
    let mut page = Page { look, lines: Vec::new() };
    page.blocks(0, blocks);
    page.lines
}

/// The lines so far.
struct Page {
    look: Look,
    lines: Vec<String>,
}

impl Page {
    fn blocks(&mut self, level: usize, blocks: &[Block]) {
        for block in blocks {
            match block {
                Block::Headline(headline) => self.headline(headline),
                Block::Section(section) => self.section(level, section),
                Block::Row(row) => self.row(level, row),
                Block::Table(table) => self.table(level, table),
                Block::List(items) => items.iter().for_each(|item| self.item(level, item)),
            }
        }
    }

    fn line(&mut self, level: usize, line: &str) {
        let line = format!("{:indent$}{line}", "", indent = level * INDENT);
        self.lines.push(line.trim_end().to_owned());
    }

    fn headline(&mut self, Headline { command, verdict }: &Headline) {
        let end = format!(": {verdict}");
        let command = quote::command(command, WIDTH.saturating_sub(end.len()));
        self.line(0, &(self.look.text(&quote::cut(&command, WIDTH)) + &end));
    }

    /// Its title stands only above lines.
    fn section(&mut self, level: usize, section: &Section) {
        let title_at = self.lines.len();
        if let Some(title) = &section.title {
            self.line(level, &format!("{}:", self.look.text(title)));
        }
        let lines_before = self.lines.len();
        self.blocks(level + 1, &section.blocks);
        if self.lines.len() == lines_before {
            self.lines.truncate(title_at);
        }
    }

    fn row(&mut self, level: usize, Row { label, cells }: &Row) {
        let values: Vec<_> = cells.iter().filter_map(shown).collect();
        if !values.is_empty() {
            self.line(level, &self.look.text(&format!("{label}: {}", values.join(" "))));
        }
    }

    /// Columns of figures are aligned to the right, those of words to the left.
    fn table(&mut self, level: usize, table: &Table) {
        let clean = |row: &Vec<String>| row.iter().map(|cell| self.look.text(cell)).collect();
        let mut rows: Vec<Vec<String>> = vec![table.columns.iter().map(head).collect()];
        rows.extend(table.rows.iter().take(MOST_ROWS).map(clean));
        let widths = widths(&table.columns, &rows, WIDTH - level * INDENT);
        for row in &rows {
            let cells = row.iter().zip(&widths).zip(&table.columns);
            let cells = cells.map(|((cell, width), column)| match column.is_text {
                true => left(&quote::cut(cell, *width), *width),
                false => right(cell, *width),
            });
            self.line(level, &cells.collect::<Vec<_>>().join(&" ".repeat(GAP)));
        }
        if table.total > MOST_ROWS {
            self.line(level, &format!("... and {} more", table.total - MOST_ROWS));
        }
    }

    /// One text of a list, broken between words at the page's edge.
    fn item(&mut self, level: usize, text: &str) {
        let text = self.look.text(text);
        for (i, line) in quote::wrap(text.split_whitespace(), WIDTH - level * INDENT - 2).iter().enumerate() {
            let mark = if i == 0 { "-" } else { " " };
            self.line(level, &format!("{mark} {line}"));
        }
    }
}

/// A value; nothing if it is unknown or shows as zero.
fn shown(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Number(value, unit) => {
            let shown = number(*value);
            (value.is_some() && shown != number(Some(0.0)))
                .then(|| format!("{shown} {unit}").trim_end().to_owned())
        }
        Cell::Count(count) => count.filter(|count| *count > 0).map(|count| count.to_string()),
        Cell::Text(text) => Some(text.clone()),
    }
}

fn head(column: &Column) -> String {
    if column.unit.is_empty() { column.name.to_owned() } else { format!("{} [{}]", column.name, column.unit) }
}

/// Columns of figures are as wide as their widest cell; those of words have the rest of the page.
fn widths(columns: &[Column], rows: &[Vec<String>], page: usize) -> Vec<usize> {
    let widest = |i: usize| rows.iter().map(|row| quote::width(&row[i])).max().unwrap_or(0);
    let mut widths: Vec<_> = (0..columns.len()).map(widest).collect();
    let figures = columns.iter().zip(&widths).filter(|(column, _)| !column.is_text);
    let rest = page.saturating_sub(figures.map(|(_, width)| width + GAP).sum());
    for (width, column) in widths.iter_mut().zip(columns) {
        *width = if column.is_text { rest.min(*width) } else { *width };
    }
    widths
}
