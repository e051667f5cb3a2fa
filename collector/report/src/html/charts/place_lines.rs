//! A quantity of several nodes over time, a line for each.

use super::figure::{Key, Panel, Swatch, Ticks};
use super::lines::{FILLED, Line};
use super::path;
use super::time::Time;
use crate::html::colours::PLACES;

/// Height of the plot, pixels.
const HEIGHT: f64 = 150.0;
/// Maximum number of lines, without that of the others: each colour is used for a solid and a dashed one.
pub(super) const MAX_LINES: usize = 2 * PLACES.len();

/// Dashes of the second line of a colour: in the plot, and in the legend.
const DASHED: [&str; 2] = ["7 3", "4 2"];
/// Dashes of the line of the others: in the plot, and in the legend.
const DOTTED: [&str; 2] = ["1.5 3", "1.5 2"];

/// What a chart is made of.
pub(super) struct PlaceLines<'a> {
    pub(super) label: String,
    pub(super) unit: &'static str,
    /// [`MAX_LINES`] at most.
    pub(super) lines: Vec<Line<'a>>,
    /// One line for all others together.
    pub(super) others: Option<Line<'a>>,
}

impl PlaceLines<'_> {
    /// Draws the chart. `None`: no value is known, or all are zero.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let known = self.lines.iter().chain(&self.others).flat_map(|line| line.values.iter().flatten());
        let largest = known.copied().filter(|value| value.is_finite()).reduce(f64::max)?;
        if largest <= 0.0 {
            return None;
        }
        let top = largest / FILLED;
        let lines = self.lines.into_iter().zip(styles());
        let all = lines.chain(self.others.map(|line| (line, ("", "currentColor", DOTTED))));
        let mut paths = String::new();
        let mut legend = Vec::new();
        for (Line { name, values, figure }, (class, colour, [dashes, key_dashes])) in all {
            paths += &styled(class, colour, dashes, &path::line(time, values.iter().copied(), top));
            legend.push(Key { swatch: Swatch::Line(class, colour, key_dashes), name, figure });
        }
        Some(Panel {
            label: self.label,
            top,
            unit: self.unit.to_owned(),
            height: HEIGHT,
            ticks: Ticks { time: 6, values: 4 },
            has_row_names: false,
            paths,
            words: String::new(),
            legend,
        })
    }
}

/// CSS class, colour and dashes of each line, in the plot and in the legend.
fn styles() -> impl Iterator<Item = (&'static str, &'static str, [&'static str; 2])> {
    let all = |dashes| PLACES.into_iter().map(move |(class, colour)| (class, colour, dashes));
    all([""; 2]).chain(all(DASHED))
}

/// Renders a path as a line of this style.
fn styled(class: &str, colour: &str, dashes: &str, path: &str) -> String {
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    format!(
        "<path class=\"s {class}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes} \
         vector-effect=\"non-scaling-stroke\" d=\"{path}\"/>\n"
    )
}
