//! The forms in which the run over time is written: CSV, JSON, text, and statistics.

use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::{METRIC, OverTime, Point, mean};
use crate::figures::{UNKNOWN, bytes, short};
use crate::text::table::with_figures;
use crate::text::terminal::right;
use crate::{metrics, quote};

/// Minimum number of columns of a figure in text.
const FIGURE_COLUMNS: usize = 10;
/// Maximum number of columns of a name in text. All lines are as wide as the widest name, and a metric can have any name.
const NAME_COLUMNS: usize = 64;

/// What a quantity was during a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// The quantity, with its unit.
    pub name: String,
    /// Smallest value of a point; null: not known.
    pub min: Option<f64>,
    /// Mean over time; null as `min`.
    pub mean: Option<f64>,
    /// Largest value of a point; null as `min`.
    pub max: Option<f64>,
}

/// The statistics of each column.
pub fn statistics(over_time: &OverTime) -> Vec<Statistics> {
    let OverTime { columns, points } = over_time;
    let known = |at: usize| points.iter().filter_map(move |point: &Point| point.values[at]);
    let of_column = |(at, column): (usize, &super::Column)| Statistics {
        name: column.name.clone(),
        min: known(at).reduce(f64::min),
        mean: mean(points, at),
        max: known(at).reduce(f64::max),
    };
    columns.iter().enumerate().map(of_column).collect()
}

/// Writes the points as CSV, with the names in the first line. What is not known is empty.
pub fn csv(over_time: &OverTime) -> String {
    // Only a name that would break its cell or line is quoted.
    let name = |name: &str| match name.contains(['"', ',']) || quote::escape(name) != name {
        true => quote::csv_cell(name),
        false => name.to_owned(),
    };
    let names = over_time.columns.iter().map(|column| format!(",{}", name(&column.name)));
    let mut text = format!("start_s,end_s{}\n", names.collect::<String>());
    for point in &over_time.points {
        let cell = |value: &Option<f64>| value.map_or(",".to_owned(), |value| format!(",{value}"));
        let cells: String = point.values.iter().map(cell).collect();
        text += &format!("{},{}{cells}\n", point.start_s, point.end_s);
    }
    text
}

/// Writes the points and the statistics as JSON.
pub fn json(over_time: &OverTime) -> String {
    let number = |value: f64| Number::from_f64(value).map_or(Value::Null, Value::Number);
    let point = |point: &Point| {
        let times = [("start_s", point.start_s), ("end_s", point.end_s)];
        let mut keys = Map::new();
        keys.extend(times.map(|(name, s)| (name.to_owned(), number(s))));
        let values = over_time.columns.iter().zip(&point.values);
        keys.extend(values.map(|(column, value)| (column.name.clone(), value.map_or(Value::Null, number))));
        Value::Object(keys)
    };
    let points: Vec<Value> = over_time.points.iter().map(point).collect();
    let all = serde_json::json!({ "points": points, "statistics": statistics(over_time) });
    quote::json_pretty(&all)
}

/// Writes the statistics as text: a line for each column.
pub fn text(over_time: &OverTime) -> String {
    let last_s = over_time.points.last().map_or(0.0, |point| point.end_s);
    let statistics = statistics(over_time);
    let count = over_time.points.len();
    let title = format!("{count} point{} in {} s", if count == 1 { "" } else { "s" }, short(last_s));
    let name = |column: &Statistics| quote::cut_middle(&quote::escape(&column.name), NAME_COLUMNS);
    let heads = ["min", "mean", "max"].map(|head| right(head, FIGURE_COLUMNS));
    let row = |name: String, cells: [String; 3]| std::iter::once(name).chain(cells).collect();
    let line = |column: &Statistics| {
        let values = [column.min, column.mean, column.max];
        row(name(column), values.map(|value| readable(&column.name, value)))
    };
    let rows: Vec<_> = std::iter::once(row(title, heads)).chain(statistics.iter().map(line)).collect();
    with_figures(&rows, 1).join("\n") + "\n"
}

/// Writes a value of a column in a readable unit. The last word of the column's name is its unit. Values of other units, such
/// as counts or bytes per second, are written as numbers.
fn readable(name: &str, value: Option<f64>) -> String {
    let Some(value) = value else { return UNKNOWN.to_owned() };
    if name.starts_with(METRIC) {
        return metrics::readable(name, value);
    }
    match name.rsplit('_').next() {
        Some("bytes") => bytes(value.max(0.0).round() as u64),
        Some("percent") => format!("{} %", short(value)),
        Some("c") => format!("{} C", short(value)),
        Some("w") => format!("{} W", short(value)),
        Some("mhz") => format!("{} MHz", short(value)),
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::{Column, Joining};

    fn two_points() -> OverTime {
        let column = |name: &str, joining| Column { name: name.into(), joining };
        let point =
            |end_s, values: [Option<f64>; 2]| Point { start_s: end_s - 1.0, end_s, values: values.into() };
        OverTime {
            columns: vec![
                column("ram_main_bytes", Joining::Largest),
                column("cpu_main_percent", Joining::Mean),
            ],
            points: vec![point(1.0, [Some(2e6), None]), point(2.0, [Some(4e6), Some(50.0)])],
        }
    }

    // Requirement: TIME-14
    #[test]
    fn forms_have_the_points_and_unknown_is_never_0() {
        let all = two_points();
        assert_eq!(
            csv(&all),
            "start_s,end_s,ram_main_bytes,cpu_main_percent\n0,1,2000000,\n1,2,4000000,50\n"
        );
        let read: Value = serde_json::from_str(&json(&all)).unwrap();
        assert_eq!(read["points"][0]["cpu_main_percent"], Value::Null);
        assert_eq!(read["statistics"][0]["mean"], 3e6);
        let expected = "\
2 points in 2.00 s         min        mean         max
ram_main_bytes         2.00 MB     3.00 MB     4.00 MB
cpu_main_percent        50.0 %      50.0 %      50.0 %
";
        assert_eq!(text(&all), expected);
        assert!(text(&OverTime { points: vec![], ..all }).contains("n/a"));
    }

    // Requirement: SQL-4
    #[test]
    fn name_of_any_length_is_one_of_a_line() {
        let mut all = two_points();
        all.columns[0].name = "x".repeat(70_000);
        let text = text(&all);
        assert!(text.lines().all(|line| line.len() < 120) && text.contains("xxx...xxx"), "{text}");
        assert!(csv(&all).contains(&all.columns[0].name) && json(&all).contains(&all.columns[0].name));
    }
}
