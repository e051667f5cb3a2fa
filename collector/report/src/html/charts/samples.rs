//! The table beside a chart, for screen readers: the same quantities, in a few parts of the run.

use super::time::Time;
use crate::figures;
use crate::html::escape::escape;
use crate::over_time::{Column, OverTime, Point, Rule};

/// A column: its name with its unit, how its points are joined, and its values.
pub(super) struct Quantity<'a> {
    pub(super) name: String,
    pub(super) rule: Rule,
    pub(super) values: &'a [Option<f64>],
    /// The values are whole numbers.
    pub(super) is_count: bool,
}

/// Parts of the run.
pub(super) const PARTS: f64 = 10.0;

/// Renders the table of these quantities. The points of `time` are joined to a row for each of so many `parts` of the run.
/// `title` names it for screen readers.
pub(super) fn table(time: &Time, title: &str, parts: f64, quantities: &[Quantity]) -> String {
    let columns = quantities
        .iter()
        .map(|quantity| Column { name: quantity.name.clone(), rule: quantity.rule })
        .collect();
    let values =
        |at: usize| quantities.iter().map(|quantity| quantity.values.get(at).copied().flatten()).collect();
    let points =
        time.points(0..).map(|(start_s, end_s, at)| Point { start_s, end_s, values: values(at) }).collect();
    // The points of a part are joined, each quantity by its rule.
    let OverTime { columns, points } = OverTime { columns, points }.every(time.wall_s / parts);
    let heads = columns.iter().map(|column| format!("<th scope=\"col\">{}</th>", escape(&column.name)));
    let heads: String = heads.collect();
    // Column by column, since all cells of one have the same decimals.
    let cells: Vec<Vec<String>> = (0..columns.len())
        .map(|column| {
            let values: Vec<_> = points.iter().map(|point| point.values[column]).collect();
            let is_count = quantities.get(column).is_some_and(|quantity| quantity.is_count);
            if is_count { figures::counts(&values) } else { figures::column(&values) }
        })
        .collect();
    let row = |(at, point): (usize, &Point)| {
        let cells: String = cells.iter().map(|cells| format!("<td>{}</td>", cells[at])).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", time.text(point.end_s))
    };
    let rows: String = points.iter().enumerate().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\">\n<table aria-label=\"{}\">\n<thead><tr><th scope=\"col\">up to</th>{heads}</tr></thead>\n<tbody>\n\
         {rows}</tbody>\n</table>\n</div>\n",
        escape(title)
    )
}
