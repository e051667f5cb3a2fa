//! One or two quantities over time: an area, and a dashed line over it.

use super::figure::{Key, Panel, Swatch, Ticks};
use super::path;
use super::time::Time;
use crate::html::colours;

/// The part of the plot's height that the highest value takes.
pub(super) const FILLED: f64 = 0.92;

/// A quantity over time.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) values: &'a [Option<f64>],
    /// A figure of the whole run, in words.
    pub(super) figure: String,
}

/// What a chart of lines is made of.
pub(super) struct Lines<'a> {
    pub(super) label: String,
    pub(super) unit: String,
    /// Height of the plot, pixels.
    pub(super) height: f64,
    pub(super) ticks: Ticks,
    /// The value at the top of the plot. `None`, or less than the largest value: a little more than that.
    pub(super) top: Option<f64>,
    /// The area, and the dashed line over it.
    pub(super) lines: [Option<Line<'a>>; 2],
}

impl Lines<'_> {
    /// Draws the chart. `None`: no value is known, or all are zero and `top` is not above them.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let known = || self.lines.iter().flatten().flat_map(|line| line.values.iter().copied().flatten());
        let largest = known().filter(|value| value.is_finite()).reduce(f64::max)?;
        let top = self.top.filter(|top| *top >= largest).unwrap_or(largest / FILLED);
        if top <= 0.0 {
            return None;
        }
        let [area, line] = &self.lines;
        let mut paths = String::new();
        if let Some(area) = area {
            // The style draws its edge, too, which is what shows of values of zero. Where nothing is known, there is none.
            let path = path::area(time, area.values.iter().copied(), top);
            paths += &format!("<path class=\"s l1\" fill=\"{}\" d=\"{path}\"/>\n", colours::FIRST);
        }
        if let Some(line) = line {
            let path = path::line(time, line.values.iter().copied(), top);
            paths += &format!(
                "<path class=\"s l2\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"5 2\" \
                 vector-effect=\"non-scaling-stroke\" d=\"{path}\"/>\n",
                colours::SECOND
            );
        }
        let swatches = [Swatch::Area("l1", colours::FIRST), Swatch::Line("l2", colours::SECOND, "4 2")];
        let keys = self.lines.into_iter().zip(swatches).filter_map(|(line, swatch)| {
            let Line { name, figure, .. } = line?;
            Some(Key { swatch, name, figure })
        });
        let legend = keys.collect();
        let (label, unit, height, ticks) = (self.label, self.unit, self.height, self.ticks);
        let has_row_names = false;
        Some(Panel { label, top, unit, height, ticks, has_row_names, paths, words: String::new(), legend })
    }
}
