//! The forms in which metrics are written: text, JSON and CSV.

use serde::Serialize;

use super::MetricRow;
use crate::figures::{UNKNOWN, bytes, short};
use crate::quote;
use crate::text::table::aligned;

/// Maximum number of columns of a name.
const NAME_COLUMNS: usize = 48;
/// What the name of a metric in bytes ends in.
const BYTES: &str = "_bytes";

/// Formats metrics as text, a line for each. What is not known is n/a.
pub fn text(rows: &[MetricRow]) -> String {
    let head = ["metric", "process", "count", "last", "min", "max", "mean", "not finite"];
    let line = |row: &MetricRow| {
        let cell = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), |value| readable(&row.name, value));
        let name = quote::cut_middle(&quote::escape(&row.name), NAME_COLUMNS);
        let [last, min, max, mean] = [row.last, row.min, row.max, row.mean].map(cell);
        let not_finite = if row.not_finite == 0 { String::new() } else { row.not_finite.to_string() };
        [name, row.process_id.to_string(), row.count.to_string(), last, min, max, mean, not_finite].into()
    };
    let head = head.map(str::to_owned).into();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().map(line)).collect();
    aligned(&lines).join("\n") + "\n"
}

/// Formats metrics as JSON: an object with an array of them.
pub fn json(rows: &[MetricRow]) -> String {
    #[derive(Serialize)]
    struct All<'a> {
        metrics: &'a [MetricRow],
    }
    quote::json_pretty(&All { metrics: rows })
}

/// Formats metrics as CSV, with the names of the columns in the first line. What is not known is empty.
pub fn csv(rows: &[MetricRow]) -> String {
    let head =
        "name,process_id,count,not_finite,last,min,max,mean,first_timestamp,last_timestamp\n".to_owned();
    let row = |row: &MetricRow| {
        let figures = [row.last, row.min, row.max, row.mean].map(quote::csv_plain).join(",");
        let MetricRow { process_id, count, not_finite, first_timestamp, last_timestamp, .. } = row;
        let name = quote::csv_cell(&row.name);
        format!("{name},{process_id},{count},{not_finite},{figures},{first_timestamp},{last_timestamp}\n")
    };
    [head].into_iter().chain(rows.iter().map(row)).collect()
}

/// Whether the name of a metric says that its values are bytes.
pub(crate) fn is_bytes(name: &str) -> bool {
    name.ends_with(BYTES)
}

/// Formats a value of a metric with about three digits, bytes in a unit that fits.
pub(crate) fn readable(name: &str, value: f64) -> String {
    let magnitude = value.abs();
    let sign = if value < 0.0 { "-" } else { "" };
    if is_bytes(name) && magnitude < u64::MAX as f64 {
        format!("{sign}{}", bytes(magnitude.round() as u64))
    } else if magnitude != 0.0 && !(1e-3..1e7).contains(&magnitude) {
        format!("{value:.2e}")
    } else {
        format!("{sign}{}", short(magnitude))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, last: Option<f64>) -> MetricRow {
        MetricRow {
            name: name.into(),
            process_id: 7,
            count: 3,
            not_finite: u64::from(last.is_none()),
            last,
            min: Some(-12_345.0),
            max: Some(2e9),
            mean: Some(1e-5),
            first_timestamp: 1.5,
            last_timestamp: 2.5,
        }
    }

    // Requirement: PY-25
    #[test]
    fn forms_have_each_metric_and_unknown_is_never_0() {
        let rows = [row("loss", Some(0.3125)), row("a,\"b\"\x1b", None), row("torch_bytes", Some(2e6))];
        let expected = "\
metric       process   count   last      min        max       mean       not finite
loss         7         3       0.31      -12,345    2.00e9    1.00e-5
a,\"b\"\\x1b   7         3       n/a       -12,345    2.00e9    1.00e-5    1
torch_bytes  7         3       2.00 MB   -12.3 kB   2.00 GB   0 B
";
        // The last words of a line have no padding after them.
        let words = |text: &str| -> Vec<Vec<String>> {
            text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        assert_eq!(words(&text(&rows)), words(expected));
        let table = csv(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "\"loss\",7,3,0,0.3125,-12345,2000000000,0.00001,1.5,2.5");
        assert!(lines[2].starts_with("\"a,\"\"b\"\"\\x1b\",7,3,1,,-12345,"), "{table}");
        let read: serde_json::Value = serde_json::from_str(&json(&rows)).unwrap();
        assert_eq!(read["metrics"][1]["name"], "a,\"b\"\x1b");
        assert!(read["metrics"][1]["last"].is_null() && read["metrics"][0]["last"] == 0.3125);
        assert!(!json(&rows).contains('\x1b') && !text(&rows).contains('\x1b') && !table.contains('\x1b'));
    }
}
