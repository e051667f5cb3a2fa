//! The last value of each metric at the end of each point of a run. A point is a span of time; together, they cover the run.
//!
//! Values come in the order of their file, in which those of several processes are mixed. Only the latest of each point is
//! kept, so a long file needs no more memory than a short one.

use std::collections::BTreeMap;

use super::{MetricSummary, MetricValue};
use crate::over_time::{Clock, Column, Joining, METRIC, OverTime};

/// Maximum number of metrics that get a column. A program that gives each step a name of its own would make any number of them.
const MAX_METRICS: usize = 256;
/// A value this long before the start or after the end still counts, seconds: a report has the start of its run to the millisecond.
const ROUNDING_S: f64 = 0.002;

/// A metric of a process over the points of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricTrack {
    /// Its name.
    pub(crate) name: String,
    /// The process, if others have a metric of this name, too.
    pub(crate) process_id: Option<i64>,
    /// The last value at the end of each point. `None`: there was none yet, or it is not finite.
    pub(crate) values: Vec<Option<f64>>,
    /// What all its values within the run were.
    pub(crate) row: super::MetricRow,
}

/// The latest value of a point.
#[derive(Debug, Clone, Copy)]
struct Latest {
    /// Seconds after time 0.
    at_s: f64,
    value: f64,
}

/// Collects values for the points of a run.
#[derive(Debug, Clone)]
pub struct MetricPoints {
    clock: Clock,
    /// The ends of the points, seconds after time 0, in their order.
    ends_s: Vec<f64>,
    /// The latest value in each point, by name and process.
    found: BTreeMap<(String, i64), Vec<Option<Latest>>>,
    summary: MetricSummary,
    /// How many values are before the first point or after the last one.
    outside: u64,
    /// How many values are of metrics beyond [`MAX_METRICS`].
    beyond: u64,
}

impl MetricPoints {
    /// Begins without values, for the points of a run. `clock` says at which time of the day they begin.
    pub fn new(over_time: &OverTime, clock: Clock) -> Self {
        let ends_s = over_time.points.iter().map(|point| point.end_s).collect();
        let (found, summary) = (BTreeMap::new(), MetricSummary::default());
        Self { clock, ends_s, found, summary, outside: 0, beyond: 0 }
    }

    /// Adds the next value of the file to its point and to the summary. A value outside of the run, or of a metric beyond
    /// [`MAX_METRICS`], is only counted for [`MetricPoints::notes`].
    pub fn add(&mut self, value: MetricValue) {
        let at_s = value.timestamp_s - self.clock.zero_s;
        let is_within =
            |last_s: &f64| at_s >= -self.clock.earlier_s - ROUNDING_S && at_s <= last_s + ROUNDING_S;
        if !self.ends_s.last().is_some_and(is_within) {
            self.outside += 1;
            return;
        }
        // The value belongs to the first point that ends then or later. A value shortly after the run belongs to the last point.
        let point = self.ends_s.partition_point(|end_s| *end_s < at_s).min(self.ends_s.len() - 1);
        let key = (value.name.clone(), value.process_id);
        if self.found.len() >= MAX_METRICS && !self.found.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        let slots = self.found.entry(key).or_insert_with(|| vec![None; self.ends_s.len()]);
        if slots[point].is_none_or(|latest| latest.at_s <= at_s) {
            slots[point] = Some(Latest { at_s, value: value.value });
        }
        self.summary.add(value);
    }

    /// Says which values are missing in the points, and why: a line for each reason.
    pub fn notes(&self) -> Vec<String> {
        let values =
            |count: u64| if count == 1 { "1 value is".into() } else { format!("{count} values are") };
        let outside = match (self.outside, self.found.is_empty()) {
            (0, true) => Some("there is no metric".to_owned()),
            (0, false) => None,
            (_, true) => Some("no metric is of the time of this run".to_owned()),
            (count, false) => {
                Some(format!("{} of no point, before the first or after the last one", values(count)))
            }
        };
        let beyond = (self.beyond > 0).then(|| {
            let they_are = if self.beyond == 1 { "it is" } else { "they are" };
            format!("{} left out: {they_are} of more than {MAX_METRICS} metrics", values(self.beyond))
        });
        outside.into_iter().chain(beyond).collect()
    }

    /// The metrics over the points, in the order of names.
    pub(crate) fn tracks(&self) -> Vec<MetricTrack> {
        let rows = self.summary.rows();
        let has_several = |name: &str| rows.iter().filter(|row| row.name == name).count() > 1;
        // Both have the same metrics, sorted by name and process.
        let tracks = self.found.iter().zip(&rows).map(|(((name, process_id), slots), row)| {
            // A point without a value has that of the point before.
            let mut last: Option<f64> = None;
            let values = slots.iter().map(|slot| {
                last = slot.map(|latest| latest.value).or(last);
                last.filter(|value| value.is_finite())
            });
            let (values, process_id) = (values.collect(), has_several(name).then_some(*process_id));
            MetricTrack { name: name.clone(), process_id, values, row: row.clone() }
        });
        tracks.collect()
    }

    /// Adds a column for each metric to the points that this was made for.
    pub fn joined(&self, mut over_time: OverTime) -> OverTime {
        for MetricTrack { name, process_id, values, .. } in self.tracks() {
            let of_process = process_id.map(|pid| format!("pid{pid}_")).unwrap_or_default();
            let name = format!("{METRIC}{of_process}{name}");
            over_time.columns.push(Column { name, joining: Joining::Last });
            for (point, value) in over_time.points.iter_mut().zip(values) {
                point.values.push(value);
            }
        }
        over_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::{Point, csv};

    /// Points that end after 1, 2 and 4 s of a run, which began at 100 s.
    fn points(earlier_s: f64) -> (OverTime, MetricPoints) {
        let point = |(start_s, end_s): (f64, f64)| Point { start_s, end_s, values: vec![Some(end_s * 10.0)] };
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, 4.0)].map(point).into();
        let over_time = OverTime {
            columns: vec![Column { name: "ram_bytes".into(), joining: Joining::Largest }],
            points,
        };
        let metrics = MetricPoints::new(&over_time, Clock { zero_s: 100.0, earlier_s });
        (over_time, metrics)
    }

    fn add(metrics: &mut MetricPoints, process_id: i64, name: &str, timestamp_s: f64, value: f64) {
        metrics.add(MetricValue { process_id, name: name.into(), timestamp_s, value });
    }

    // Requirement: PY-26
    #[test]
    fn point_has_the_last_value_until_its_end() {
        let (over_time, mut metrics) = points(0.5);
        for (at_s, value) in [(101.5, 3.0), (101.25, 9.0), (102.0, 2.0), (104.0, f64::NAN)] {
            add(&mut metrics, 7, "loss", at_s, value);
        }
        add(&mut metrics, 7, "step", 99.75, 1.0);
        assert_eq!(metrics.notes(), [""; 0]);
        let text = csv(&metrics.joined(over_time));
        assert_eq!(
            text,
            "start_s,end_s,ram_bytes,metric_loss,metric_step\n0,1,10,,1\n1,2,20,2,1\n2,4,40,,1\n"
        );
    }

    // Requirement: PY-26
    #[test]
    fn values_of_other_times_are_left_out_and_counted() {
        let (over_time, mut metrics) = points(0.5);
        assert_eq!(metrics.notes(), ["there is no metric"]);
        add(&mut metrics, 6, "loss", 99.0, 8.0);
        assert_eq!(metrics.notes(), ["no metric is of the time of this run"]);
        add(&mut metrics, 7, "loss", 101.0, 1.0);
        assert_eq!(metrics.notes(), ["1 value is of no point, before the first or after the last one"]);
        add(&mut metrics, 6, "loss", 104.5, 8.0);
        assert_eq!(metrics.notes(), ["2 values are of no point, before the first or after the last one"]);
        let joined = metrics.joined(over_time);
        assert_eq!(joined.columns[1].name, "metric_loss", "the other process is none of this run's");
    }

    // Requirement: PY-26
    #[test]
    fn processes_that_tell_one_name_have_a_column_each() {
        let (over_time, mut metrics) = points(0.0);
        add(&mut metrics, 8, "a\"b,c", 100.5, 1.0);
        add(&mut metrics, 7, "a\"b,c", 101.5, 2.0);
        let head = csv(&metrics.joined(over_time)).lines().next().unwrap().to_owned();
        let expected = "start_s,end_s,ram_bytes,\"metric_pid7_a\"\"b,c\",\"metric_pid8_a\"\"b,c\"";
        assert_eq!(head, expected);
    }

    // Requirement: PY-26, PY-76
    #[test]
    fn names_without_end_are_left_out_and_counted() {
        let (over_time, mut metrics) = points(0.0);
        for number in 0..300 {
            add(&mut metrics, 7, &format!("step {number}"), 100.5, 1.0);
            if number == 256 {
                assert_eq!(metrics.notes(), ["1 value is left out: it is of more than 256 metrics"]);
            }
        }
        assert_eq!(metrics.notes(), ["44 values are left out: they are of more than 256 metrics"]);
        assert_eq!(metrics.joined(over_time).columns.len(), 257);
    }
}
