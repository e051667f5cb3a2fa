//! The sum of a quantity over reports, in each bin of a grid: how small and how large it can have been.
//!
//! A point of a report has the smallest value, the mean and the largest value of its time. The moments of the
//! extremes are unknown. So the largest sum over time is known between two bounds:
//!
//! - **at most**: in each bin every report counts with its largest value; the largest of these sums.
//! - **at least**: the largest of these three.
//!   - In each bin, the sum of the smallest values. The report that rose most above its own counts with its largest one.
//!   - The means of the sum over windows of 1, 2, 4, ... bins.
//!   - The largest value of a single report.
//!
//! A report's largest value that no point has, since its time is unknown, can have been at any time of its run. All values are
//! whole numbers, so the order of the reports changes nothing.

use super::grid::{Grid, START_ROUNDING_US, overlap_us};
use super::quantity::{Quantity, QuantityPoint, Scale, is_about};
use super::seen::Seen;
use super::shape::Shape;

/// The sum so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Sum {
    /// The bins of time that the sum is over. Without [`Sum::new`] there are none.
    pub grid: Grid,
    bins: Bins,
    /// `None`: the sum is only for a line over time.
    lower: Option<Lower>,
    apart: Apart,
    /// The largest value of a single report.
    largest: u128,
    /// Of some report, the largest value that it can have had is unknown.
    is_unbounded: bool,
    /// The number of reports of which the quantity is known.
    known: u64,
    /// The number of reports of which it is unknown.
    pub unknown: u64,
}

/// What is known of each bin.
#[derive(Debug, Clone, Default)]
struct Bins {
    /// The sum of the largest values.
    most: Vec<u128>,
    /// The sum of the largest values that the reports can have had.
    at_most: Vec<u128>,
    /// The sum of the smallest values of the reports that ran through the whole bin.
    least: Vec<u128>,
    /// The sum over time, units times microseconds.
    time_sums: Vec<u128>,
    /// Whether some report has a mean in the bin.
    is_known: Vec<bool>,
}

/// What the lower bound needs beside the bins.
#[derive(Debug, Clone)]
struct Lower {
    /// `rises[n][first]`: the most by which a point that touches `n + 1` bins from `first` on is above what its report counts for
    /// there ([`Shape::low`]). A list is empty until a point touches so many bins.
    rises: Vec<Vec<u64>>,
    /// For windows of 1, 2, 4, ... bins: the sum over the time of each, units times microseconds.
    windows: Vec<Vec<u128>>,
}

/// Sums over the reports whose times have nothing to do with those of the others.
#[derive(Debug, Clone, Copy, Default)]
struct Apart {
    most: u128,
    at_most: u128,
}

/// The bounds of a largest sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The largest sum is at least that. `None`: the quantity is known of no report.
    pub at_least: Option<u128>,
    /// The largest sum is at most that. `None`: no upper bound is known of some report.
    pub at_most: Option<u128>,
}

/// A sum over time, a list entry for each point.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SumLine {
    /// No less than this at any time.
    pub min: Vec<Option<u128>>,
    /// The mean.
    pub mean: Vec<Option<u128>>,
    /// No more than this at any time.
    pub max: Vec<Option<u128>>,
}

impl Sum {
    /// Makes an empty sum.
    pub(super) fn new(grid: Grid) -> Self {
        // How many windows of 1, 2, 4, ... bins there are, down to a single one of all bins.
        let counts = std::iter::successors(Some(grid.bins), |count| (*count > 1).then(|| count.div_ceil(2)));
        let lower = Lower {
            rises: vec![Vec::new(); grid.bins],
            windows: counts.map(|count| vec![0; count]).collect(),
        };
        Self { lower: Some(lower), ..Self::over_time(grid) }
    }

    /// Makes an empty sum for a line over time. Its bounds are wider than those of [`Sum::new`], and it takes less memory.
    pub(super) fn over_time(grid: Grid) -> Self {
        let zeros = || vec![0; grid.bins];
        let bins = Bins {
            most: zeros(),
            at_most: zeros(),
            least: zeros(),
            time_sums: zeros(),
            is_known: vec![false; grid.bins],
        };
        Self { grid, bins, ..Self::default() }
    }

    /// Adds a report. `None`: its quantity is unknown.
    pub(super) fn add(&mut self, quantity: Option<&Quantity>) {
        let Some(quantity) = quantity else {
            self.unknown += 1;
            self.is_unbounded = true;
            return;
        };
        let (max, at_most) = (quantity.max, quantity.at_most.unwrap_or(quantity.max));
        self.known += 1;
        self.is_unbounded |= quantity.at_most.is_none();
        self.largest = self.largest.max(max.into());
        if quantity.is_apart {
            self.apart.most += u128::from(max);
            self.apart.at_most += u128::from(at_most);
            return;
        }
        let shape = Shape::new(quantity, self.grid);
        // Whether the report can have had more than any of its points has, at any time.
        let can_be_above_points = !is_about(at_most, max);
        for (at, bin) in (shape.first..=shape.last).enumerate() {
            self.bins.most[bin] += u128::from(shape.high[at]);
            self.bins.at_most[bin] += u128::from(if can_be_above_points { at_most } else { shape.high[at] });
            self.bins.least[bin] += u128::from(shape.low[at]);
        }
        for point in quantity.points.iter() {
            self.add_over_time(point);
            if let Some(lower) = &mut self.lower {
                lower.add(point, &shape, self.grid);
            }
        }
    }

    /// Adds a point to the means of the bins that it touches. Its time beyond the end of the grid does not count, although the
    /// last bin can end later.
    fn add_over_time(&mut self, point: &QuantityPoint) {
        let Some(mean) = point.mean else { return };
        let (first, last) = self.grid.touched(point.start_us, point.end_us);
        for bin in first..=last {
            let inside_us =
                overlap_us(self.grid.window(bin, 1), (point.start_us, point.end_us.min(self.grid.end_us)));
            self.bins.time_sums[bin] += u128::from(mean) * u128::from(inside_us);
            self.bins.is_known[bin] = true;
        }
    }

    /// Notes the largest value of a report that is not added to the sum. It can raise the lower bound; 0 changes nothing.
    pub(super) fn raise_largest(&mut self, value: u64) {
        self.largest = self.largest.max(value.into());
    }

    /// Notes what another report saw of something that is in the sum already, such as a machine's memory. Where the report saw more
    /// than all before (`seen`), the upper bound is raised.
    pub(super) fn raise_where_above(&mut self, quantity: &Quantity, seen: &mut Seen) {
        self.raise_largest(quantity.max);
        let raised = seen.raise(quantity, self.grid);
        for (bin, more) in raised.bins {
            self.bins.most[bin] += u128::from(more);
            self.bins.at_most[bin] += u128::from(more);
        }
        self.apart.most += u128::from(raised.apart);
        self.apart.at_most += u128::from(raised.apart);
    }

    /// Notes that something in the sum can have been larger than in its reports, so there is no upper bound.
    pub(super) fn drop_upper_bound(&mut self) {
        self.is_unbounded = true;
    }

    /// Whether the quantity is known of all reports.
    pub(super) fn is_complete(&self) -> bool {
        self.unknown == 0
    }

    /// The lower bound of the largest sum in the unit of the reports. `None`: the quantity is known of no report.
    pub(super) fn at_least(&self, scale: Scale) -> Option<f64> {
        self.bounds().at_least.map(|units| scale.value(units))
    }

    /// The lower bound of the largest sum, whole units. `None`: the quantity is unknown of some report, or there is none.
    pub(super) fn at_least_of_all(&self) -> Option<u128> {
        self.bounds().at_least.filter(|_| self.is_complete())
    }

    /// The bounds of the largest sum.
    pub(super) fn bounds(&self) -> Bounds {
        let most = self.bins.at_most.iter().max().copied().unwrap_or(0) + self.apart.at_most;
        let at_least = self.lower_bound();
        // The upper bound is at least the lower one: [`Sum::raise_largest`] raises only that.
        Bounds {
            at_least: (self.known > 0).then_some(at_least),
            at_most: (!self.is_unbounded && self.known > 0).then_some(most.max(at_least)),
        }
    }

    /// The lower bound of the largest sum: the largest of those that the head of this file explains.
    fn lower_bound(&self) -> u128 {
        let of_bins = self.bins.least.iter().copied().fold(self.largest, u128::max);
        let Some(lower) = &self.lower else { return of_bins };
        of_bins.max(self.largest_with_rise(lower)).max(self.largest_mean(lower))
    }

    /// The largest sum of the smallest values, with one report's largest value in the place of its smallest.
    fn largest_with_rise(&self, lower: &Lower) -> u128 {
        let mut largest = 0;
        for (extra_bins, rises) in lower.rises.iter().enumerate() {
            for (first, rise) in rises.iter().enumerate().filter(|(_, rise)| **rise > 0) {
                // A report's point touches the bins from `first` on. Its largest value is in one of them, it is unknown in which. So
                // the smallest of their sums counts.
                let touched = self.bins.least.get(first..=first + extra_bins).unwrap_or_default();
                let least = touched.iter().min().copied().unwrap_or(0);
                largest = largest.max(least + u128::from(*rise));
            }
        }
        largest
    }

    /// The largest mean of the sum over a window of 1, 2, 4, ... bins.
    fn largest_mean(&self, lower: &Lower) -> u128 {
        let means = lower.windows.iter().enumerate().flat_map(|(level, time_sums)| {
            let of_window =
                move |(number, time_sum)| time_sum / u128::from(self.length_us(number, 1 << level));
            time_sums.iter().enumerate().map(of_window)
        });
        means.max().unwrap_or(0)
    }

    /// How much of a window of `bins_per_window` bins is within the time of the reports, microseconds; at least 1, as a divisor.
    fn length_us(&self, number: usize, bins_per_window: usize) -> u64 {
        let end_us = self.grid.end_us.saturating_add(START_ROUNDING_US);
        overlap_us(self.grid.window(number, bins_per_window), (self.grid.start_us, end_us)).max(1)
    }

    /// The sum over time, with `bins_per_point` bins in each point. Points of which nothing is known are `None`.
    pub(super) fn line(&self, bins_per_point: usize) -> SumLine {
        let Bins { most, least, time_sums, is_known, .. } = &self.bins;
        let mut line = SumLine::default();
        for (number, known) in is_known.chunks(bins_per_point).enumerate() {
            let first = number * bins_per_point;
            // The last point can have fewer bins.
            let bins = first..first + known.len();
            let is_known = known.contains(&true);
            let window = self.grid.window(number, bins_per_point);
            let width_us = overlap_us(window, (self.grid.start_us, self.grid.end_us)).max(1);
            let time_sum: u128 = time_sums[bins.clone()].iter().sum();
            line.min.push(least[bins.clone()].iter().min().copied().filter(|_| is_known));
            line.mean.push(is_known.then_some(time_sum / u128::from(width_us)));
            line.max.push(most[bins].iter().max().copied().filter(|_| is_known));
        }
        line
    }
}

impl Lower {
    /// Adds a point of the report that has this shape: by how much it rises, and what it has in each window.
    fn add(&mut self, point: &QuantityPoint, shape: &Shape, grid: Grid) {
        let (first, last) = grid.touched(point.start_us, point.end_us.saturating_add(START_ROUNDING_US));
        if let Some(max) = point.max {
            let rises = &mut self.rises[last - first];
            rises.resize(grid.bins, 0);
            // The largest of what the report counts for in these bins, because it is unknown in which of them it rose.
            let counted = (first..=last).map(|bin| shape.low_in(bin)).max().unwrap_or(0);
            rises[first] = rises[first].max(max.saturating_sub(counted));
        }
        for (level, time_sums) in self.windows.iter_mut().enumerate() {
            add_to_windows(time_sums, point, grid, 1 << level);
        }
    }
}

/// Adds what a point certainly has in each window of `bins_per_window` bins to the window's sum over time. For a point within one
/// window, that is its mean. For others it is the smallest value, because the mean of a part of a point is unknown. A part outside
/// of the grid counts in no window. Points of an agent whose clock is wrong can have such a part.
fn add_to_windows(time_sums: &mut [u128], point: &QuantityPoint, grid: Grid, bins_per_window: usize) {
    let grid_end_us = grid.end_us.saturating_add(START_ROUNDING_US);
    let is_inside = grid.start_us <= point.start_us && point.end_us <= grid_end_us;
    let (start_us, end_us) = (point.start_us.max(grid.start_us), point.end_us.min(grid_end_us));
    if start_us >= end_us {
        return;
    }
    let (first_bin, last_bin) = grid.touched(start_us, end_us.saturating_add(START_ROUNDING_US));
    let (first, last) = (first_bin / bins_per_window, last_bin / bins_per_window);
    let length_us = u64::try_from(end_us - start_us).unwrap_or(0);
    if first == last && is_inside {
        time_sums[first] += u128::from(point.mean.unwrap_or(0)) * u128::from(length_us);
        return;
    }
    for (number, time_sum) in time_sums.iter_mut().enumerate().take(last + 1).skip(first) {
        let window = grid.window(number, bins_per_window);
        let overlap_if_later =
            |by_us: i64| overlap_us(window, (start_us.saturating_add(by_us), end_us.saturating_add(by_us)));
        // The start of a report is rounded down, so the point can have been later by up to the rounding.
        let inside_us = overlap_if_later(0).min(overlap_if_later(START_ROUNDING_US));
        *time_sum += u128::from(point.min.unwrap_or(0)) * u128::from(inside_us);
    }
}
