//! A quantity of many nodes or ranks over time: a row for each. The larger a value is, the darker is its cell; in dark mode, the
//! brighter.
//!
//! All cells of a shade are one path through all rows, with a move for each stretch of cells. So a cell takes few bytes.

use std::fmt::Write as _;

use super::figure::{ABOVE, LegendKey, Panel, Swatch, Ticks};
use super::path;
use super::time::{Time, WIDTH};
use crate::figures::{self, short};
use crate::html::colours;
use crate::html::escape::escape;
use crate::html::table::scrolling;
use crate::over_time::{Joining, Point};
use crate::quote;

/// Pixels from one row to the next.
const ROW_HEIGHT: f64 = 14.0;
/// Pixels from the top of a row down to the baseline of its name.
const BASELINE: f64 = 11.0;
/// Pixels from the end of a row's name to the plot.
const NAME_TO_PLOT: u32 = 6;
/// Size of the letters of a row's name, pixels.
const FONT_SIZE: u32 = 11;
/// Maximum number of columns of a name beside a row: what the style leaves room for.
const NAME_COLUMNS: usize = 16;
/// Maximum number of columns of a name in the table.
const TABLE_NAME_COLUMNS: usize = 40;
/// Maximum number of cells of a row.
const MOST_CELLS: usize = 120;
/// Parts of the run, each a column, in the table.
const PARTS: f64 = 5.0;
/// How opaque the colour of a cell is. The first is for values up to an eighth of the largest, the second up to two
/// eighths, and so on.
pub(super) const OPACITIES: [&str; 8] = [".12", ".24", ".36", ".48", ".61", ".74", ".87", "1"];

/// What a heat map is made of.
pub(super) struct HeatMap {
    pub(super) label: String,
    pub(super) unit: &'static str,
    pub(super) rows: Vec<MapRow>,
}

/// A node or a rank.
pub(super) struct MapRow {
    pub(super) name: String,
    /// What stands beside the row, where there is little room.
    pub(super) label: String,
    /// A value for each point of time.
    pub(super) values: Vec<Option<f64>>,
}

/// Neighbouring cells of a row that look alike.
#[derive(Debug, PartialEq)]
struct Stretch {
    row: usize,
    /// The first of these cells, counted from the left.
    first: usize,
    /// How many cells.
    cells: usize,
}

impl HeatMap {
    /// Draws the map. `None`: it has fewer than two rows, no value above zero, or no points of time.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let Self { label, unit, rows } = self;
        let points = time.start_s.len().min(time.end_s.len());
        let points_per_cell = points.div_ceil(MOST_CELLS).max(1);
        let cells: Vec<Vec<Option<f64>>> =
            rows.iter().map(|row| cell_means(time, &row.values, points_per_cell)).collect();
        let largest =
            cells.iter().flatten().flatten().copied().reduce(f64::max).filter(|value| *value > 0.0)?;
        // In a merged report all points have one length, except the last, which can be shorter. So all cells are drawn as wide as
        // the first, and the end of the plot cuts the last one.
        let first_cell_end_s = time.end_s.get(points_per_cell.min(points).checked_sub(1)?)?;
        let cell_width = time.part(first_cell_end_s - time.start_s.first()?) * WIDTH;
        if rows.len() < 2 || cell_width <= 0.0 {
            return None;
        }
        // Paths of cells have a cell and a row as their units. A matrix makes these the units of the plot, and puts each line into
        // the middle of its row.
        let row_height = path::HEIGHT / rows.len() as f64;
        let (shades, unknown) = (shades(&cells, largest), unknown(&cells));
        let legend = legend(largest, unit, !unknown.is_empty());
        let paths = format!(
            "<g fill=\"none\" shape-rendering=\"crispEdges\" transform=\"matrix({cell_width:.4} 0 0 {row_height:.4} 0 {:.4})\">\n\
             <g class=\"heat\" stroke=\"{}\" stroke-width=\".9\">\n{shades}</g>\n\
             {unknown}</g>\n",
            row_height / 2.0,
            colours::HEAT,
        );
        Some(Panel {
            label,
            // The height stands for no value, so `values: 0` leaves out the axis of values.
            top: 1.0,
            height: rows.len() as f64 * ROW_HEIGHT,
            ticks: Ticks { time: 6, values: 0 },
            has_row_names: true,
            paths,
            overlay: names(&rows),
            legend,
            ..Panel::default()
        })
    }

    /// Renders the rows as a table with a column for each of a few parts of the run. `title` names it for screen readers;
    /// `quantity` is what is shown, with its unit.
    pub(super) fn table(&self, title: &str, quantity: &str, time: &Time) -> String {
        let points = time.joined(PARTS, self.rows.iter().map(|row| (Joining::Mean, row.values.as_slice())));
        let head = |point: &Point| format!("<th scope=\"col\">up to {}</th>", time.text(point.end_s));
        let heads: String = points.iter().map(head).collect();
        // All cells have the same decimals.
        let all: Vec<Option<f64>> = points.iter().flat_map(|point| &point.values).copied().collect();
        let texts = figures::column(&all);
        let row = |(at, row): (usize, &MapRow)| {
            // `texts` has the values of all rows for the first part of the run, then those for the next part.
            let cells = texts.iter().skip(at).step_by(self.rows.len());
            let cells: String = cells.map(|text| format!("<td>{text}</td>")).collect();
            let name = escape(&quote::cut_middle(&quote::escape(&row.name), TABLE_NAME_COLUMNS));
            format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().enumerate().map(row).collect();
        scrolling("", title, &format!("<th scope=\"col\">{}</th>{heads}", escape(quantity)), &rows)
    }
}

/// The values of a row's cells. Each is the mean of `points_per_cell` points over the time in which they are known. A value that is
/// negative or not finite counts as unknown.
fn cell_means(time: &Time, values: &[Option<f64>], points_per_cell: usize) -> Vec<Option<f64>> {
    // Begin and end of each point, seconds, and its number.
    let points: Vec<(f64, f64, usize)> = time.points(0..).collect();
    let mean = |points: &[(f64, f64, usize)]| {
        let (mut known_s, mut sum) = (0.0, 0.0);
        for (start_s, end_s, at) in points {
            let value = values.get(*at).copied().flatten();
            if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
                known_s += end_s - start_s;
                sum += (end_s - start_s) * value;
            }
        }
        (known_s > 0.0).then(|| sum / known_s).filter(|mean| mean.is_finite())
    };
    points.chunks(points_per_cell).map(mean).collect()
}

/// The shade of a value, as an index in [`OPACITIES`].
fn level(value: f64, largest: f64) -> usize {
    let levels = OPACITIES.len();
    ((value / largest * levels as f64).ceil() as usize).clamp(1, levels) - 1
}

/// Draws the cells that have values: a path for each shade that occurs.
fn shades(cells: &[Vec<Option<f64>>], largest: f64) -> String {
    let shade = |(at, opacity): (usize, &str)| {
        let d =
            path_through(&stretches(cells, |value| value.is_some_and(|value| level(value, largest) == at)));
        if d.is_empty() { d } else { format!("<path stroke-opacity=\"{opacity}\" d=\"{d}\"/>\n") }
    };
    OPACITIES.into_iter().enumerate().map(shade).collect()
}

/// Draws the cells whose values are unknown as thin lines. Empty: there are none.
fn unknown(cells: &[Vec<Option<f64>>]) -> String {
    let d = path_through(&stretches(cells, |value| value.is_none()));
    if d.is_empty() {
        return d;
    }
    format!("<path stroke=\"currentColor\" stroke-opacity=\".5\" stroke-width=\".08\" d=\"{d}\"/>\n")
}

/// The stretches of cells whose values fulfil `holds`, row by row.
fn stretches(cells: &[Vec<Option<f64>>], holds: impl Fn(Option<f64>) -> bool) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for (row, cells) in cells.iter().enumerate() {
        for (at, _) in cells.iter().enumerate().filter(|(_, value)| holds(**value)) {
            match all.last_mut() {
                Some(last) if last.row == row && last.first + last.cells == at => last.cells += 1,
                _ => all.push(Stretch { row, first: at, cells: 1 }),
            }
        }
    }
    all
}

/// Draws a line through each stretch, as the text of a path whose units are cells and rows. The moves are relative.
fn path_through(stretches: &[Stretch]) -> String {
    let mut path = String::new();
    let (mut x, mut y) = (0, 0);
    for Stretch { row, first, cells } in stretches {
        let _infallible = write!(path, "m{} {}h{cells}", *first as i64 - x, row - y);
        (x, y) = ((first + cells) as i64, *row);
    }
    path
}

/// Writes the name of each row, left of the plot.
fn names(rows: &[MapRow]) -> String {
    let all: Vec<String> = rows.iter().map(|row| quote::escape(&row.label)).collect();
    let short = quote::shorten(&all, NAME_COLUMNS);
    let name = |(at, name): (usize, &String)| {
        format!(
            "<text x=\"-{NAME_TO_PLOT}\" y=\"{}\">{}</text>\n",
            ABOVE + at as f64 * ROW_HEIGHT + BASELINE,
            escape(name)
        )
    };
    let names: String = short.iter().enumerate().map(name).collect();
    format!("<g text-anchor=\"end\" font-size=\"{FONT_SIZE}\">\n{names}</g>\n")
}

/// Says which values have which colour, and what stands for unknown ones.
fn legend(largest: f64, unit: &str, has_unknown: bool) -> Vec<LegendKey> {
    let levels = OPACITIES.len() as f64;
    let shade = |(at, opacity)| {
        let words = if at == 0 { "up to " } else { "" };
        let name = format!("{words}{} {unit}", short(largest * (at + 1) as f64 / levels));
        LegendKey { swatch: Swatch::Heat(opacity), name, figure: String::new() }
    };
    let shades = OPACITIES.into_iter().enumerate().map(shade);
    let unknown = LegendKey {
        swatch: Swatch::Unknown,
        name: "not known, or not running".to_owned(),
        figure: String::new(),
    };
    shades.chain(has_unknown.then_some(unknown)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Series;
    use crate::model::style::Style;
    use crate::units::Units;
    use gpu_track_core::fixtures::full;

    /// Points of a second each.
    fn with_time<T>(points: usize, look: impl Fn(&Time) -> T) -> T {
        let at = |at: usize| at as f64;
        let series = Series {
            start_s: (0..points).map(at).collect(),
            end_s: (1..=points).map(at).collect(),
            ..Series::default()
        };
        look(&Time::new(&series, points as f64, Units::choose(&full(), &Style::default())))
    }

    fn map(rows: &[(&str, &[Option<f64>])]) -> HeatMap {
        let row = |(name, values): &(&str, &[Option<f64>])| MapRow {
            name: (*name).to_owned(),
            label: (*name).to_owned(),
            values: values.to_vec(),
        };
        HeatMap { label: String::new(), unit: "GB", rows: rows.iter().map(row).collect() }
    }

    // Requirement: NODE-17
    #[test]
    fn cells_have_the_colour_of_their_part_of_the_largest_and_unknown_ones_have_none() {
        let rows: [(&str, &[Option<f64>]); 2] =
            [("n1", &[Some(8.0), Some(8.0), None, Some(0.0)]), ("n2", &[Some(1.0), Some(1.1), Some(7.1)])];
        let panel = with_time(4, |time| map(&rows).panel(time)).unwrap();
        for path in [
            "<path stroke-opacity=\".12\" d=\"m3 0h1m-4 1h1\"/>",
            "<path stroke-opacity=\".24\" d=\"m1 1h1\"/>",
            "<path stroke-opacity=\"1\" d=\"m0 0h2m0 1h1\"/>",
            "stroke-width=\".08\" d=\"m2 0h1m0 1h1\"/>",
            "matrix(500.0000 0 0 500.0000 0 250.0000)",
        ] {
            assert!(panel.paths.contains(path), "{path}: {}", panel.paths);
        }
        assert_eq!(panel.paths.matches("stroke-opacity=\".36\"").count(), 0, "{}", panel.paths);
        let names: Vec<&str> = panel.legend.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names[..2], ["up to 1.00 GB", "2.00 GB"]);
        assert_eq!(names[7..], ["8.00 GB", "not known, or not running"]);
    }

    // Requirement: NODE-17
    #[test]
    fn points_are_joined_by_their_mean_to_at_most_120_cells() {
        let cells =
            |points: usize, values: &[Option<f64>]| with_time(points, |time| cell_means(time, values, 2));
        let values = [Some(1.0), Some(2.0), None, Some(4.0), None, None, Some(f64::NAN), Some(-1.0)];
        assert_eq!(cells(9, &values), [Some(1.5), Some(4.0), None, None, None]);
        let long: Vec<Option<f64>> = (0..300).map(|at| Some(f64::from(at % 2))).collect();
        // One row has as many stretches as cells: those of 0, 1, 0 and of 1, 0, 1.
        let panel = with_time(300, |time| map(&[("n1", &long), ("n2", &[])]).panel(time)).unwrap();
        let cells = panel.paths.matches("h1m").count() + panel.paths.matches("h1\"").count();
        assert_eq!(cells, 100, "{}", panel.paths);
        assert!(panel.paths.contains("matrix(20.0000 "), "{}", panel.paths);
    }

    // Requirement: NODE-17
    #[test]
    fn map_of_one_row_or_without_a_value_above_zero_is_not_drawn() {
        let is_drawn = |rows: &[(&str, &[Option<f64>])]| with_time(2, |time| map(rows).panel(time)).is_some();
        assert!(is_drawn(&[("n1", &[Some(1.0)]), ("n2", &[])]));
        assert!(!is_drawn(&[("n1", &[Some(1.0)])]));
        assert!(!is_drawn(&[("n1", &[Some(0.0)]), ("n2", &[None, Some(f64::INFINITY)])]));
        assert!(with_time(0, |time| map(&[("n1", &[Some(1.0)]), ("n2", &[])]).panel(time)).is_none());
    }

    // Requirement: NODE-17
    #[test]
    fn table_has_a_row_for_each_name() {
        let rows: [(&str, &[Option<f64>]); 2] =
            [("n1", &[Some(1.0), Some(3.0)]), ("<n2>", &[None, Some(20.0)])];
        let table = with_time(2, |time| map(&rows).table("RAM", "RAM [GB]", time));
        assert!(table.contains("<tr><th scope=\"row\">n1</th><td>1.00</td><td>3.00</td></tr>"), "{table}");
        assert!(table.contains("<th scope=\"row\">&lt;n2&gt;</th><td>n/a</td><td>20.00</td>"), "{table}");
    }
}
