//! A quantity of one report over wall-clock time, in whole numbers: sums of these do not depend on their order.

use crate::model::report::{Report, Series, Track};

/// Maximum number of points of a series: no version writes more than 300.
const MOST_POINTS: usize = 1000;
/// The largest value of a quantity: more is forged, and would overflow sums of values and time.
const MAX_UNITS: u64 = 1 << 62;
/// The longest run, microseconds: ten years.
const MOST_RUN_US: f64 = 315e12;
/// A clock is ahead or behind by no more than this, seconds: longer than all times that a report can have (1970 to 9999). Times
/// that are corrected by so much still fit an `i64` of microseconds.
pub const MOST_CLOCK_OFFSET_S: f64 = 3.2e11;
/// A point can end this much after the next one begins, seconds: each time is rounded by itself.
const POINT_ROUNDING_S: f64 = 1e-6;
/// The last point can end this much after the run, seconds: the length of a run has only milliseconds.
const LENGTH_ROUNDING_S: f64 = 1e-3;

/// When a report's command ran, microseconds since the epoch by the clock of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Its start.
    pub start_us: i64,
    /// Its end, or how far the report goes.
    pub end_us: i64,
}

/// A stretch of time, and what the quantity was in it. `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuantityPoint {
    /// Its begin, microseconds since the epoch.
    pub start_us: i64,
    /// Its end.
    pub end_us: i64,
    /// The smallest value.
    pub min: Option<u64>,
    /// The mean over its time.
    pub mean: Option<u64>,
    /// The largest value.
    pub max: Option<u64>,
}

/// A quantity of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Quantity {
    /// When the report's command ran.
    pub span: Span,
    /// The quantity over time, without gaps; empty if it is not known over time.
    pub points: Vec<QuantityPoint>,
    /// The largest value that is known. It can be above all points: then its time is unknown.
    pub max: u64,
    /// The largest value that the quantity can have had; `None` is unknown.
    pub at_most: Option<u64>,
    /// The times of this report have nothing to do with those of the others.
    pub is_apart: bool,
}

impl Span {
    /// The part of the span that is in `to`; a moment at the edge of `to`, if there is none.
    pub(super) fn clamped(self, to: Self) -> Self {
        let clamp = |at_us: i64| at_us.clamp(to.start_us, to.end_us.max(to.start_us));
        Self { start_us: clamp(self.start_us), end_us: clamp(self.end_us) }
    }

    /// When the command of a report ran.
    pub(super) fn new(started_us: i64, wall_s: f64) -> Self {
        let wall_us = (wall_s * 1e6).clamp(0.0, MOST_RUN_US) as i64;
        Self { start_us: started_us, end_us: started_us.saturating_add(wall_us) }
    }

    /// Moves the span back by `by_s` seconds, at most [`MOST_CLOCK_OFFSET_S`]. Its start stays in 1970 or later.
    pub(super) fn earlier(self, by_s: f64) -> Self {
        let by_s = by_s.clamp(-MOST_CLOCK_OFFSET_S, MOST_CLOCK_OFFSET_S);
        let by_us = (by_s * 1e6).round() as i64;
        let start_us = self.start_us.saturating_sub(by_us).max(0);
        Self { start_us, end_us: start_us.saturating_add(self.end_us - self.start_us) }
    }

    /// The time from the first start to the last end of the two spans.
    pub(super) fn joined(self, other: Self) -> Self {
        Self { start_us: self.start_us.min(other.start_us), end_us: self.end_us.max(other.end_us) }
    }

    /// Its length, microseconds.
    pub(super) fn length_us(self) -> u64 {
        u64::try_from(self.end_us - self.start_us).unwrap_or(0)
    }
}

/// The time axis of a report's series.
pub(super) struct Axis<'a> {
    /// When the report's command ran.
    pub span: Span,
    /// The times of the report have nothing to do with those of the others.
    pub is_apart: bool,
    series: &'a Series,
    /// The points of the series are in order, within the run and no more than [`MOST_POINTS`], so the series can be used.
    is_sound: bool,
}

/// How a figure of a report becomes a whole number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    /// As it is: bytes, or a number of things.
    Whole,
    /// Percent, as millionths of a percent.
    Percent,
}

impl Scale {
    /// Converts a figure of a report to whole units. A forged one, such as a negative one, is kept within 0 and [`MAX_UNITS`].
    pub(super) fn units(self, value: f64) -> u64 {
        (value * self.factor()).round().clamp(0.0, MAX_UNITS as f64) as u64
    }

    /// Converts whole units back to a figure as a report has it.
    pub(super) fn value(self, units: u128) -> f64 {
        units as f64 / self.factor()
    }

    fn factor(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Percent => 1e6,
        }
    }
}

impl<'a> Axis<'a> {
    /// Makes the axis of a report whose command ran at `span`.
    pub(super) fn new(report: &'a Report, span: Span, is_apart: bool) -> Self {
        let series = &report.series;
        let begin_in_order = series.start_s.windows(2).all(|pair| pair[0] <= pair[1]);
        let mut ends_and_next_starts = series.end_s.iter().zip(series.start_s.iter().skip(1));
        let are_disjoint = ends_and_next_starts.all(|(end_s, next_s)| *end_s <= *next_s + POINT_ROUNDING_S);
        let mut starts_and_ends = series.start_s.iter().zip(&series.end_s);
        let are_within_run = starts_and_ends.all(|(start_s, end_s)| {
            *start_s >= 0.0 && start_s <= end_s && *end_s <= report.wall_s + LENGTH_ROUNDING_S
        });
        let is_sound =
            series.start_s.len() <= MOST_POINTS && begin_in_order && are_disjoint && are_within_run;
        Self { span, is_apart, series, is_sound }
    }

    /// The sum of `tracks` as a quantity of the report. `None`: no value of it is known.
    ///
    /// `exact_max`: the largest value, which the report has apart from its series, such as a peak. No point of the result is above
    /// it. `None`: the largest of the points counts. `at_most`: the largest that the quantity can have been, never below that.
    pub(super) fn quantity(
        &self,
        tracks: &[&Track],
        scale: Scale,
        exact_max: Option<f64>,
        at_most: Option<f64>,
    ) -> Option<Quantity> {
        let points = self.points(tracks, scale);
        let max_of_points = points.iter().filter_map(|point| point.max).max();
        let max = exact_max.map(|max| scale.units(max)).or(max_of_points)?;
        let at_most = at_most.map(|at_most| scale.units(at_most).max(max));
        let points = points.into_iter().map(|point| point.within(max)).collect();
        Some(Quantity { span: self.span, points, max, at_most, is_apart: self.is_apart })
    }

    /// The points of the sum of some tracks, without gaps. Where one track is unknown, the sum is unknown. Empty if there is no
    /// track, or the axis can't be used.
    fn points(&self, tracks: &[&Track], scale: Scale) -> Vec<QuantityPoint> {
        if !self.is_sound || tracks.is_empty() {
            return Vec::new();
        }
        let at_us = |at_s: f64| self.span.start_us.saturating_add((at_s * 1e6).round() as i64);
        // The sum over the tracks of one of their lists, at a point.
        let sum_at = |at: usize, list: fn(&Track) -> &Vec<Option<f64>>| {
            let sum: Option<f64> = tracks.iter().map(|track| list(track).get(at).copied().flatten()).sum();
            sum.map(|sum| scale.units(sum))
        };
        let mut points: Vec<QuantityPoint> = Vec::with_capacity(self.series.start_s.len());
        for (at, (start_s, end_s)) in self.series.start_s.iter().zip(&self.series.end_s).enumerate() {
            let (start_us, end_us) = (at_us(*start_s), at_us(*end_s));
            let before_us = points.last().map_or(start_us, |point| point.end_us);
            if before_us < start_us {
                points.push(QuantityPoint::unknown(before_us, start_us));
            }
            let mean = sum_at(at, |track| &track.mean);
            points.push(QuantityPoint {
                start_us: before_us.max(start_us),
                end_us: end_us.max(before_us),
                // A mean can be known without extremes: a window of CPU time need not end where a point does. Then 0 is the
                // smallest value that is certain, and the mean is the largest that is known.
                min: sum_at(at, |track| &track.min).or(Some(0)),
                mean,
                max: sum_at(at, |track| &track.max).or(mean),
            });
        }
        points
    }
}

impl QuantityPoint {
    /// Makes a stretch of time of which nothing is known.
    fn unknown(start_us: i64, end_us: i64) -> Self {
        Self { start_us, end_us, min: None, mean: None, max: None }
    }

    /// Limits the point's largest value to `max`, the exact largest value of the report, and its other values to its largest. A
    /// series has seven digits, so a largest value that is about `max` becomes `max`.
    fn within(self, max: u64) -> Self {
        let exact = |value: u64| if is_about(value, max) { max } else { value.min(max) };
        let own_max = self.max.map(exact);
        let limited = |value: Option<u64>| value.map(|value| value.min(own_max.unwrap_or(max)));
        Self { min: limited(self.min), mean: limited(self.mean), max: own_max, ..self }
    }
}

/// Whether two values can be the same although they differ, because a series has only seven digits of each.
pub(super) fn is_about(value: u64, other: u64) -> bool {
    value.abs_diff(other) <= other / 1_000_000
}
