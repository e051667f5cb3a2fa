//! A quantity over the run in a bounded number of points. When they are too many, neighbours merge. Each point keeps the
//! smallest, the mean and the largest value of its time, so no maximum is lost however long the run is.

use serde::{Deserialize, Serialize};

/// Most points. A picture is narrower, and 2,000 of them take less than 100 kB.
const MOST_POINTS: usize = 2000;

/// A quantity over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    points: Vec<Point>,
    /// Windows that one point holds; the last point may hold fewer.
    windows_per_point: u32,
    /// Windows in the last point.
    windows_in_last: u32,
}

/// The quantity between the end of the point before and its own end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub end_ns: u64,
    /// Smallest value at the ends of its windows.
    pub min: u64,
    /// Largest value at any time.
    pub max: u64,
    /// Integral over time, value x seconds.
    pub integral: f64,
}

impl Default for Series {
    fn default() -> Self {
        Self { points: Vec::new(), windows_per_point: 1, windows_in_last: 0 }
    }
}

impl Point {
    /// Gives the mean over its time. `None`: it has no length.
    pub(crate) fn mean(&self) -> Option<f64> {
        let seconds = self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9;
        (seconds > 0.0).then(|| self.integral / seconds)
    }

    /// Takes in the point after this one.
    fn merge(&mut self, next: &Self) {
        self.end_ns = self.end_ns.max(next.end_ns);
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        self.integral += next.integral;
    }
}

impl Series {
    /// The points, in order of time.
    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Adds a window, with the value at its end.
    pub(crate) fn push(&mut self, start_ns: u64, end_ns: u64, value: u64) {
        let window = Point { start_ns, end_ns, min: value, max: value, integral: 0.0 };
        match self.points.last_mut().filter(|_| self.windows_in_last < self.windows_per_point) {
            Some(last) => {
                last.merge(&window);
                self.windows_in_last += 1;
            }
            None => {
                self.halve_if_full();
                self.points.push(window);
                self.windows_in_last = 1;
            }
        }
    }

    /// Adds the integral over the window that was pushed last, value x seconds.
    pub(crate) fn add_integral(&mut self, integral: f64) {
        if let Some(last) = self.points.last_mut() {
            last.integral += integral;
        }
    }

    /// Notes that the quantity was this large at a time of a window that was pushed, or of one before.
    pub(crate) fn raise(&mut self, at_ns: u64, value: u64) {
        let after = self.points.partition_point(|point| point.end_ns <= at_ns);
        let index = after.min(self.points.len().saturating_sub(1));
        if let Some(point) = self.points.get_mut(index) {
            point.max = point.max.max(value);
        }
    }

    /// Merges neighbours if there are [`MOST_POINTS`].
    fn halve_if_full(&mut self) {
        if self.points.len() < MOST_POINTS {
            return;
        }
        let merged = self.points.chunks(2).filter_map(|pair| {
            let (first, others) = pair.split_first()?;
            let mut point = *first;
            others.iter().for_each(|next| point.merge(next));
            Some(point)
        });
        self.points = merged.collect();
        self.windows_per_point = self.windows_per_point.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random_seed::seeded;

    const S: u64 = 1_000_000_000;

    fn series(values: &[u64]) -> Series {
        let mut series = Series::default();
        for (i, value) in (0..).zip(values) {
            series.push(i * S, (i + 1) * S, *value);
            series.add_integral(*value as f64);
        }
        series
    }

    #[test]
    fn late_maximum_is_in_the_point_of_its_time() {
        let mut series = series(&[5, 5, 5]);
        series.raise(3 * S / 2, 9);
        series.raise(0, 7);
        series.raise(99 * S, 8);
        assert_eq!(series.points().iter().map(|point| point.max).collect::<Vec<_>>(), [7, 9, 8]);
        assert_eq!(series.points()[1].min, 5);
        Series::default().raise(S, 1);
    }

    // Requirement: RAM-12
    #[test]
    fn long_run_has_few_points_and_keeps_its_maximum() {
        let mut values = vec![10; 100_000];
        values[54_321] = 1_000_000;
        let series = series(&values);
        let points = series.points();
        assert!((MOST_POINTS / 2..=MOST_POINTS).contains(&points.len()), "{}", points.len());
        let peak = points.iter().max_by_key(|point| point.max).unwrap();
        assert_eq!((peak.min, peak.max), (10, 1_000_000));
        assert!((peak.start_ns..=peak.end_ns).contains(&(54_321 * S)));
        // Of equal length, so that no part of the run is coarser than another.
        let lengths = points[..points.len() - 1].iter().map(|point| point.end_ns - point.start_ns);
        assert_eq!(lengths.clone().min(), lengths.max());
    }

    // Requirement: RAM-12
    #[test]
    fn restored_series_goes_on_as_before() {
        let before = series(&vec![3; MOST_POINTS * 3]);
        let bytes = postcard::to_stdvec(&before).unwrap();
        let mut after: Series = postcard::from_bytes(&bytes).unwrap();
        let mut before = before;
        for series in [&mut before, &mut after] {
            for i in 6000..20_000 {
                series.push(i * S, (i + 1) * S, i);
            }
        }
        assert_eq!(before, after);
    }

    proptest! {
        #![proptest_config(seeded())]

        // Requirement: RAM-12
        #[test]
        fn merging_keeps_extremes_and_integral(values in prop::collection::vec(0u64..1000, 1..9000)) {
            let series = series(&values);
            let points = series.points();
            prop_assert!(points.len() <= MOST_POINTS);
            prop_assert_eq!(points.iter().map(|point| point.max).max(), values.iter().copied().max());
            prop_assert_eq!(points.iter().map(|point| point.min).min(), values.iter().copied().min());
            let integral: f64 = points.iter().map(|point| point.integral).sum();
            prop_assert_eq!(integral, values.iter().sum::<u64>() as f64);
            prop_assert_eq!((points[0].start_ns, points[points.len() - 1].end_ns), (0, values.len() as u64 * S));
            for pair in points.windows(2) {
                prop_assert_eq!(pair[0].end_ns, pair[1].start_ns);
            }
        }
    }
}
