//! The page that the text report is written on: indented lines, numbers with three decimals, tables, wrapped text.

use std::fmt::{Display, Write as _};

use super::format::{count, number};
use crate::model::style::{RamUnit, TimeUnit};
use crate::quote;

/// Columns of the page.
pub(super) const WIDTH: usize = 100;

/// Columns of one level of nesting, as in gpu_tracker.
const INDENT: usize = 3;

/// Most rows of a table; the JSON form has all of them.
const MOST_ROWS: usize = 15;

/// The text written so far. A heading is written with the first line below it, so no section is empty.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    headings: Vec<(usize, String)>,
    is_gpu_trackers: bool,
}

impl Page {
    /// A page as gpu_tracker writes it: every line, units in lines of their own, and numbers as Python writes them (rounded to
    /// three decimals, without zeros at the end).
    pub(super) fn of_gpu_tracker() -> Self {
        Self { is_gpu_trackers: true, ..Self::default() }
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// One line at a level of nesting. It ends the sections that are nested as deep.
    pub(super) fn line(&mut self, level: usize, line: impl Display) {
        for (of, label) in std::mem::take(&mut self.headings) {
            if of < level {
                self.write(of, format_args!("{label}:"));
            }
        }
        self.write(level, line);
    }

    fn write(&mut self, level: usize, line: impl Display) {
        let _infallible = writeln!(self.text, "{:width$}{line}", "", width = level * INDENT);
    }

    /// `Label:`
    pub(super) fn heading(&mut self, level: usize, label: &str) {
        self.headings.retain(|(above, _)| *above < level);
        self.headings.push((level, label.to_owned()));
    }

    /// `Label: value`
    pub(super) fn field(&mut self, level: usize, label: &str, value: impl Display) {
        self.line(level, format_args!("{label}: {value}"));
    }

    /// The unit of a section, where numbers don't have it beside them.
    pub(super) fn unit(&mut self, name: &str) {
        if self.is_gpu_trackers {
            self.field(1, "Unit", name);
        }
    }

    /// `Label: 1.234 MB`; nothing for a value that is unknown or shows as zero.
    pub(super) fn number(&mut self, level: usize, label: &str, value: Option<f64>, unit: &str) {
        let shown = number(value);
        if self.is_gpu_trackers {
            self.field(level, label, short(&shown));
        } else if value.is_some() && shown != number(Some(0.0)) {
            self.field(level, label, format!("{shown} {unit}").trim_end());
        }
    }

    /// The same of bytes, in `unit`.
    pub(super) fn bytes(&mut self, level: usize, label: &str, bytes: Option<u64>, unit: RamUnit) {
        self.number(level, label, bytes.map(|b| unit.convert(b as f64)), unit.symbol());
    }

    /// The same of a time, in `unit`.
    pub(super) fn seconds(&mut self, level: usize, label: &str, seconds: Option<f64>, unit: TimeUnit) {
        self.number(level, label, seconds.map(|s| unit.convert(s)), unit.symbol());
    }

    /// `Label: 1234`; nothing for a value that is unknown or zero.
    pub(super) fn count(&mut self, level: usize, label: &str, value: Option<u64>) {
        if self.is_gpu_trackers {
            self.field(level, label, count(value));
        } else if let Some(value) = value.filter(|value| *value > 0) {
            self.field(level, label, value);
        }
    }

    /// A table of the first [`MOST_ROWS`] items, with a line that says how many were left out. Columns are aligned to the
    /// right, but the last one to the left; it is cut at the page's edge.
    pub(super) fn table<T, const N: usize>(
        &mut self,
        level: usize,
        head: [&str; N],
        items: &[T],
        row: impl Fn(&T) -> [String; N],
    ) {
        self.table_of(level, head, items, items.len(), row);
    }

    /// The same for items of which there are `total`, listed or not.
    pub(super) fn table_of<T, const N: usize>(
        &mut self,
        level: usize,
        head: [&str; N],
        items: &[T],
        total: usize,
        row: impl Fn(&T) -> [String; N],
    ) {
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(items.iter().take(MOST_ROWS).map(row));
        let width_of = |i: usize| rows.iter().map(|row| quote::width(&row[i])).max().unwrap_or(0);
        let widths: Vec<_> = (0..N.saturating_sub(1)).map(width_of).collect();
        let left = WIDTH.saturating_sub(level * INDENT + widths.iter().map(|w| w + 2).sum::<usize>());
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let padding = width.saturating_sub(quote::width(cell));
                let _infallible = write!(line, "{:padding$}{cell}  ", "");
            }
            if let Some(last) = row.last() {
                line += &quote::cut(last, left);
            }
            self.line(level, line.trim_end());
        }
        if total > MOST_ROWS {
            self.line(level, format_args!("... and {} more", total - MOST_ROWS));
        }
    }

    /// A list of untrusted texts.
    pub(super) fn list(&mut self, level: usize, label: &str, items: &[String]) {
        self.heading(level, label);
        for item in items {
            self.item(level + 1, &quote::escape(item));
        }
    }

    /// One item of a list, broken between words at the page's edge.
    fn item(&mut self, level: usize, text: &str) {
        let width = WIDTH - level * INDENT - 2;
        for (i, line) in quote::wrap(text.split_whitespace(), width).into_iter().enumerate() {
            let mark = if i == 0 { "- " } else { "  " };
            self.line(level, format_args!("{mark}{line}"));
        }
    }
}

/// `1.200` as `1.2`, and `3.000` as `3.0`.
fn short(number: &str) -> &str {
    let digits = number.trim_end_matches('0');
    let is_whole = digits.ends_with('.');
    number.get(..digits.len() + usize::from(is_whole)).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headings_with_lines_below_them_are_written() {
        let mut page = Page::default();
        page.heading(0, "GPUs");
        page.heading(1, "GPU 0");
        page.heading(2, "Power");
        page.number(3, "Max", None, "W");
        page.heading(2, "Throttled");
        page.field(2, "XID errors", 3);
        page.heading(1, "GPU 1");
        page.heading(2, "Memory");
        page.field(3, "Total", 5);
        page.heading(2, "Utilization");
        page.heading(0, "Host");
        page.field(1, "Name", "node7");
        page.heading(0, "Warnings");
        assert_eq!(
            page.into_text(),
            "GPUs:\n   GPU 0:\n      XID errors: 3\n   GPU 1:\n      Memory:\n         Total: 5\n\
             Host:\n   Name: node7\n"
        );
    }
}
