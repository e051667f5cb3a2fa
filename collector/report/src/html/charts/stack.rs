//! A quantity of each command, stacked, below the largest of all.
//!
//! Each area reaches from the sum at its upper edge down to zero, and the next one is drawn over it. So a path has one edge.

use super::figure::{Key, Panel, Swatch, Ticks};
use super::marks::HEIGHT;
use super::time::Time;
use super::{marks, path};
use crate::html::colours;
use crate::quote;

/// The highest value has this much of the plot; the rest is for words.
const FILLED: f64 = 0.86;
/// A limit of more than this many times the largest value would make the areas flat.
const MOST_OF_LIMIT: f64 = 2.0;
/// A command whose largest value is a smaller part of the plot can't be seen, and counts as one of the others.
const LEAST_PART: f64 = 0.01;
/// Most columns of a name.
const NAME: usize = 40;

/// A command over time.
#[derive(Clone)]
pub(super) struct Layer {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) values: Vec<Option<f64>>,
    /// A figure of the whole run, in words.
    pub(super) figure: String,
}

/// What a chart of commands is made of.
pub(super) struct Stack {
    pub(super) label: String,
    pub(super) unit: String,
    /// The first one is at the bottom.
    pub(super) layers: Vec<Layer>,
    /// All others, at the top.
    pub(super) others: Option<Layer>,
    /// The largest of all at any time.
    pub(super) largest: Vec<Option<f64>>,
    /// Its name and its figure in the legend.
    pub(super) largest_key: (String, String),
    /// What may be used, and words for it.
    pub(super) limit: Option<(f64, String)>,
    /// A moment, the largest value, and words for both.
    pub(super) peak: Option<(f64, f64, String)>,
}

impl Stack {
    /// Draws it. `None`: no value is known, or all are zero.
    pub(super) fn panel(self, time: &Time) -> Option<Panel> {
        let highest = self.highest()?;
        let (limit, unseen) = match self.limit {
            Some((value, words)) if value > highest * MOST_OF_LIMIT => (None, Some(words)),
            limit => (limit, None),
        };
        let top = limit.as_ref().map_or(highest, |(value, _)| value.max(highest)) / FILLED;
        let layers = seen(self.layers, self.others, top * LEAST_PART);
        let sums = sums(&layers);
        let areas = layers.iter().zip(&sums).rev().map(|(layer, sums)| {
            let path = path::area(time, sums.iter().copied(), top);
            format!("<path class=\"s d a\" fill=\"{}\" d=\"{path}\"/>\n", layer.colour)
        });
        let areas: String = areas.collect();
        let line = path::line(time, self.largest, top);
        let below = std::iter::once(None).chain(sums.iter().map(Some));
        let bands = layers.iter().zip(below).zip(&sums);
        let names =
            bands.filter_map(|((layer, below), sums)| marks::name(time, &layer.name, below, sums, top));
        let names: String = names.collect();
        let limit =
            limit.map(|(value, words)| marks::limit(value, &words, top, is_late(self.peak.as_ref(), time)));
        let peak = self.peak.map(|(at_s, value, words)| marks::moment(time.part(at_s), value, &words, top));
        let key = |layer: &Layer| Key {
            swatch: Swatch::Area("g", layer.colour),
            name: quote::cut_middle(&quote::escape(&layer.name), NAME),
            figure: layer.figure.clone(),
        };
        let (name, figure) = self.largest_key;
        let line_key = Key { swatch: Swatch::Line("", "currentColor", ""), name, figure };
        Some(Panel {
            label: self.label,
            top,
            unit: self.unit,
            height: HEIGHT,
            ticks: Ticks { time: 6, values: 4 },
            paths: format!(
                "<g stroke=\"{}\" stroke-width=\".5\">\n{areas}</g>\n<path class=\"s\" fill=\"none\" stroke=\"currentColor\" \
                 vector-effect=\"non-scaling-stroke\" d=\"{line}\"/>\n",
                colours::PAGE
            ),
            words: [Some(names), limit, peak].into_iter().flatten().collect(),
            legend: layers.iter().map(key).chain([line_key]).chain(unseen.map(unseen_key)).collect(),
        })
    }

    /// Gives the largest value. `None`: no value is known, or all are zero.
    fn highest(&self) -> Option<f64> {
        let layers: Vec<Layer> = self.layers.iter().chain(&self.others).cloned().collect();
        let all = sums(&layers).pop().unwrap_or_default();
        let peak = self.peak.as_ref().map(|(_, value, _)| *value);
        let values = self.largest.iter().copied().chain(all).flatten().chain(peak);
        values.filter(|value| value.is_finite()).reduce(f64::max).filter(|value| *value > 0.0)
    }
}

/// Names a limit that the chart is too low for.
fn unseen_key(words: String) -> Key {
    let swatch = Swatch::Line("lm", colours::LIMIT, "4 2");
    Key { swatch, name: "above the chart:".to_owned(), figure: words }
}

/// Whether the peak is in the second half: words about the limit stand in the other one.
fn is_late(peak: Option<&(f64, f64, String)>, time: &Time) -> bool {
    peak.is_some_and(|(at_s, ..)| time.part(*at_s) > 0.5)
}

/// Gives the layers that can be seen, and one for all others if there are any.
fn seen(layers: Vec<Layer>, others: Option<Layer>, least: f64) -> Vec<Layer> {
    let largest = |layer: &Layer| layer.values.iter().flatten().copied().fold(0.0, f64::max);
    let (mut seen, small): (Vec<Layer>, Vec<Layer>) =
        layers.into_iter().partition(|layer| largest(layer) >= least);
    let small = small.into_iter().filter(|layer| largest(layer) > 0.0);
    let small = small.map(|layer| Layer {
        name: "others".to_owned(),
        colour: colours::OTHERS,
        figure: String::new(),
        ..layer
    });
    let rest = others.into_iter().chain(small);
    seen.extend(rest.reduce(|all, layer| Layer { values: add(&all.values, &layer.values), ..all }));
    seen
}

/// Gives the upper edge of each layer.
fn sums(layers: &[Layer]) -> Vec<Vec<Option<f64>>> {
    let mut sums: Vec<Vec<Option<f64>>> = Vec::new();
    for layer in layers {
        sums.push(match sums.last() {
            Some(below) => add(below, &layer.values),
            None => layer.values.clone(),
        });
    }
    sums
}

/// Adds values. What is not known in one of them is not known in the sum.
fn add(a: &[Option<f64>], b: &[Option<f64>]) -> Vec<Option<f64>> {
    a.iter().zip(b).map(|(a, b)| Some((*a)? + (*b)?)).collect()
}
