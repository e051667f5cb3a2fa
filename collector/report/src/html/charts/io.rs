//! Block I/O over time.

use super::figure::{Figure, Ticks};
use super::lines::{Line, Lines};
use super::samples::{self, Quantity};
use super::time::Time;
use crate::figures::short;
use crate::model::report::{Report, Track};
use crate::model::style::RamUnit;
use crate::over_time::Joining;
use crate::units::Units;

/// Height of the plot, pixels.
const HEIGHT: f64 = 110.0;

/// Draws the rates of reading from storage and writing to it. `None`: nothing was read or written, or it is not known.
pub(super) fn io(report: &Report, units: Units, time: &Time) -> Option<Figure> {
    let tracks = [&report.series.io_bytes_per_s.read, &report.series.io_bytes_per_s.written];
    let largest = tracks.iter().flat_map(|track| track.mean.iter().copied().flatten()).fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let unit = units.asked_ram.unwrap_or_else(|| RamUnit::that_fits(largest));
    let symbol = format!("{}/s", unit.symbol());
    let values = tracks
        .map(|track| track.mean.iter().map(|rate| rate.map(|rate| unit.convert(rate))).collect::<Vec<_>>());
    let line = |name: &str, values, track: &Track| {
        let at_most = if report.merged.is_some() { "at most " } else { "" };
        let largest = track.largest().map(|rate| format!("{at_most}{} {symbol}", short(unit.convert(rate))));
        Some(Line { name: name.to_owned(), values, figure: largest.unwrap_or_default() })
    };
    let [read, written] = &values;
    let lines = [line("read", read, tracks[0]), line("written", written, tracks[1])];
    let (label, top, ticks) = ("Rates".to_owned(), None, Ticks { time: 6, values: 3 });
    let panel = Lines { label, unit: symbol.clone(), height: HEIGHT, ticks, top, lines }.panel(time)?;
    let quantities = ["read", "written"].into_iter().zip(&values);
    let quantities: Vec<Quantity> = quantities
        .map(|(name, values)| Quantity {
            name: format!("{name} [{symbol}]"),
            joining: Joining::Mean,
            values,
            is_count: false,
        })
        .collect();
    const TITLE: &str = "I/O that reached storage";
    let note = match report.merged {
        Some(_) => "Mean rates. Numbers below: upper bounds of the largest rate of all nodes together.",
        None => "Mean rates. Numbers below: the largest between two readings, which are a second apart.",
    };
    Some(Figure {
        title: TITLE.to_owned(),
        note: note.to_owned(),
        panels: vec![panel],
        table: samples::table(time, TITLE, samples::PARTS, &quantities),
    })
}
