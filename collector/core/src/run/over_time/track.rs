//! One quantity over the run, with at most one entry for each point of the time axis.

use serde::{Deserialize, Serialize};

use super::axis::AxisPosition;

/// What a quantity was in a stretch of time. The seven digits of `f32` are more than a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Values {
    /// Mean over the time.
    pub mean: f32,
    /// `None`: only the mean is known.
    pub extremes: Option<Extremes>,
}

/// The smallest and the largest value of a quantity in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Extremes {
    /// The smallest of the values at samples.
    pub min: f32,
    /// The largest at any time.
    pub max: f32,
}

impl Extremes {
    /// The extremes of both stretches together.
    fn with(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl Values {
    /// A quantity of which only the mean is known.
    pub(super) fn of_mean(mean: f64) -> Self {
        Self { mean: mean as f32, extremes: None }
    }

    /// A quantity with its mean, its value at the end of the time, which counts as the smallest, and its largest value.
    pub(super) fn new(mean: f64, end: f64, max: f64) -> Self {
        Self { extremes: Some(Extremes { min: end as f32, max: max as f32 }), ..Self::of_mean(mean) }
    }

    /// A quantity of which one value is known for all of the time.
    pub(super) fn single(value: f64) -> Self {
        Self::new(value, value, value)
    }

    /// Whether there was none of the quantity.
    fn is_zero(self) -> bool {
        self.mean == 0.0 && self.extremes.is_none_or(|extremes| extremes.max == 0.0)
    }

    /// Joins this stretch with the next one. The means are weighted by the lengths of the stretches, seconds. A stretch without
    /// length adds only its extremes.
    pub(crate) fn join(self, length_s: f64, next: Self, next_length_s: f64) -> Self {
        let both_s = length_s + next_length_s;
        let sum = f64::from(self.mean) * length_s + f64::from(next.mean) * next_length_s;
        let mean = if both_s > 0.0 { (sum / both_s) as f32 } else { next.mean };
        let extremes = match (self.extremes, next.extremes) {
            (Some(before), Some(after)) => Some(before.with(after)),
            (before, after) => before.or(after),
        };
        Self { mean, extremes }
    }
}

/// A quantity over the run. The entries go from the first point that has one to the last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Track {
    /// What the quantity is in a point without an entry. `None`: not known.
    absent: Option<Values>,
    /// The point of the first entry.
    first: usize,
    /// What the quantity is in each point from `first` on. `None`: not known.
    entries: Vec<Option<Values>>,
}

impl Track {
    /// Makes a track in which points without an entry mean 0.
    pub(super) fn zero() -> Self {
        Self { absent: Some(Values::single(0.0)), ..Self::default() }
    }

    /// Makes a track that has only means, and in which points without an entry mean 0.
    pub(super) fn zero_mean() -> Self {
        Self { absent: Some(Values::of_mean(0.0)), ..Self::default() }
    }

    /// Whether no point has an entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is known of a point. `None`: nothing.
    pub(crate) fn get(&self, point: usize) -> Option<Values> {
        let entry = point.checked_sub(self.first).and_then(|at| self.entries.get(at).copied());
        entry.unwrap_or(self.absent)
    }

    /// The values of these points together, each with its length in seconds. Points of which nothing is known are left out.
    /// `None`: nothing is known of any. In a track whose missing entries mean 0, an unknown point had some of the quantity. So if
    /// all known points had none, the result is `None`, too.
    pub(crate) fn joined(&self, points: impl Iterator<Item = (usize, f64)>) -> Option<Values> {
        let mut is_any_unknown = false;
        // The length of the known points so far, seconds, and their values.
        let mut known: Option<(f64, Values)> = None;
        for (point, length_s) in points {
            let Some(next) = self.get(point) else {
                is_any_unknown = true;
                continue;
            };
            known = match known {
                Some((before_s, before)) => {
                    Some((before_s + length_s, before.join(before_s, next, length_s)))
                }
                None => Some((length_s, next)),
            };
        }
        let (_, values) = known?;
        let hides_some = is_any_unknown && self.absent.is_some() && values.is_zero();
        (!hides_some).then_some(values)
    }

    /// The entry of a point. If there is none, makes it, and fills the entries between it and the others with `absent`.
    fn entry(&mut self, point: usize) -> &mut Option<Values> {
        if self.entries.is_empty() {
            self.first = point;
        }
        if point < self.first {
            self.entries.splice(..0, std::iter::repeat_n(self.absent, self.first - point));
            self.first = point;
        }
        let at = point - self.first;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, self.absent);
        }
        &mut self.entries[at]
    }

    /// Adds a sample to the last point of the axis: joins its values to those that the point has so far. `None`: if `absent` is 0, the
    /// sample has none of the quantity, and the 0 is joined to the point. A point without an entry means 0 anyway, and an unknown
    /// point stays unknown. If `absent` is `None`, the sample does not know the quantity, and nothing changes.
    pub(super) fn put(&mut self, at: AxisPosition, values: Option<Values>) {
        let before = self.get(at.point).filter(|_| at.point_length_s > 0.0);
        let has_entry = at.point < self.first + self.entries.len();
        let is_unknown = at.point_length_s > 0.0 && before.is_none();
        let absent = || self.absent.filter(|_| has_entry && !is_unknown);
        if let Some(values) = values.or_else(absent) {
            let join = |before: Values| before.join(at.point_length_s, values, at.sample_length_s);
            *self.entry(at.point) = Some(before.map_or(values, join));
        }
    }

    /// Adds a sample in whose time there was some of the quantity, but an unknown amount. What is known of the point, which is
    /// `point_s` seconds long so far, stays, unless that is 0: then the point becomes unknown.
    pub(super) fn put_unknown(&mut self, point: usize, point_s: f64) {
        let is_known = self.get(point).is_some_and(|values| !values.is_zero());
        if point_s <= 0.0 || !is_known {
            *self.entry(point) = None;
        }
    }

    /// Adds to the mean of a point. A point of which nothing was known has this mean then.
    pub(super) fn add_mean(&mut self, point: usize, mean: f64) {
        let known = self.get(point).unwrap_or(Values::of_mean(0.0));
        *self.entry(point) = Some(Values { mean: (f64::from(known.mean) + mean) as f32, ..known });
    }

    /// Notes that a quantity had this rate for a part of a point's time, from 0 to 1. The mean grows by that part of the rate,
    /// and the extremes take in the rate.
    pub(super) fn add_rate(&mut self, point: usize, part: f64, rate: f64) {
        self.add_mean(point, part * rate);
        if let Some(values) = self.entry(point) {
            let of_rate = Extremes { min: rate as f32, max: rate as f32 };
            values.extremes = Some(values.extremes.map_or(of_rate, |known| known.with(of_rate)));
        }
    }

    /// Notes that the quantity was this large within the time of a point. A point of which nothing is known stays unknown.
    pub(super) fn raise(&mut self, point: usize, to: f64) {
        let to = to as f32;
        if let Some(values) = self.entry(point) {
            let known = values.extremes.unwrap_or(Extremes { min: to, max: to });
            values.extremes = Some(Extremes { max: known.max.max(to), ..known });
        }
    }

    /// Joins the entries of points 0 and 1, 2 and 3, and so on, as [`super::axis::Axis::make_room`] has joined the points.
    /// `lengths_s`: the length that each point had, seconds.
    pub(super) fn halve(&mut self, lengths_s: &[f64]) {
        if self.entries.is_empty() {
            return;
        }
        // The new points that have entries: the first, and the one after the last.
        let (begin, end) = (self.first / 2, (self.first + self.entries.len()).div_ceil(2));
        let join = |pair: usize| {
            // If the number of points is odd, the last one has no partner.
            let old_points = 2 * pair..(2 * pair + 2).min(lengths_s.len());
            self.joined(old_points.map(|point| (point, lengths_s[point])))
        };
        let entries = (begin..end).map(join).collect();
        (self.first, self.entries) = (begin, entries);
    }

    /// Adds the means of another track. The extremes of a sum are not known, so those of this track stay. Where one track is unknown
    /// at a point, the other one counts alone; but if that is 0, the point becomes unknown.
    pub(crate) fn add_means_of(&mut self, other: &Self) {
        for point in other.first..other.first + other.entries.len() {
            match other.get(point) {
                Some(values) if values.is_zero() => {}
                Some(values) => self.add_mean(point, values.mean.into()),
                None if self.get(point).is_some_and(Values::is_zero) => *self.entry(point) = None,
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(point: usize, point_length_s: f64, sample_length_s: f64) -> AxisPosition {
        AxisPosition { point, point_length_s, sample_length_s }
    }

    #[test]
    fn point_without_an_entry_is_unknown_or_zero() {
        let (mut unknown, mut zero) = (Track::default(), Track::zero());
        for track in [&mut unknown, &mut zero] {
            track.put(at(2, 0.0, 1.0), Some(Values::single(8.0)));
            // The second half of the point has no value.
            track.put(at(2, 1.0, 1.0), None);
            track.put(at(3, 0.0, 1.0), None);
        }
        let zero_point = Values::single(0.0);
        assert_eq!((unknown.get(0), unknown.get(2), unknown.get(3)), (None, Some(Values::single(8.0)), None));
        assert_eq!((zero.get(0), zero.get(3)), (Some(zero_point), Some(zero_point)));
        assert_eq!(zero.get(2), Some(Values::new(4.0, 0.0, 8.0)));
    }

    #[test]
    fn point_of_which_no_sample_knows_the_quantity_is_unknown_and_not_zero() {
        let mut track = Track::zero();
        // In point 0 none; in 1 some that no sample saw, and then none; in 2 first known, then not.
        track.put_unknown(1, 0.0);
        track.put(at(1, 1.0, 1.0), None);
        track.put(at(2, 0.0, 1.0), Some(Values::single(8.0)));
        track.put_unknown(2, 1.0);
        // In point 3 first none, then some; in 4 first unknown, then known.
        track.put(at(3, 0.0, 1.0), None);
        track.put_unknown(3, 1.0);
        track.put_unknown(4, 0.0);
        track.put(at(4, 1.0, 1.0), Some(Values::single(5.0)));
        let zero = Some(Values::single(0.0));
        let known = |bytes: f64| Some(Values::single(bytes));
        let values = |track: &Track| (0..6).map(|at| track.get(at)).collect::<Vec<_>>();
        assert_eq!(values(&track), [zero, None, known(8.0), None, known(5.0), zero]);
        let mut sum = Track::zero_mean();
        sum.add_means_of(&track);
        let mut other = Track::zero();
        other.put(at(1, 0.0, 1.0), known(3.0));
        let mean = |mean: f64| Some(Values::of_mean(mean));
        assert_eq!(values(&sum), [mean(0.0), None, mean(8.0), None, mean(5.0), mean(0.0)]);
        sum.add_means_of(&other);
        assert_eq!(sum.get(1), mean(3.0));
        assert_eq!(track.joined([(0, 1.0), (1, 1.0)].into_iter()), None);
        track.halve(&[1.0; 6]);
        let values = [track.get(0), track.get(1), track.get(2)];
        assert_eq!(values, [None, known(8.0), Some(Values::new(2.5, 0.0, 5.0))]);
    }

    #[test]
    fn halves_weigh_means_by_length() {
        let mut track = Track::default();
        track.put(at(1, 0.0, 3.0), Some(Values::single(9.0)));
        track.put(at(2, 0.0, 1.0), Some(Values::single(1.0)));
        track.put(at(3, 0.0, 3.0), Some(Values::single(5.0)));
        track.halve(&[1.0, 3.0, 1.0, 3.0]);
        assert_eq!(track.get(0), Some(Values::single(9.0)));
        assert_eq!(track.get(1), Some(Values { mean: 4.0, extremes: Some(Extremes { min: 1.0, max: 5.0 }) }));
        assert_eq!(track.get(2), None);
    }

    #[test]
    fn sum_of_tracks_has_their_means_alone() {
        let (mut sum, mut added) = (Track::zero_mean(), Track::zero());
        added.put(at(1, 0.0, 1.0), Some(Values::single(3.0)));
        sum.add_means_of(&added);
        sum.add_means_of(&added);
        assert_eq!((sum.get(0), sum.get(1)), (Some(Values::of_mean(0.0)), Some(Values::of_mean(6.0))));
    }
}
