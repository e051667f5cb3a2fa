//! The time axis of the run: a bounded number of points, each a stretch of time. When they are too many, neighbours join in
//! pairs, so no part of the run is coarser than another.

use serde::{Deserialize, Serialize};

/// Maximum number of points: as many as a picture can show.
pub(crate) const MOST_POINTS: usize = 500;

/// A stretch of time: that of a sample, or of several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub end_ns: u64,
}

impl Stretch {
    /// Its length, seconds.
    pub(crate) fn length_s(self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }
}

/// Where a sample is on the time axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct AxisPosition {
    /// The index of its point.
    pub point: usize,
    /// The length of the point without the sample, seconds.
    pub point_length_s: f64,
    /// The length of the sample, seconds.
    pub sample_length_s: f64,
}

/// The part of a stretch that lies in one point of the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PartOfPoint {
    /// The index of the point.
    pub point: usize,
    /// How much of the stretch is in the point, seconds; more than 0.
    pub inside_s: f64,
    /// How long the point is, seconds.
    pub length_s: f64,
}

/// The time axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Axis {
    /// In order of time.
    pub points: Vec<Stretch>,
    /// Samples that one point holds; the last point may hold fewer.
    samples_per_point: u32,
    /// Samples in the last point.
    samples_in_last: u32,
}

impl Default for Axis {
    fn default() -> Self {
        Self { points: Vec::new(), samples_per_point: 1, samples_in_last: 0 }
    }
}

impl Axis {
    /// Joins the points in pairs if the next sample needs a new point and there are [`MOST_POINTS`]. Returns the lengths that
    /// the points had, seconds: the caller must join the entries of all tracks alike. `None`: nothing was joined.
    pub(super) fn make_room(&mut self) -> Option<Vec<f64>> {
        if self.samples_in_last < self.samples_per_point || self.points.len() < MOST_POINTS {
            return None;
        }
        let lengths_s = self.points.iter().map(|point| point.length_s()).collect();
        let join = |pair: &[Stretch]| {
            Some(Stretch { start_ns: pair.first()?.start_ns, end_ns: pair.last()?.end_ns })
        };
        self.points = self.points.chunks(2).filter_map(join).collect();
        self.samples_per_point = self.samples_per_point.saturating_mul(2);
        // The next sample begins a point. The last point is full, as [`MOST_POINTS`] is even.
        self.samples_in_last = self.samples_per_point;
        Some(lengths_s)
    }

    /// Adds the time of a sample, to the last point or to a new one. Returns where the sample is on the axis, with the length that the
    /// point had before; 0: it is a new one.
    pub(super) fn push(&mut self, sample: Stretch) -> AxisPosition {
        let length_before_s = match self.points.last_mut() {
            Some(last) if self.samples_in_last < self.samples_per_point => {
                let before_s = last.length_s();
                last.end_ns = last.end_ns.max(sample.end_ns);
                self.samples_in_last += 1;
                before_s
            }
            _ => {
                self.points.push(sample);
                self.samples_in_last = 1;
                0.0
            }
        };
        let point = self.points.len() - 1;
        AxisPosition { point, point_length_s: length_before_s, sample_length_s: sample.length_s() }
    }

    /// Divides a stretch of time among the points. Time outside of all points is left out.
    pub(super) fn parts(&self, time: Stretch) -> Vec<PartOfPoint> {
        // A stretch that begins where a point ends is in the next one.
        let Some(first) = self.point_at(time.start_ns.saturating_add(1)) else { return Vec::new() };
        let points = self.points.iter().enumerate().skip(first);
        let points = points.take_while(|(_, stretch)| stretch.start_ns < time.end_ns);
        let part = |(point, stretch): (usize, &Stretch)| {
            let (start_ns, end_ns) = (stretch.start_ns.max(time.start_ns), stretch.end_ns.min(time.end_ns));
            let inside_s = Stretch { start_ns, end_ns }.length_s();
            (inside_s > 0.0).then(|| PartOfPoint { point, inside_s, length_s: stretch.length_s() })
        };
        points.filter_map(part).collect()
    }

    /// The index of the point of this time, CLOCK_MONOTONIC nanoseconds. The end of a point is part of it. A time after the
    /// last point belongs to the last one. `None`: there is no point.
    pub(super) fn point_at(&self, at_ns: u64) -> Option<usize> {
        let last = self.points.len().checked_sub(1)?;
        let ended_before = self.points.partition_point(|point| point.end_ns < at_ns);
        Some(ended_before.min(last))
    }
}
