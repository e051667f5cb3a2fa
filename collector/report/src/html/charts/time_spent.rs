//! Where the time went: the parts of the groups of states in each point, stacked.

use super::figure::{Figure, Panel, Ticks};
use super::samples::{self, ChartColumn};
use super::stack::{self, Layer};
use super::time::Time;
use crate::html::colours;
use crate::model::report::Report;
use crate::model::time_groups::TimeGroup;
use crate::over_time::Joining;

/// Height of the plot, pixels.
const HEIGHT: f64 = 70.0;
/// Maximum number of points. Each group adds to the bytes of the page.
const MOST_POINTS: f64 = 75.0;
const TITLE: &str = "Where the time went";

/// Draws how the time was spent. `None`: it is not known.
pub(super) fn time_spent(report: &Report, time: &Time) -> Option<Figure> {
    let shares = report.series.time_spent.as_ref()?;
    let points = time.joined(MOST_POINTS, shares.values().map(|shares| (Joining::Mean, shares.as_slice())));
    let (start_s, end_s): (Vec<_>, Vec<_>) = points.iter().map(|point| (point.start_s, point.end_s)).unzip();
    let time = time.of_points(&start_s, &end_s);
    let layer = |group: TimeGroup| {
        let percent = points.iter().map(|point| point.values[group as usize].map(|share| share * 100.0));
        Layer {
            name: group.label().to_owned(),
            colour: colours::TIME[group as usize],
            values: percent.collect(),
            figure: percent_of_run(report, group).unwrap_or_default(),
        }
    };
    let mut layers: Vec<Layer> = TimeGroup::ALL.map(layer).into();
    layers.retain(|layer| layer.values.iter().flatten().any(|percent| *percent > 0.0));
    if layers.is_empty() {
        return None;
    }
    let columns = layers.iter().map(|layer| ChartColumn::new(&layer.name, "%", Joining::Mean, &layer.values));
    let table = samples::table(&time, TITLE, samples::PARTS, &columns.collect::<Vec<_>>());
    let top = 100.0;
    let panel = Panel {
        label: "Parts of the time, stacked".to_owned(),
        top,
        unit: "%".to_owned(),
        height: HEIGHT,
        ticks: Ticks { time: 6, values: 2 },
        paths: stack::stacked_areas(&layers, &time, top),
        legend: layers.iter().map(stack::layer_key).collect(),
        ..Panel::default()
    };
    let note = "Each moment counts for the lowest state that a thread of the run is in. Numbers below: of the whole run.";
    Some(Figure { title: TITLE.to_owned(), note: note.to_owned(), panels: vec![panel], table })
}

/// The part of the whole run, as text. `None`: it is not known.
fn percent_of_run(report: &Report, group: TimeGroup) -> Option<String> {
    let states = report.time_spent.as_ref()?.states.iter();
    let shares = states.filter(|time| TimeGroup::from(time.state) == group).map(|time| time.share);
    Some(format!("{:.0} %", shares.fold(0.0, |sum, share| sum + share) * 100.0))
}
