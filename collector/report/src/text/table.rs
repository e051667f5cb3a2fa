//! Tables of text.

use crate::quote;
use crate::text::terminal::left;

/// Aligns rows of cells to the left.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        // A title alone in its row may reach into the columns after it.
        let rows = rows.iter().filter(|row| row.len() > 1);
        rows.filter_map(|row| row.get(column)).map(|cell| quote::width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| left(cell, *width));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
