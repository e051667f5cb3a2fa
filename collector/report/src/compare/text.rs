//! The text of a comparison: a column for each way, with how it relates to the first.

use super::{Comparison, Metric};
use crate::figures::{bytes, readable, short};
use crate::text::table::aligned;
use crate::{quantities, quote};

/// Maximum number of columns of a way's name.
const NAME_COLUMNS: usize = 28;
/// Maximum number of columns of the name of a command or task, which has a line of its own.
const TITLE_COLUMNS: usize = 100;

/// Renders a comparison as text, with a newline at its end.
pub fn text(comparison: &Comparison) -> String {
    let mut lines = aligned(&rows(comparison, "  "));
    lines.extend(comparison.remarks.iter().map(|remark| quote::escape(remark)));
    lines.join("\n") + "\n"
}

/// Renders a comparison as a table in Markdown, with a newline at its end.
pub fn markdown(comparison: &Comparison) -> String {
    let ways = comparison.ways.len();
    let line = |row: &Vec<String>| {
        // The row with the name of a command has that cell alone, but a row of Markdown has one for each column.
        let empty = std::iter::repeat_n(String::new(), (ways + 1).saturating_sub(row.len()));
        let cells = row.iter().map(|cell| quote::markdown(cell.trim())).chain(empty);
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut lines: Vec<String> = rows(comparison, "").iter().map(line).collect();
    // Below the heads, Markdown has a row of dashes.
    lines.insert(1.min(lines.len()), format!("|{}", " --- |".repeat(ways + 1)));
    // Each remark is a paragraph of its own.
    lines.extend(comparison.remarks.iter().map(|remark| format!("\n{}", quote::markdown(remark))));
    lines.join("\n") + "\n"
}

/// The rows of the table. The quantities of a command or task stand below its name, with this indent.
fn rows(comparison: &Comparison, indent: &str) -> Vec<Vec<String>> {
    let mut rows = vec![row("", heads(comparison))];
    rows.push(row("runs", comparison.ways.iter().map(|way| way.runs.to_string())));
    rows.extend(comparison.metrics.iter().map(|metric| row(label(metric.metric), cells(metric, comparison))));
    let commands = comparison.commands.iter().map(|command| (&command.command, 1, &command.metrics));
    let tasks = comparison.tasks.iter().map(|task| (&task.task, task.n_tasks, &task.metrics));
    for (name, count, metrics) in commands.chain(tasks) {
        let count = if count > 1 { format!(" ({count} tasks)") } else { String::new() };
        // Names of tasks often differ at their ends.
        rows.push(vec![quote::cut_middle(&quote::escape(name), TITLE_COLUMNS) + &count]);
        for metric in metrics {
            rows.push(row(&format!("{indent}{}", label(metric.metric)), cells(metric, comparison)));
        }
    }
    rows
}

/// The head of each way. Names that are too long are cut so that they still differ. A name that several ways have is numbered.
fn heads(comparison: &Comparison) -> Vec<String> {
    let names: Vec<String> = comparison.ways.iter().map(|way| quote::escape(&way.name)).collect();
    let mut heads: Vec<String> = Vec::new();
    for (at, head) in quote::shorten(&names, NAME_COLUMNS).into_iter().enumerate() {
        let same = names[..at].iter().filter(|other| **other == names[at]).count();
        heads.push(if same > 0 { format!("{head} ({})", same + 1) } else { head });
    }
    heads
}

/// What a quantity is called in text.
fn label(metric: &str) -> &str {
    match quantities::named(metric) {
        Some(quantity) => quantity.label,
        None if metric == "peak_rss" => "peak RSS",
        None if metric == "peak_ram" => "peak RAM",
        None => metric,
    }
}

fn row(label: &str, cells: impl IntoIterator<Item = String>) -> Vec<String> {
    [label.to_owned()].into_iter().chain(cells).collect()
}

/// A cell for each way: mean, standard deviation and, after the first way, the ratio to the first one's mean. If the
/// quantity is not known in all runs of a way, the cell also says in how many.
fn cells<'a>(metric: &'a Metric, comparison: &'a Comparison) -> impl Iterator<Item = String> + 'a {
    let ways = metric.ways.iter().zip(&metric.ratios).zip(&comparison.ways).enumerate();
    ways.map(|(at, ((summary, ratio), way))| {
        let Some(mean) = summary.mean else { return "n/a".to_owned() };
        let spread = summary.standard_deviation.map(|sd| format!(" ± {}", value(sd, metric.unit)));
        let ratio = ratio.filter(|_| at > 0).map(|ratio| format!("  x {ratio:.2}"));
        let is_partly_known = summary.known < way.runs;
        let known = is_partly_known.then(|| format!("  ({} of {})", summary.known, way.runs));
        let parts = [Some(value(mean, metric.unit)), spread, ratio, known];
        parts.into_iter().flatten().collect()
    })
}

/// Formats a value in its unit.
fn value(value: f64, unit: &str) -> String {
    match unit {
        "s" => readable(value),
        "bytes" => bytes(value.round() as u64),
        "1" => short(value),
        _ => format!("{} {unit}", short(value)),
    }
}
