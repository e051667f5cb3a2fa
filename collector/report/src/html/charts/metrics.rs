//! Metrics that the tracked program reported, over time: a small chart for each.

use super::figure::{Figure, Panel, Ticks};
use super::lines::{AREA, Line, Lines};
use super::samples::{self, ChartColumn};
use super::time::Time;
use crate::metrics::{MetricTrack, is_bytes, readable};
use crate::model::style::RamUnit;
use crate::over_time::Joining;
use crate::quote;

/// Height of a plot, pixels.
const HEIGHT: f64 = 90.0;
/// Maximum number of points of a plot, which is a third as wide as others.
const MOST_POINTS: f64 = 100.0;
/// Maximum number of metrics of a page: each adds to its bytes.
const MOST_METRICS: usize = 12;
/// Parts of the run, each a row, in the table.
const PARTS: f64 = 5.0;
/// Maximum number of columns of a name.
const NAME_COLUMNS: usize = 32;
/// A metric has a chart only if its largest value is in this range, because an axis has its numbers written out.
const DRAWN: std::ops::Range<f64> = 1e-9..1e12;

/// A metric as the page shows it: with a unit, and a value for each point of the chart.
struct ShownMetric<'a> {
    track: &'a MetricTrack,
    label: String,
    unit: &'static str,
    values: Vec<Option<f64>>,
}

/// Draws a chart for each of the first [`MOST_METRICS`] metrics of which a value is known. `None`: there is none.
/// `tracks`: a value for each point of `time`.
pub(super) fn metrics(tracks: &[MetricTrack], time: &Time) -> Option<Figure> {
    const TITLE: &str = "Metrics of the program";
    let known: Vec<&MetricTrack> =
        tracks.iter().filter(|track| track.values.iter().any(Option::is_some)).collect();
    if known.is_empty() {
        return None;
    }
    let first = &known[..known.len().min(MOST_METRICS)];
    let points = time.joined(MOST_POINTS, first.iter().map(|track| (Joining::Last, track.values.as_slice())));
    let (start_s, end_s): (Vec<_>, Vec<_>) = points.iter().map(|point| (point.start_s, point.end_s)).unzip();
    let time = &time.of_points(&start_s, &end_s);
    let values = |at: usize| points.iter().map(move |point| point.values[at]);
    let shown = first.iter().enumerate().map(|(at, track)| ShownMetric::new(track, values(at)));
    let shown: Vec<ShownMetric> = shown.collect();
    let (drawn, undrawn): (Vec<&ShownMetric>, Vec<&ShownMetric>) =
        shown.iter().partition(|shown| shown.is_drawn());
    let panels = drawn.iter().filter_map(|shown| shown.panel(time)).collect();
    let note = note(&undrawn, known.len() - first.len());
    let quantities: Vec<ChartColumn> =
        shown.iter().map(|one| ChartColumn::new(&one.label, one.unit, Joining::Last, &one.values)).collect();
    let table = samples::table(time, TITLE, PARTS, &quantities);
    Some(Figure { title: TITLE.to_owned(), note, panels, table })
}

/// Says what the charts show, which metrics have none, and how many are not on the page.
fn note(undrawn: &[&ShownMetric], left_out: usize) -> String {
    let mut note = "The last value at each time.".to_owned();
    if !undrawn.is_empty() {
        let names: Vec<&str> = undrawn.iter().map(|shown| shown.label.as_str()).collect();
        note += &format!(" In the table alone, since an axis begins at 0: {}.", names.join(", "));
    }
    if left_out > 0 {
        note += &format!(" {left_out} more are not shown.");
    }
    note
}

impl<'a> ShownMetric<'a> {
    /// Makes the label of a metric, and converts values in bytes to the unit that fits the largest of them.
    fn new(track: &'a MetricTrack, values: impl Iterator<Item = Option<f64>>) -> Self {
        let name = quote::cut_middle(&quote::escape(&track.name), NAME_COLUMNS);
        let label = match track.process_id {
            Some(pid) => format!("{name} of {pid}"),
            None => name,
        };
        let values: Vec<Option<f64>> = values.collect();
        let largest = values.iter().flatten().copied().fold(0.0, f64::max);
        let byte_unit = is_bytes(&track.name).then(|| RamUnit::that_fits(largest));
        let convert = |value| byte_unit.map_or(value, |unit| unit.convert(value));
        Self {
            track,
            label,
            unit: byte_unit.map_or("", RamUnit::symbol),
            values: values.into_iter().map(|value| value.map(convert)).collect(),
        }
    }

    /// Whether all of its values have a place on an axis that begins at 0.
    fn is_drawn(&self) -> bool {
        let known = || self.values.iter().flatten().copied();
        known().all(|value| value >= 0.0) && DRAWN.contains(&known().fold(0.0, f64::max))
    }

    /// Draws the chart. `None`: no value is known, or all are zero.
    fn panel(&self, time: &Time) -> Option<Panel> {
        let last = self.track.row.last;
        let figure = last.map(|last| format!("{} at last", readable(&self.track.name, last)));
        let (name, figure) = (self.label.clone(), figure.unwrap_or_default());
        let lines = vec![(Line { name, values: &self.values, figure }, AREA)];
        let (label, unit, ticks) = (self.label.clone(), self.unit.to_owned(), Ticks { time: 2, values: 3 });
        Lines { label, unit, height: HEIGHT, ticks, top: None, lines }.panel(time)
    }
}
