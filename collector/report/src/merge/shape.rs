//! A quantity of one report in the bins of a grid.

use super::grid::{Grid, START_ROUNDING_US};
use super::quantity::{Quantity, Span, is_about};

/// The values of a report in the bins that it touches.
pub(super) struct Shape {
    /// The first of these bins.
    pub(super) first: usize,
    /// The last of them.
    pub(super) last: usize,
    /// The largest value that it can have had in each of them.
    pub(super) high: Vec<u64>,
    /// The smallest value in each of them; 0 where it did not run through the whole bin.
    pub(super) low: Vec<u64>,
}

impl Shape {
    /// Finds the largest and the smallest value of a report in each bin that it touches.
    pub(super) fn of(quantity: &Quantity, grid: Grid) -> Self {
        let Span { start_us, end_us } = quantity.span;
        let (first, last) = grid.touched(start_us, end_us.saturating_add(START_ROUNDING_US));
        let mut high: Vec<Option<u64>> = vec![None; last - first + 1];
        let mut low: Vec<Option<u64>> = vec![None; high.len()];
        let points = &quantity.points;
        let points_start_us = points.first().map_or(start_us, |point| point.start_us);
        let points_end_us = points.last().map_or(start_us, |point| point.end_us);
        for point in points {
            // The time before the first point and after the last one has their values.
            let is_first = point.start_us == points_start_us;
            let from_us = if is_first { start_us.min(points_start_us) } else { point.start_us };
            let is_last = point.end_us == points_end_us;
            let to_us = if is_last { end_us.max(points_end_us) } else { point.end_us };
            let (from, to) = grid.touched(from_us, to_us.saturating_add(START_ROUNDING_US));
            // Bins that the point touches, of those that the report touches.
            for at in (from.max(first) - first)..=(to.min(last).max(first) - first) {
                // A point of which nothing is known can have had anything from 0 to the report's largest value.
                let (min, max) = (point.min.unwrap_or(0), point.max.unwrap_or(quantity.max));
                high[at] = high[at].max(Some(max));
                low[at] = Some(low[at].map_or(min, |low| low.min(min)));
            }
        }
        // If no point has the largest value of the report, that can have been at any time.
        let largest = points.iter().filter_map(|point| point.max).max();
        let is_max_in_no_point = largest.is_none_or(|largest| !is_about(quantity.max, largest));
        let high = high.into_iter().map(|high| high.filter(|_| !is_max_in_no_point).unwrap_or(quantity.max));
        // A bin that the points do not fill also has time in which there may have been nothing.
        let runs_through = |bin: usize| {
            let (bin_start_us, bin_end_us) = grid.window(bin, 1);
            points_start_us.saturating_add(START_ROUNDING_US) <= bin_start_us && bin_end_us <= points_end_us
        };
        let low =
            low.into_iter().zip(first..).map(|(low, bin)| low.filter(|_| runs_through(bin)).unwrap_or(0));
        Self { first, last, high: high.collect(), low: low.collect() }
    }

    /// Gives the smallest value of the report in a bin; 0 where it did not run through it.
    pub(super) fn low_in(&self, bin: usize) -> u64 {
        bin.checked_sub(self.first).and_then(|at| self.low.get(at)).copied().unwrap_or(0)
    }
}
