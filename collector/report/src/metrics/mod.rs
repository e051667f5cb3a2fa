//! Metrics that a program logs, such as its loss: what the values of each were, and their last value at each point of a run.
//!
//! A metric belongs to a process. If several processes log a metric of the same name, each has a row, a column and a chart of
//! its own.

mod forms;
mod points;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sub_track::moments::Moments;

pub use forms::{csv, json, text};
pub(crate) use forms::{is_bytes, readable};
pub use points::MetricPoints;
pub(crate) use points::MetricTrack;

/// A value that a program logged.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricValue {
    /// The process: what getpid(2) returns in it.
    pub process_id: i64,
    /// The name of the metric.
    pub name: String,
    /// When, seconds since the epoch.
    pub timestamp_s: f64,
    /// The value, which can be NaN or infinite.
    pub value: f64,
}

/// What the values of a metric were.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricRow {
    /// Its name.
    pub name: String,
    /// The process that logged it.
    pub process_id: i64,
    /// How many values there are.
    pub count: u64,
    /// How many of them are NaN or infinite.
    pub not_finite: u64,
    /// The latest value; null: it is NaN or infinite.
    pub last: Option<f64>,
    /// The smallest of the finite ones; null: there is none.
    pub min: Option<f64>,
    /// The largest of the finite ones; null as `min`.
    pub max: Option<f64>,
    /// The mean of the finite ones; null as `min`, or their sum is beyond what a number can hold.
    pub mean: Option<f64>,
    /// When the first value was logged, seconds since the epoch.
    pub first_timestamp: f64,
    /// When the latest value was logged, seconds since the epoch.
    pub last_timestamp: f64,
}

/// What is known of the values of a metric so far.
#[derive(Debug, Clone, Copy, Default)]
struct ValuesSoFar {
    count: u64,
    finite: Moments,
    not_finite: u64,
    first_s: f64,
    last_s: f64,
    last: f64,
}

impl ValuesSoFar {
    /// Adds the next value of the file, logged at `timestamp_s`, seconds since the epoch. Values need not be in the order of their
    /// times.
    fn add(&mut self, timestamp_s: f64, value: f64) {
        if self.count == 0 {
            (self.first_s, self.last_s) = (timestamp_s, timestamp_s);
        }
        self.count += 1;
        match value.is_finite() {
            true => self.finite.add(value),
            false => self.not_finite += 1,
        }
        self.first_s = self.first_s.min(timestamp_s);
        // Of two values of one time, the one further down in the file is the latest.
        if timestamp_s >= self.last_s {
            (self.last_s, self.last) = (timestamp_s, value);
        }
    }
}

/// What the values of all metrics of a program were.
#[derive(Debug, Clone, Default)]
pub struct MetricSummary {
    /// By name and process.
    metrics: BTreeMap<(String, i64), ValuesSoFar>,
}

impl MetricSummary {
    /// Adds a value. The values of a file must come in its order.
    pub fn add(&mut self, value: MetricValue) {
        let MetricValue { process_id, name, timestamp_s, value } = value;
        self.metrics.entry((name, process_id)).or_default().add(timestamp_s, value);
    }

    /// A row for each metric of each process, in the order of names.
    pub fn rows(&self) -> Vec<MetricRow> {
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let row = |((name, process_id), values): (&(String, i64), &ValuesSoFar)| MetricRow {
            name: name.clone(),
            process_id: *process_id,
            count: values.count,
            not_finite: values.not_finite,
            last: finite(Some(values.last)),
            min: values.finite.min(),
            max: values.finite.max(),
            mean: finite(values.finite.mean()),
            first_timestamp: values.first_s,
            last_timestamp: values.last_s,
        };
        self.metrics.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: PY-25
    #[test]
    fn figures_of_a_metric_are_those_of_its_finite_values() {
        let mut summary = MetricSummary::default();
        let mut add = |process_id, name: &str, timestamp_s, value| {
            summary.add(MetricValue { process_id, name: name.into(), timestamp_s, value });
        };
        add(8, "loss", 3.0, 0.25);
        add(7, "loss", 2.0, 4.0);
        add(7, "loss", 1.0, -2.0);
        add(7, "loss", 2.0, 1.0);
        add(7, "diverged", 1.0, 5.0);
        add(7, "diverged", 2.0, f64::NAN);
        add(7, "never", 1.0, f64::INFINITY);
        add(7, "large", 1.0, f64::MAX);
        add(7, "large", 2.0, f64::MAX);
        let rows = summary.rows();
        let found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.process_id)).collect();
        assert_eq!(found, [("diverged", 7), ("large", 7), ("loss", 7), ("loss", 8), ("never", 7)]);
        let figures = |at: usize| {
            let row: &MetricRow = &rows[at];
            (row.count, row.not_finite, [row.last, row.min, row.max, row.mean])
        };
        assert_eq!(figures(0), (2, 1, [None, Some(5.0), Some(5.0), Some(5.0)]));
        assert_eq!(figures(1), (2, 0, [Some(f64::MAX), Some(f64::MAX), Some(f64::MAX), None]));
        assert_eq!(
            figures(2),
            (3, 0, [Some(1.0), Some(-2.0), Some(4.0), Some(1.0)]),
            "by time, then by line"
        );
        assert_eq!(figures(4), (1, 1, [None; 4]));
        assert_eq!((rows[2].first_timestamp, rows[2].last_timestamp), (1.0, 2.0));
    }
}
