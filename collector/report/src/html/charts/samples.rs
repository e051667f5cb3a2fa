//! The table beside a chart: the same quantities, in a few parts of the run. Screen readers can't read a chart.

use super::time::Time;
use crate::figures;
use crate::html::escape::escape;
use crate::html::table::scrolling;
use crate::over_time::{Joining, Point};

/// A column of the table.
pub(super) struct ChartColumn<'a> {
    /// Its name, with the unit.
    pub(super) name: String,
    /// How the values of several points become one.
    pub(super) joining: Joining,
    /// A value for each point of the chart's time.
    pub(super) values: &'a [Option<f64>],
    /// The values are whole numbers.
    pub(super) is_count: bool,
}

impl<'a> ChartColumn<'a> {
    /// Makes a column of figures in this unit, which is empty if they have none.
    pub(super) fn new(name: &str, unit: &str, joining: Joining, values: &'a [Option<f64>]) -> Self {
        let name = if unit.is_empty() { name.to_owned() } else { format!("{name} [{unit}]") };
        Self { name, joining, values, is_count: false }
    }
}

/// Parts of the run, each a row, in the table of a wide chart.
pub(super) const PARTS: f64 = 10.0;

/// Renders the table of these quantities, with about `parts` rows, each for an equal part of the run. `title` names the table for
/// screen readers.
pub(super) fn table(time: &Time, title: &str, parts: f64, quantities: &[ChartColumn]) -> String {
    let points = time.joined(parts, quantities.iter().map(|quantity| (quantity.joining, quantity.values)));
    let head = |quantity: &ChartColumn| format!("<th scope=\"col\">{}</th>", escape(&quantity.name));
    let heads: String = quantities.iter().map(head).collect();
    // The cells are made column by column, because those of a column have the same decimals.
    let column = |(at, quantity): (usize, &ChartColumn)| {
        let values: Vec<Option<f64>> = points.iter().map(|point| point.values[at]).collect();
        if quantity.is_count { figures::counts(&values) } else { figures::column(&values) }
    };
    let cells: Vec<Vec<String>> = quantities.iter().enumerate().map(column).collect();
    let row = |(at, point): (usize, &Point)| {
        let cells: String = cells.iter().map(|column| format!("<td>{}</td>", column[at])).collect();
        format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", time.text(point.end_s))
    };
    let rows: String = points.iter().enumerate().map(row).collect();
    scrolling("", title, &format!("<th scope=\"col\">up to</th>{heads}"), &rows)
}
