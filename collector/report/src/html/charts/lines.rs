//! Quantities over time: areas, and lines over them.

use super::figure::{LegendKey, Panel, Swatch, Ticks};
use super::path;
use super::time::Time;
use crate::html::colours;

/// The part of the plot's height that the highest value takes.
const FILLED: f64 = 0.92;

/// How a quantity is drawn: CSS class, colour, and the dashes of a line in the plot and in the legend, which are empty for a solid
/// line. `None`: it is an area.
pub(super) type LineStyle = (&'static str, &'static str, Option<[&'static str; 2]>);

/// The area of a chart.
pub(super) const AREA: LineStyle = ("l1", colours::FIRST, None);
/// The line over an area.
pub(super) const OVER_AREA: LineStyle = ("l2", colours::SECOND, Some(["5 2", "4 2"]));

/// A quantity over time.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) values: &'a [Option<f64>],
    /// A number for the whole run, with its unit, as text.
    pub(super) figure: String,
}

/// What a chart of lines is made of.
pub(super) struct Lines<'a> {
    pub(super) label: String,
    pub(super) unit: String,
    /// Height of the plot, pixels.
    pub(super) height: f64,
    pub(super) ticks: Ticks,
    /// The value at the top of the plot. If `None`, or below the largest value, the top is a little above the largest value.
    pub(super) top: Option<f64>,
    /// Each is drawn over those before it.
    pub(super) lines: Vec<(Line<'a>, LineStyle)>,
}

impl Lines<'_> {
    /// Draws the chart. `None`: no value is known, or all are zero and `top` is not above them.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let Self { label, unit, height, ticks, top, lines } = self;
        let known = lines.iter().flat_map(|(line, _)| line.values.iter().copied().flatten());
        let largest = known.filter(|value| value.is_finite()).reduce(f64::max)?;
        let top = top.filter(|top| *top >= largest).unwrap_or(largest / FILLED);
        if top <= 0.0 {
            return None;
        }
        let paths = lines.iter().map(|(line, style)| path(line, *style, time, top)).collect();
        let key = |(Line { name, figure, .. }, (class, colour, dashes)): (Line, LineStyle)| {
            let area = Swatch::Area(class, colour);
            let swatch = dashes.map_or(area, |[_, in_legend]| Swatch::Line(class, colour, in_legend));
            LegendKey { swatch, name, figure }
        };
        let legend = lines.into_iter().map(key).collect();
        Some(Panel { label, top, unit, height, ticks, paths, legend, ..Panel::default() })
    }
}

/// Draws the path of a quantity. `top`: the value at the top of the plot.
fn path(line: &Line, (class, colour, dashes): LineStyle, time: &Time, top: f64) -> String {
    let values = line.values.iter().copied();
    let Some([dashes, _]) = dashes else {
        // The page's style draws the edge of an area, so that values of zero show as a line. Unknown values have no edge.
        let path = path::area(time, values, top);
        return format!("<path class=\"s {class}\" fill=\"{colour}\" d=\"{path}\"/>\n");
    };
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    format!(
        "<path class=\"s {class}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes} \
         vector-effect=\"non-scaling-stroke\" d=\"{}\"/>\n",
        path::line(time, values, top)
    )
}
