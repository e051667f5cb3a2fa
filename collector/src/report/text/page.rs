//! The page that the text report is written on: indented lines, numbers with three decimals, tables, wrapped text.

use std::fmt::{Display, Write as _};

use super::super::quote;

/// Columns of the page.
pub const WIDTH: usize = 100;

/// Columns of one level of nesting, as gpu_tracker has it.
const INDENT: usize = 3;

/// What stands for the unknown.
pub const UNKNOWN: &str = "n/a";

/// Lines, one after another.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// All that was written.
    pub fn into_text(self) -> String {
        self.0
    }

    /// A line as it is, at a level of nesting.
    pub fn line(&mut self, level: usize, line: impl Display) {
        let _infallible = writeln!(self.0, "{:width$}{line}", "", width = level * INDENT);
    }

    /// `Label:`
    pub fn heading(&mut self, level: usize, label: &str) {
        self.line(level, format_args!("{label}:"));
    }

    /// `Label: value`
    pub fn field(&mut self, level: usize, label: &str, value: impl Display) {
        self.line(level, format_args!("{label}: {value}"));
    }

    /// `Label: 1.234`
    pub fn number(&mut self, level: usize, label: &str, value: Option<f64>) {
        self.field(level, label, number(value));
    }

    /// `Label: 1234`
    pub fn count(&mut self, level: usize, label: &str, value: Option<u64>) {
        self.field(level, label, count(value));
    }

    /// Columns of numbers to the right, the last column to the left and cut at the page's edge.
    pub fn table<const N: usize>(&mut self, level: usize, head: [&str; N], rows: &[[String; N]]) {
        let head = head.map(str::to_owned);
        let width_of =
            |i: usize| rows.iter().chain([&head]).map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..N.saturating_sub(1)).map(width_of).collect();
        let left = WIDTH.saturating_sub(level * INDENT + widths.iter().map(|w| w + 2).sum::<usize>());
        for row in [&head].into_iter().chain(rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _infallible = write!(line, "{cell:>width$}  ");
            }
            if let Some(last) = row.last() {
                line += &quote::cut(last, left);
            }
            self.line(level, line.trim_end());
        }
    }

    /// One item of a list, broken between words at the page's edge.
    pub fn item(&mut self, level: usize, text: &str) {
        let width = WIDTH - level * INDENT - 2;
        let mut line = String::new();
        let mut mark = "- ";
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                self.line(level, format_args!("{mark}{line}"));
                (mark, line) = ("  ", String::new());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        self.line(level, format_args!("{mark}{line}"));
    }
}

/// Three decimals.
pub fn number(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| format!("{v:.3}"))
}

/// A whole number.
pub fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| v.to_string())
}
