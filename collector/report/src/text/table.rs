//! Tables of text.

use crate::quote;
use crate::text::terminal::{left, right};

/// Aligns rows of cells to the left.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    joined(rows, usize::MAX, "   ")
}

/// Aligns rows of cells: the first `words` columns to the left, and figures, which follow, to the right.
pub(crate) fn with_figures(rows: &[Vec<String>], words: usize) -> Vec<String> {
    joined(rows, words, "  ")
}

fn joined(rows: &[Vec<String>], words: usize, gap: &str) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // A title alone in its row may reach into the columns after it.
        let rows = rows.iter().filter(|row| row.len() > 1);
        rows.filter_map(|row| row.get(column)).map(|cell| quote::width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < words { left(cell, width) } else { right(cell, width) }
        });
        padded.collect::<Vec<_>>().join(gap).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
