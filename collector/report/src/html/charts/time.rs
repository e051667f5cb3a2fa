//! The time axis that all charts share: from the command's start to the end of the run.

use crate::figures::short;
use crate::model::report::Series;
use crate::model::style::TimeUnit;
use crate::over_time::{Column, Joining, OverTime, Point};
use crate::units::Units;

/// Width of a plot in the units of paths, which are whole numbers. On a wide page that is about half a pixel a unit.
pub(super) const WIDTH: f64 = 2000.0;

/// The run's time, and the points of its series.
pub(super) struct Time<'a> {
    /// Length of the run, seconds; above 0.
    pub(super) wall_s: f64,
    /// The begin of each point, seconds after the start.
    pub(super) start_s: &'a [f64],
    /// The end of each point, seconds after the start.
    pub(super) end_s: &'a [f64],
    unit: TimeUnit,
}

impl<'a> Time<'a> {
    /// Makes the axis of a run of `wall_s` seconds, with the points of its series.
    pub(super) fn new(series: &'a Series, wall_s: f64, units: Units) -> Self {
        /// A nanosecond, the resolution of times. A shorter run gets an axis of this length, since times are divided by it.
        const LEAST_S: f64 = 1e-9;
        let wall_s = if wall_s > LEAST_S { wall_s } else { LEAST_S };
        Self { wall_s, start_s: &series.start_s, end_s: &series.end_s, unit: units.time }
    }

    /// The same axis with other points, seconds after the start.
    pub(super) fn of_points<'b>(&self, start_s: &'b [f64], end_s: &'b [f64]) -> Time<'b> {
        Time { start_s, end_s, ..*self }
    }

    /// The part of the run that is over at a moment, seconds after the start: from 0 to 1.
    pub(super) fn part(&self, at_s: f64) -> f64 {
        (at_s / self.wall_s).clamp(0.0, 1.0)
    }

    /// The horizontal position of a moment in a path, from 0 to [`WIDTH`].
    pub(super) fn x(&self, at_s: f64) -> i64 {
        (self.part(at_s) * WIDTH).round() as i64
    }

    /// The begin and the end of each point, seconds after the start, and the value at the point's place among `values`.
    pub(super) fn points<T>(
        &self,
        values: impl IntoIterator<Item = T>,
    ) -> impl Iterator<Item = (f64, f64, T)> {
        self.start_s
            .iter()
            .zip(self.end_s)
            .zip(values)
            .map(|((start_s, end_s), value)| (*start_s, *end_s, value))
    }

    /// Joins the points to about one for each of `parts` equal parts of the run. Each quantity is a rule by which its values are
    /// joined, and a value for each point. A point of the result has a value for each quantity, in their order.
    pub(super) fn joined<'q>(
        &self,
        parts: f64,
        quantities: impl IntoIterator<Item = (Joining, &'q [Option<f64>])>,
    ) -> Vec<Point> {
        let quantities: Vec<(Joining, &[Option<f64>])> = quantities.into_iter().collect();
        // `OverTime::every` reads only the joining of each column, so they have no names.
        let columns =
            quantities.iter().map(|(joining, _)| Column { name: String::new(), joining: *joining }).collect();
        let points = self.points(0..).map(|(start_s, end_s, at)| {
            let values = quantities.iter().map(|(_, values)| values.get(at).copied().flatten()).collect();
            Point { start_s, end_s, values }
        });
        OverTime { columns, points: points.collect() }.every(self.wall_s / parts).points
    }

    /// The start and at most `most` other round moments of the run, for the numbers of an axis. Each is the part of the run
    /// that is over then, and the moment as text. The last text has the unit after it.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let whole = self.unit.convert(self.wall_s);
        let ticks = super::axis::ticks(whole, most);
        let last = ticks.len().saturating_sub(1);
        let text = |(at, (value, text)): (usize, (f64, String))| {
            let unit = if at == last { format!(" {}", self.unit.symbol()) } else { String::new() };
            (value / whole, text + &unit)
        };
        ticks.into_iter().enumerate().map(text).collect()
    }

    /// Writes a moment in the axis's unit.
    pub(super) fn text(&self, at_s: f64) -> String {
        format!("{} {}", short(self.unit.convert(at_s)), self.unit.symbol())
    }

    /// The symbol of the axis's unit, and the unit's length in seconds.
    pub(super) fn unit(&self) -> (&'static str, f64) {
        (self.unit.symbol(), self.unit.seconds())
    }
}
