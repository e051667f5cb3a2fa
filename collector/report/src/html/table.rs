//! Tables of a page. Its script sorts them; without it they stand in the order of the report.

use super::escape::escape;
use crate::document::{Column, Table};
use crate::quote;

/// Maximum number of rows of a table; the JSON form has all of them.
pub(super) const MOST_ROWS: usize = 40;
/// Maximum number of rows of a table that the page has for each GPU.
pub(super) const MOST_ROWS_OF_DEVICE: usize = 10;
/// Maximum number of columns of a cell.
const CELL_COLUMNS: usize = 160;

/// Renders at most `most_rows` rows of a table, and below the table how many more there are. `title` names the table for screen
/// readers.
pub(super) fn table(title: &str, table: &Table, most_rows: usize) -> String {
    let heads: String = table.columns.iter().map(head).collect();
    let tips = table.tips.iter().map(String::as_str).chain(std::iter::repeat(""));
    let rows = table.rows.iter().take(most_rows).zip(tips);
    let rows: String = rows.map(|(row, tip)| self::row(row, &table.columns, tip)).collect();
    let missing = table.missing(most_rows);
    let more = if missing > 0 { format!("<p>... and {missing} more</p>\n") } else { String::new() };
    scrolling(" class=\"sorts\"", title, &heads, &rows) + &more
}

/// Renders a table that scrolls by itself where it is wider than the page. `class`: a space and the attribute `class`, or nothing.
/// `title` names the table for screen readers. `heads` and `rows` are HTML.
pub(super) fn scrolling(class: &str, title: &str, heads: &str, rows: &str) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\">\n<table{class} aria-label=\"{}\">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n\
         {rows}</tbody>\n</table>\n</div>\n",
        escape(title)
    )
}

/// Renders the head of a column.
fn head(Column { name, unit, is_text }: &Column) -> String {
    let unit = if unit.is_empty() { String::new() } else { format!(" [{}]", escape(unit)) };
    let class = if *is_text { " class=\"words\"" } else { "" };
    format!("<th scope=\"col\"{class}>{}{unit}</th>", escape(name))
}

/// Renders a row: a cell for each column, a long one cut in its middle. `tip` is the tooltip of the last cell; it may be empty.
fn row(row: &[String], columns: &[Column], tip: &str) -> String {
    let cells = row.iter().zip(columns).enumerate().map(|(at, (cell, column))| {
        let cell = escape(&quote::cut_middle(&quote::escape(cell), CELL_COLUMNS));
        let class = if column.is_text { " class=\"words\"" } else { "" };
        let has_tip = at + 1 == columns.len() && !tip.is_empty();
        let title = if has_tip { format!(" title=\"{}\"", escape(tip)) } else { String::new() };
        format!("<td{class}{title}>{cell}</td>")
    });
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}
