//! A quantity of each command as stacked areas, and the largest of all commands together as a line.
//!
//! Each area reaches from its upper edge, a sum, down to zero, and the area below is drawn over it. So a path has one edge.

use super::figure::{LegendKey, Panel, Swatch, Ticks};
use super::marks::HEIGHT;
use super::time::Time;
use super::{marks, path};
use crate::html::colours;
use crate::quote;

/// The part of the plot's height that the highest value takes; the rest is for words.
const FILLED: f64 = 0.86;
/// A limit above this many times the largest value is not drawn, because it would make the areas flat.
const MOST_OF_LIMIT: f64 = 2.0;
/// A command whose largest value is a smaller part of the plot could not be seen, so it is added to the others.
const LEAST_PART: f64 = 0.01;
/// Maximum number of columns of a name.
const NAME_COLUMNS: usize = 40;

/// A command over time, an area of the chart.
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) colour: &'static str,
    /// A value for each point of time, without those of the layers below.
    pub(super) values: Vec<Option<f64>>,
    /// A number for the whole run, with its unit, as text.
    pub(super) figure: String,
}

impl Layer {
    /// Makes the layer of all commands that have no layer of their own.
    pub(super) fn others(values: Vec<Option<f64>>) -> Self {
        Self { name: "others".to_owned(), colour: colours::OTHERS, values, figure: String::new() }
    }
}

/// What a chart of commands is made of.
pub(super) struct Stack {
    pub(super) label: String,
    pub(super) unit: String,
    /// The first one is at the bottom.
    pub(super) layers: Vec<Layer>,
    /// All other commands, at the top.
    pub(super) others: Option<Layer>,
    /// The largest value of all commands together within each point of time.
    pub(super) largest: Vec<Option<f64>>,
    /// What the legend calls [`Self::largest`].
    pub(super) largest_name: &'static str,
    /// The figure of [`Self::largest`] for the whole run, in words.
    pub(super) largest_figure: String,
    pub(super) limit: Option<DrawnLimit>,
    pub(super) peak: Option<DrawnPeak>,
}

/// How much the run may use, and the words beside its line.
pub(super) struct DrawnLimit {
    pub(super) value: f64,
    pub(super) words: String,
}

/// The largest value of the run, its moment, and the words beside its dot.
pub(super) struct DrawnPeak {
    pub(super) at_s: f64,
    pub(super) value: f64,
    pub(super) words: String,
}

impl Stack {
    /// Draws the chart. `None`: no value is known, or all are zero.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let highest = self.highest()?;
        // A limit far above the areas is in the legend alone.
        let (limit, limit_above) = match self.limit {
            Some(limit) if limit.value > highest * MOST_OF_LIMIT => (None, Some(limit)),
            limit => (limit, None),
        };
        let top = limit.as_ref().map_or(highest, |limit| limit.value.max(highest)) / FILLED;
        let layers = visible(self.layers, self.others, top * LEAST_PART);
        let edges = upper_edges(&layers);
        let areas = areas(&layers, &edges, time, top);
        let largest_line = path::line(time, self.largest, top);
        let names = names(&layers, &edges, time, top);
        // Where the peak is in the second half of the run, the words about the limit stand in the first half.
        let is_limit_left = self.peak.as_ref().is_some_and(|peak| time.part(peak.at_s) > 0.5);
        let limit = limit.map(|limit| marks::limit(limit.value, &limit.words, top, is_limit_left));
        let peak = self.peak.map(|peak| marks::moment(time.part(peak.at_s), peak.value, &peak.words, top));
        let largest_key = LegendKey {
            swatch: Swatch::Line("", "currentColor", ""),
            name: self.largest_name.to_owned(),
            figure: self.largest_figure,
        };
        let keys = layers.iter().map(layer_key);
        Some(Panel {
            label: self.label,
            top,
            unit: self.unit,
            height: HEIGHT,
            ticks: Ticks { time: 6, values: 4 },
            paths: format!(
                "{areas}<path class=\"s\" fill=\"none\" stroke=\"currentColor\" \
                 vector-effect=\"non-scaling-stroke\" d=\"{largest_line}\"/>\n"
            ),
            overlay: [Some(names), limit, peak].into_iter().flatten().collect(),
            legend: keys.chain([largest_key]).chain(limit_above.map(limit_above_key)).collect(),
            ..Panel::default()
        })
    }

    /// The largest value that the chart shows: of the line, the stacked areas and the peak. `None`: none is known, or all
    /// are zero.
    fn highest(&self) -> Option<f64> {
        let edges = upper_edges(self.layers.iter().chain(&self.others)).into_iter().flatten();
        let peak = self.peak.as_ref().map(|peak| peak.value);
        let values = self.largest.iter().copied().chain(edges).flatten().chain(peak);
        values.filter(|value| value.is_finite()).reduce(f64::max).filter(|value| *value > 0.0)
    }
}

/// Draws layers as areas, one on the other. `top`: the value at the top of the plot.
pub(super) fn stacked_areas(layers: &[Layer], time: &Time, top: f64) -> String {
    areas(layers, &upper_edges(layers), time, top)
}

/// Draws the area of each layer from its upper edge down to zero, the uppermost first: the next one covers its lower part.
fn areas(layers: &[Layer], edges: &[Vec<Option<f64>>], time: &Time, top: f64) -> String {
    let area = |(layer, edge): (&Layer, &Vec<Option<f64>>)| {
        let path = path::area(time, edge.iter().copied(), top);
        format!("<path class=\"s d a\" fill=\"{}\" d=\"{path}\"/>\n", layer.colour)
    };
    let areas: String = layers.iter().zip(edges).rev().map(area).collect();
    format!("<g stroke=\"{}\" stroke-width=\".5\">\n{areas}</g>\n", colours::PAGE)
}

/// Writes the name of each layer on its area, where it fits.
fn names(layers: &[Layer], edges: &[Vec<Option<f64>>], time: &Time, top: f64) -> String {
    let mut names = String::new();
    // The lowest layer stands on zero, each other one on the next known layer below it.
    let mut lower: Option<Vec<Option<f64>>> = None;
    for (layer, upper) in layers.iter().zip(edges) {
        names.extend(marks::name(time, &layer.name, lower.as_ref(), upper, top));
        let below = lower.unwrap_or_else(|| vec![Some(0.0); upper.len()]);
        lower = Some(upper.iter().zip(below).map(|(upper, below)| upper.or(below)).collect());
    }
    names
}

/// Makes a layer's line of the legend.
pub(super) fn layer_key(layer: &Layer) -> LegendKey {
    LegendKey {
        swatch: Swatch::Area("g", layer.colour),
        name: quote::cut_middle(&quote::escape(&layer.name), NAME_COLUMNS),
        figure: layer.figure.clone(),
    }
}

/// Makes the legend's line of a limit that is not drawn, because it is far above the areas.
fn limit_above_key(limit: DrawnLimit) -> LegendKey {
    let swatch = Swatch::Line("lm", colours::LIMIT, "4 2");
    LegendKey { swatch, name: "above the chart:".to_owned(), figure: limit.words }
}

/// The layers whose largest value is at least `least`, then one for the rest: the sum of `others` and the smaller
/// layers. Layers without a value above zero are left out.
fn visible(layers: Vec<Layer>, others: Option<Layer>, least: f64) -> Vec<Layer> {
    let largest = |layer: &Layer| layer.values.iter().flatten().copied().fold(0.0, f64::max);
    let (mut visible, small): (Vec<Layer>, Vec<Layer>) =
        layers.into_iter().partition(|layer| largest(layer) >= least);
    let small = small.into_iter().filter(|layer| largest(layer) > 0.0);
    let rest = others.into_iter().chain(small).map(|layer| layer.values);
    visible.extend(rest.reduce(|all, values| sum_by_point(&all, &values)).map(Layer::others));
    visible
}

/// The upper edge of each layer: the sum of its values and the known ones of all layers below it.
fn upper_edges<'a>(layers: impl IntoIterator<Item = &'a Layer>) -> Vec<Vec<Option<f64>>> {
    let mut edges = Vec::new();
    let mut sums: Vec<f64> = Vec::new();
    for layer in layers {
        sums.resize(sums.len().max(layer.values.len()), 0.0);
        let mut edge = Vec::new();
        for (sum, value) in sums.iter_mut().zip(&layer.values) {
            *sum += value.unwrap_or(0.0);
            edge.push(value.map(|_| *sum));
        }
        edges.push(edge);
    }
    edges
}

/// Adds values point by point, as far as they are known. A sum is unknown where both values are.
fn sum_by_point(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<Option<f64>> {
    a.iter().zip(b).map(|(a, b)| a.iter().chain(b).copied().reduce(|a, b| a + b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: OUT-34
    #[test]
    fn layer_that_is_unknown_leaves_the_others_where_they_are() {
        let layer = |values: [Option<f64>; 3]| Layer {
            name: String::new(),
            colour: "",
            values: values.to_vec(),
            figure: String::new(),
        };
        let layers = [layer([Some(1.0), None, Some(3.0)]), layer([Some(2.0), Some(5.0), None])];
        let edges = upper_edges(&layers);
        assert_eq!(edges, [[Some(1.0), None, Some(3.0)], [Some(3.0), Some(5.0), None]]);
        let sums = sum_by_point(&[Some(1.0), None, None], &[Some(2.0), Some(5.0), None]);
        assert_eq!(sums, [Some(3.0), Some(5.0), None]);
    }
}
