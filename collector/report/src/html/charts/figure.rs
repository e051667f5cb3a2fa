//! The frame of a chart: its title, a note, axes, a legend, and a table of the same values.

use super::axis;
use super::path::HEIGHT;
use super::time::{Time, WIDTH};
use crate::html::colours;
use crate::html::escape::escape;

/// Pixels above a plot, for its unit.
pub(super) const ABOVE: f64 = 16.0;
/// Pixels below a plot, for its times.
const BELOW: f64 = 22.0;
/// Pixels from the middle of a number down to its baseline, by which SVG places text.
const MIDDLE_TO_BASELINE: f64 = 4.0;
/// Pixels from the end of a number beside the axis of values to the plot.
const NUMBER_TO_PLOT: u32 = 8;
/// Pixels from the plot down to the baseline of the times.
const PLOT_TO_TIMES: f64 = 17.0;
/// Pixels from the baseline of the unit down to the plot.
const UNIT_TO_PLOT: f64 = 5.0;

/// One or more charts with a title and a table.
pub(super) struct Figure {
    pub(super) title: String,
    /// What areas, lines and numbers are.
    pub(super) note: String,
    pub(super) panels: Vec<Panel>,
    pub(super) table: String,
}

/// A chart.
#[derive(Default)]
pub(super) struct Panel {
    /// What is shown, for screen readers; also above the chart where a figure has several.
    pub(super) label: String,
    /// The value at the top of the plot.
    pub(super) top: f64,
    pub(super) unit: String,
    /// Height of the plot, pixels.
    pub(super) height: f64,
    pub(super) ticks: Ticks,
    /// Names of rows stand left of the plot. They need more room than the numbers of an axis.
    pub(super) has_row_names: bool,
    /// Paths, in the units of [`super::path`].
    pub(super) paths: String,
    /// SVG of the shapes and words over the paths: down in pixels, from [`Panel::y_of`], and right in percent of the width.
    pub(super) overlay: String,
    pub(super) legend: Vec<LegendKey>,
}

/// How many numbers each axis has at most, besides its 0. A chart without an axis of values has 0 `values`.
#[derive(Clone, Copy, Default)]
pub(super) struct Ticks {
    pub(super) time: usize,
    pub(super) values: usize,
}

/// A line of a legend.
pub(super) struct LegendKey {
    pub(super) swatch: Swatch,
    pub(super) name: String,
    /// A number for the whole run, with its unit, as text.
    pub(super) figure: String,
}

/// What a legend shows of a colour.
pub(super) enum Swatch {
    /// An area of this class and colour.
    Area(&'static str, &'static str),
    /// A line of this class, colour and pattern of dashes.
    Line(&'static str, &'static str, &'static str),
    /// A cell of a heat map, whose colour is this opaque: from 0 to 1.
    Heat(&'static str),
    /// A cell of a heat map of which no value is known.
    Unknown,
}

impl Figure {
    /// Renders the figure: title, note, charts, and the table, which is folded.
    pub(super) fn html(&self, time: &Time) -> String {
        let Self { title, note, panels, table } = self;
        let title = escape(title);
        let has_several = panels.len() > 1;
        let panels: String = panels.iter().map(|panel| panel.html(time, &title, has_several)).collect();
        let class = if has_several { "panels" } else { "panel" };
        let note = if note.is_empty() { String::new() } else { format!("<p>{}</p>", escape(note)) };
        format!(
            "<figure>\n<figcaption><h3>{title}</h3>{note}</figcaption>\n<div class=\"{class}\">\n{panels}</div>\n\
             <details><summary>Table: {title}</summary>\n{table}</details>\n</figure>\n",
        )
    }
}

impl Panel {
    /// The pixels from the top of the picture down to a value. The plot is `height` pixels high, and has the value `top`
    /// at its upper edge.
    pub(super) fn y_of(value: f64, top: f64, height: f64) -> f64 {
        ABOVE + height * (1.0 - (value / top).clamp(0.0, 1.0))
    }

    /// Renders the chart as SVG, with its legend. `title`: the figure's title, escaped. `has_label`: the figure has several
    /// charts, so each shows its label above it.
    fn html(&self, time: &Time, title: &str, has_label: bool) -> String {
        let Self { label, top, unit, height, paths, overlay, .. } = self;
        let label = escape(label);
        // If the legend has one key, its figure stands beside the label, and the legend is left out.
        let (figure, legend) = match self.legend.as_slice() {
            [key] if has_label => (format!(" <b>{}</b>", escape(&key.figure)), String::new()),
            _ => (String::new(), self.legend()),
        };
        let (heading, name) = match has_label {
            true => (format!("<p class=\"label\">{label}{figure}</p>\n"), label),
            false => (String::new(), format!("{title}: {label}")),
        };
        let class = if self.has_row_names { " class=\"named\"" } else { "" };
        // By `data-top`, the script turns heights in a path into values. A path has a thousand heights, so five digits do.
        format!(
            "<div{class}>\n{heading}<svg class=\"chart\" role=\"img\" aria-label=\"{name}\" width=\"100%\" height=\"{}\" \
             overflow=\"visible\" font-size=\"12\" data-top=\"{top:.4e}\" data-unit=\"{}\">\n{}<svg y=\"{ABOVE}\" \
             width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\">\n{}{paths}</svg>\n\
             {overlay}</svg>\n{legend}</div>\n",
            ABOVE + height + BELOW,
            escape(unit),
            self.numbers(time),
            self.grid(),
        )
    }

    /// The numbers along the axis of values, each with its text. There are none if the chart has no such axis.
    fn value_ticks(&self) -> Vec<(f64, String)> {
        if self.ticks.values == 0 { Vec::new() } else { axis::ticks(self.top, self.ticks.values) }
    }

    /// Draws a thin line at each number of the axis of values, all as one path.
    fn grid(&self) -> String {
        if self.ticks.values == 0 {
            return String::new();
        }
        let line = |(value, _): (f64, String)| format!("M0 {:.0}h{WIDTH}", HEIGHT * (1.0 - value / self.top));
        let lines: String = self.value_ticks().into_iter().map(line).collect();
        format!(
            "<path stroke=\"currentColor\" stroke-opacity=\".15\" vector-effect=\"non-scaling-stroke\" d=\"{lines}\"/>\n"
        )
    }

    /// Writes the numbers of both axes, and the unit.
    fn numbers(&self, time: &Time) -> String {
        let Self { top, unit, height, ticks, .. } = self;
        let value = |(value, text): (f64, String)| {
            let baseline = Self::y_of(value, *top, *height) + MIDDLE_TO_BASELINE;
            format!("<text x=\"-{NUMBER_TO_PLOT}\" y=\"{baseline:.0}\">{text}</text>")
        };
        let values: String = self.value_ticks().into_iter().map(value).collect();
        let baseline = ABOVE + height + PLOT_TO_TIMES;
        let moment = |(part, text): (f64, String)| {
            format!("<text x=\"{}%\" y=\"{baseline}\">{text}</text>", percent(part))
        };
        let times: String = time.ticks(ticks.time).into_iter().map(moment).collect();
        let unit = match escape(unit) {
            unit if unit.is_empty() => unit,
            unit => format!("<text y=\"{}\">{unit}</text>", ABOVE - UNIT_TO_PLOT),
        };
        format!("{unit}<g text-anchor=\"end\">{values}</g><g text-anchor=\"middle\">{times}</g>\n")
    }

    /// Renders the legend; nothing if it has no key.
    fn legend(&self) -> String {
        let keys: String = self.legend.iter().map(LegendKey::html).collect();
        if keys.is_empty() { keys } else { format!("<ul class=\"legend\">\n{keys}</ul>\n") }
    }
}

impl LegendKey {
    /// Renders a line of the legend: a swatch of 12 by 12 pixels, the name and the figure.
    fn html(&self) -> String {
        let swatch = match self.swatch {
            Swatch::Area(class, colour) => {
                format!("<rect class=\"{class}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>")
            }
            Swatch::Line(class, colour, dashes) => format!(
                "<line class=\"{class}\" x2=\"12\" y1=\"6\" y2=\"6\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dashes}\"/>"
            ),
            Swatch::Heat(opacity) => format!(
                "<path class=\"heat\" d=\"M0 6h12\" stroke=\"{}\" stroke-opacity=\"{opacity}\" stroke-width=\"12\"/>",
                colours::HEAT
            ),
            Swatch::Unknown => {
                "<path d=\"M0 6.5h12\" stroke=\"currentColor\" stroke-opacity=\".5\"/>".to_owned()
            }
        };
        format!(
            "<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\">{swatch}</svg> {} <b>{}</b></li>\n",
            escape(&self.name),
            escape(&self.figure)
        )
    }
}

/// Writes a part as a percentage with two decimals, without those that are zero.
pub(super) fn percent(part: f64) -> String {
    let text = format!("{:.2}", part * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
