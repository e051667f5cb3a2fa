//! The run over time as `gpu-track report --every` shows it: points with a column for each quantity, whatever file they came
//! from. [`read`] makes the points, [`forms`] writes them.

mod forms;
mod read;

pub use forms::{Statistics, csv, json, statistics, text};
pub use read::{
    Detail, Fixed, MOST_CELLS, Moment, Recording, clock_of_report, from_csv, from_lines, from_report,
    from_table,
};

pub(crate) use crate::model::joining::Joining;

/// What the name of a metric's column begins with.
pub(crate) const METRIC: &str = "metric_";

/// Relates the times of a run's points to the clock of the day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// Time 0 of the points, seconds since the epoch.
    pub(crate) zero_s: f64,
    /// How much before time 0 the run can have begun, seconds. What happened in that time belongs to the first point.
    pub(crate) earlier_s: f64,
}

/// A quantity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    /// Its name, with the unit.
    pub(crate) name: String,
    /// How the values of several points become one.
    pub(crate) joining: Joining,
}

/// A stretch of the run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Where it begins, seconds after the start.
    pub(crate) start_s: f64,
    /// Where it ends, seconds after the start.
    pub(crate) end_s: f64,
    /// A value for each column. `None`: it is not known.
    pub(crate) values: Vec<Option<f64>>,
}

/// The run over time. Its points follow each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OverTime {
    pub(crate) columns: Vec<Column>,
    pub(crate) points: Vec<Point>,
}

impl OverTime {
    /// Whether there is no point.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The begin and the end of each point, seconds after the start.
    pub fn times(&self) -> impl ExactSizeIterator<Item = (f64, f64)> + DoubleEndedIterator {
        self.points.iter().map(|point| (point.start_s, point.end_s))
    }

    /// The value of a column at a point. `None`: it is not known, or there is no such column or point.
    pub fn value(&self, point: usize, column: &str) -> Option<f64> {
        let at = self.columns.iter().position(|known| known.name == column)?;
        self.points.get(point)?.values[at]
    }

    /// The length of its longest point, seconds.
    pub fn longest_s(&self) -> f64 {
        self.points.iter().map(Point::length_s).fold(0.0, f64::max)
    }

    /// Joins the points that end in the same interval of `every_s` seconds, the values of each column as its `joining` says. A
    /// point that is longer than an interval is not divided.
    #[must_use]
    pub fn every(self, every_s: f64) -> Self {
        let Self { columns, points } = self;
        // The number of each interval in which a point ends, with those points.
        let mut joined: Vec<(u64, Vec<Point>)> = Vec::new();
        for point in points {
            // A point that ends where an interval ends belongs to that interval. A point at time 0 belongs to the first.
            let interval = (point.end_s / every_s).ceil().max(1.0) as u64;
            match joined.last_mut() {
                Some((last, points)) if *last == interval => points.push(point),
                _ => joined.push((interval, vec![point])),
            }
        }
        let points = joined.iter().filter_map(|(_, points)| join(&columns, points)).collect();
        Self { columns, points }
    }
}

impl Point {
    fn length_s(&self) -> f64 {
        (self.end_s - self.start_s).max(0.0)
    }
}

/// Joins points that follow one another to one. `None`: there are none.
fn join(columns: &[Column], points: &[Point]) -> Option<Point> {
    let (first, last) = (points.first()?, points.last()?);
    let value = |(at, column): (usize, &Column)| match column.joining {
        Joining::Largest => points.iter().filter_map(|point| point.values[at]).reduce(f64::max),
        Joining::Mean => mean(points, at),
        Joining::Last => points.iter().rev().find_map(|point| point.values[at]),
    };
    let values = columns.iter().enumerate().map(value).collect();
    Some(Point { start_s: first.start_s, end_s: last.end_s, values })
}

/// The mean of a column over the times of the points in which it is known. `None`: it is known in none.
fn mean(points: &[Point], column: usize) -> Option<f64> {
    let known = || points.iter().filter_map(|point| Some((point.length_s(), point.values[column]?)));
    let length_s: f64 = known().map(|(length_s, _)| length_s).sum();
    if length_s > 0.0 {
        return Some(known().map(|(length_s, value)| length_s * value).sum::<f64>() / length_s);
    }
    // All known points are moments without a length, so none has a weight. The largest value stands for them.
    known().map(|(_, value)| value).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over_time(points: &[(f64, f64, Option<f64>)]) -> OverTime {
        let column = |name: &str, joining| Column { name: name.into(), joining };
        let point = |&(start_s, end_s, value): &(f64, f64, Option<f64>)| Point {
            start_s,
            end_s,
            values: vec![value, value],
        };
        let columns = vec![column("a_bytes", Joining::Largest), column("b_percent", Joining::Mean)];
        OverTime { columns, points: points.iter().map(point).collect() }
    }

    // Requirement: TIME-14
    #[test]
    fn points_of_an_interval_are_joined_by_the_rule_of_each_column() {
        let all = over_time(&[
            (0.0, 0.5, Some(4.0)),
            (0.5, 0.75, Some(10.0)),
            (0.75, 1.0, None),
            (1.0, 1.5, Some(1.0)),
            (1.5, 4.0, Some(2.0)),
        ]);
        let joined = all.every(1.0);
        let told: Vec<_> = joined.points.iter().map(|point| (point.start_s, point.end_s)).collect();
        assert_eq!(told, [(0.0, 1.0), (1.0, 1.5), (1.5, 4.0)]);
        assert_eq!(joined.points[0].values, [Some(10.0), Some((0.5 * 4.0 + 0.25 * 10.0) / 0.75)]);
        assert_eq!(joined.longest_s(), 2.5);
    }

    #[test]
    fn what_is_known_in_no_point_stays_unknown() {
        let joined = over_time(&[(0.0, 0.1, None), (0.1, 0.2, None)]).every(1.0);
        assert_eq!(joined.points[0].values, [None, None]);
        let moment = over_time(&[(0.0, 0.0, Some(3.0))]).every(1.0);
        assert_eq!(moment.points[0].values, [Some(3.0), Some(3.0)]);
    }
}
