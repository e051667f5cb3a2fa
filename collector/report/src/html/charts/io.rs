//! Block I/O over time.

use super::by_command::convert;
use super::figure::{Figure, Ticks};
use super::lines::{AREA, Line, Lines, OVER_AREA};
use super::samples::{self, ChartColumn};
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
    // The user's unit of RAM, or the one that fits.
    let unit = units.asked_ram.unwrap_or_else(|| RamUnit::that_fits(largest));
    let symbol = format!("{}/s", unit.symbol());
    let values = tracks.map(|track| convert(&track.mean, |rate| unit.convert(rate)));
    let line = |name: &str, values, track: &Track| {
        // A report of several nodes (`merged`) adds up their largest rates, which need not be of one moment.
        let at_most = if report.merged.is_some() { "at most " } else { "" };
        let largest = track.largest().map(|rate| format!("{at_most}{} {symbol}", short(unit.convert(rate))));
        Line { name: name.to_owned(), values, figure: largest.unwrap_or_default() }
    };
    let [read, written] = &values;
    let lines = vec![(line("read", read, tracks[0]), AREA), (line("written", written, tracks[1]), OVER_AREA)];
    let (label, top, ticks) = ("Rates".to_owned(), None, Ticks { time: 6, values: 3 });
    let panel = Lines { label, unit: symbol.clone(), height: HEIGHT, ticks, top, lines }.panel(time)?;
    let quantity = |name, values| ChartColumn::new(name, &symbol, Joining::Mean, values);
    let quantities = [quantity("read", read), quantity("written", written)];
    const TITLE: &str = "I/O that reached storage";
    let note = match report.merged {
        Some(_) => "Mean rates. Numbers below: upper bounds of the largest rate of all nodes together.",
        None => "Mean rates. Numbers below: the largest between two readings, which are a second apart.",
    };
    let table = samples::table(time, TITLE, samples::PARTS, &quantities);
    Some(Figure { title: TITLE.to_owned(), note: note.to_owned(), panels: vec![panel], table })
}
