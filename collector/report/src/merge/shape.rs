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
    /// Finds, for each bin of time that the report touches, the largest value that the report can have had there and the smallest.
    pub(super) fn new(quantity: &Quantity, grid: Grid) -> Self {
        let Span { start_us, end_us } = quantity.span;
        // The start of a report is cut to milliseconds. So all of its times can be later by up to [`START_ROUNDING_US`].
        let (first, last) = grid.touched(start_us, end_us.saturating_add(START_ROUNDING_US));
        let (point_high, point_low) = extremes_of_points(quantity, grid, (first, last));
        // If no point has the largest value of the report, the report can have had that value at any time.
        let largest = quantity.points.iter().filter_map(|point| point.max).max();
        let is_max_in_a_point = largest.is_some_and(|largest| is_about(quantity.max, largest));
        let known_high = |high: Option<u64>| high.filter(|_| is_max_in_a_point);
        let high = point_high.into_iter().map(|high| known_high(high).unwrap_or(quantity.max)).collect();
        // If the points do not fill a bin, the value may have been 0 in the rest of the bin.
        let Span { start_us, end_us } = time_of_points(quantity);
        let runs_through = |bin: usize| {
            let (bin_start_us, bin_end_us) = grid.window(bin, 1);
            start_us.saturating_add(START_ROUNDING_US) <= bin_start_us && bin_end_us <= end_us
        };
        let known_low = |low: Option<u64>, bin: usize| low.filter(|_| runs_through(bin));
        let low =
            point_low.into_iter().zip(first..).map(|(low, bin)| known_low(low, bin).unwrap_or(0)).collect();
        Self { first, last, high, low }
    }

    /// The smallest value of the report in a bin; 0 where it did not run through it.
    pub(super) fn low_in(&self, bin: usize) -> u64 {
        bin.checked_sub(self.first).and_then(|at| self.low.get(at)).copied().unwrap_or(0)
    }
}

/// The time from the begin of the first point to the end of the last one. Without points, that is the start of the report.
fn time_of_points(quantity: &Quantity) -> Span {
    let points = &quantity.points;
    Span {
        start_us: points.first().map_or(quantity.span.start_us, |point| point.start_us),
        end_us: points.last().map_or(quantity.span.start_us, |point| point.end_us),
    }
}

/// The largest values, and the smallest, of the points that touch each bin from `first` to `last`. `None`: no point touches the
/// bin.
fn extremes_of_points(
    quantity: &Quantity,
    grid: Grid,
    (first, last): (usize, usize),
) -> (Vec<Option<u64>>, Vec<Option<u64>>) {
    let mut high: Vec<Option<u64>> = vec![None; last - first + 1];
    let mut low: Vec<Option<u64>> = vec![None; high.len()];
    let of_points = time_of_points(quantity);
    for point in &quantity.points {
        // Time of the report before the first point counts as a part of that point. Time after the last point counts as a part of
        // the last.
        let is_first = point.start_us == of_points.start_us;
        let from_us = if is_first { quantity.span.start_us.min(point.start_us) } else { point.start_us };
        let is_last = point.end_us == of_points.end_us;
        let to_us = if is_last { quantity.span.end_us.max(point.end_us) } else { point.end_us };
        // As in [`Shape::new`], all times can be later by the rounding.
        let (from, to) = grid.touched(from_us, to_us.saturating_add(START_ROUNDING_US));
        // Only the bins that the report touches count. A point behind them has none.
        let (from, to) = (from.max(first), to.min(last).max(first));
        for at in (from - first)..=(to - first) {
            // A point of which nothing is known can have had anything from 0 to the report's largest value.
            let (min, max) = (point.min.unwrap_or(0), point.max.unwrap_or(quantity.max));
            high[at] = high[at].max(Some(max));
            low[at] = Some(low[at].map_or(min, |low| low.min(min)));
        }
    }
    (high, low)
}
