//! The time axis that all charts share: from the command's start to the end of the run.

use crate::figures::short;
use crate::model::report::Series;
use crate::model::style::TimeUnit;
use crate::units::Units;

/// Units from the start to the end of the run in which paths are drawn. Half of one is a quarter of a pixel on a wide page.
pub(super) const WIDTH: f64 = 2000.0;

/// The run's time, and the points of its series.
pub(super) struct Time<'a> {
    pub(super) wall_s: f64,
    pub(super) start_s: &'a [f64],
    pub(super) end_s: &'a [f64],
    unit: TimeUnit,
}

impl<'a> Time<'a> {
    /// Makes the axis of a run of `wall_s` seconds, with the points of its series.
    pub(super) fn new(series: &'a Series, wall_s: f64, units: Units) -> Self {
        /// A shorter run has no axis: a nanosecond is the resolution of its times.
        const LEAST_S: f64 = 1e-9;
        // A run of no length has its points at its start.
        let wall_s = if wall_s > LEAST_S { wall_s } else { LEAST_S };
        Self { wall_s, start_s: &series.start_s, end_s: &series.end_s, unit: units.time }
    }

    /// Gives the same axis with other points, seconds after the start.
    pub(super) fn of_points<'b>(&self, start_s: &'b [f64], end_s: &'b [f64]) -> Time<'b> {
        Time { start_s, end_s, ..*self }
    }

    /// Gives the part of the run that is over at a moment, from 0 to 1.
    pub(super) fn part(&self, at_s: f64) -> f64 {
        (at_s / self.wall_s).clamp(0.0, 1.0)
    }

    /// Gives the place of a moment in a path, from 0 to [`WIDTH`].
    pub(super) fn x(&self, at_s: f64) -> i64 {
        (self.part(at_s) * WIDTH).round() as i64
    }

    /// Joins each point with one of the values: its begin and its end, seconds after the start, and the value.
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

    /// Gives moments for an axis, about `most` at most: the part of the run that is over then, and its text. The last has the
    /// unit behind it.
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

    /// Gives the symbol of its unit, and how many seconds that has.
    pub(super) fn unit(&self) -> (&'static str, f64) {
        (self.unit.symbol(), self.unit.seconds())
    }
}
