//! Analyses and comparisons as text: keys as titles, a tab more for each depth, and tables with 8 decimals.
//!
//! Names of blocks are another program's, so nothing in them may control the terminal.

use super::analysis::{Analysis, CodeBlock, Summary};
use super::comparison::{Comparison, RunFigures};
use super::ordered::Ordered;
use super::python::{number, title};
use super::table::{PandasColumn, table};
use crate::figures::{UNKNOWN, short, thousands};
use crate::model::sorting::Sorting;
use crate::model::style::RamUnit;
use crate::quote;
use crate::text::table::aligned;

/// In the table of all blocks, the columns of whole numbers.
const COUNTS: [&str; 2] = ["calls", "samples"];
/// Maximum number of columns of a block's name in that table.
const BLOCK_COLUMNS: usize = 24;

/// Formats an analysis: the whole run, what does not change, and each code block.
pub fn analysis(analysis: &Analysis) -> String {
    let Analysis { overall, static_data, code_block_results } = analysis;
    let fixed: Vec<PandasColumn> =
        static_data.iter().map(|(name, value)| PandasColumn::any(name, value)).collect();
    let blocks = code_block_results.iter().map(code_block);
    format!(
        "Overall:\n{}Static Data:\n{}Code Block Results:\n{}",
        summaries("\t", overall),
        table("\t", &[""], &fixed),
        blocks.collect::<String>()
    )
}

/// Formats the code blocks as one table: a line for each, those that took most time first. Figures of GPUs are left out where no block has
/// any.
pub fn blocks(analysis: &Analysis) -> String {
    let mut blocks: Vec<&CodeBlock> = analysis.code_block_results.iter().collect();
    let float = |number: &Option<serde_json::Number>| number.as_ref().and_then(serde_json::Number::as_f64);
    blocks.order_by(|a, b| {
        let total_s = |block: &CodeBlock| float(&block.compute_time.total).unwrap_or(0.0);
        total_s(b).total_cmp(&total_s(a))
    });
    let unit = |name: &str| {
        let unit = analysis.static_data.get(name).and_then(serde_json::Value::as_str);
        let known = RamUnit::ALL.into_iter().find(|known| Some(known.name()) == unit);
        known.map_or("?", RamUnit::symbol)
    };
    // What a block has of the first of these columns that is there. gpu-track's own files also have the largest RAM between samples.
    let usage = |block: &CodeBlock, names: &[&str], figure: fn(&Summary) -> &Option<serde_json::Number>| {
        let summary = names.iter().find_map(|name| block.resource_usage.get(name));
        summary.and_then(|summary| float(figure(summary)))
    };
    let max = |block: &CodeBlock, names: &[&str]| usage(block, names, |summary| &summary.max);
    let mean = |block: &CodeBlock, name: &str| usage(block, &[name], |summary| &summary.mean);
    let column = |head: &str, value: &dyn Fn(&CodeBlock) -> Option<f64>| {
        (head.to_owned(), blocks.iter().map(|block| value(block)).collect::<Vec<_>>())
    };
    let columns = [
        column("calls", &|block| Some(block.num_calls as f64)),
        column("samples", &|block| Some(block.num_timepoints as f64)),
        column("total s", &|block| float(&block.compute_time.total)),
        column("mean s", &|block| float(&block.compute_time.summary.mean)),
        column(&format!("max RAM {}", unit("ram_unit")), &|block| {
            max(block, &["max_combined_ram", "combined_ram"])
        }),
        column("mean cores", &|block| Some(mean(block, "cpu_combined_sum_utilization_percent")? / 100.0)),
        column(&format!("max GPU RAM {}", unit("gpu_ram_unit")), &|block| max(block, &["combined_gpu_ram"])),
        column("mean GPU %", &|block| mean(block, "gpu_sum_utilization_percent")),
    ];
    // The last two of the eight columns are about GPUs.
    let has_gpus = columns[6..].iter().any(|(_, values)| values.iter().flatten().any(|value| *value > 0.0));
    let columns = &columns[..if has_gpus { 8 } else { 6 }];
    let names: Vec<String> = blocks.iter().map(|block| quote::escape(&block.name)).collect();
    let names = quote::shorten(&names, BLOCK_COLUMNS);
    let cell = |head: &str, value: Option<f64>| match value {
        None => UNKNOWN.to_owned(),
        Some(count) if COUNTS.contains(&head) => thousands(count),
        Some(value) => short(value),
    };
    let head = ["block".to_owned()].into_iter().chain(columns.iter().map(|(head, _)| head.clone()));
    let rows = names.into_iter().enumerate().map(|(at, name)| {
        [name].into_iter().chain(columns.iter().map(|(head, values)| cell(head, values[at]))).collect()
    });
    let rows: Vec<Vec<String>> = [head.collect()].into_iter().chain(rows).collect();
    aligned(&rows).join("\n") + "\n\n"
}

/// Formats what a code block used: its name and counts, a table of its times, and one of its quantities.
fn code_block(block: &CodeBlock) -> String {
    let rows = [
        ("Name", quote::escape(&block.name)),
        ("Num Timepoints", block.num_timepoints.to_string()),
        ("Num Calls", block.num_calls.to_string()),
        ("Num Non Empty Calls", block.num_non_empty_calls.to_string()),
    ];
    let width = rows.iter().map(|(key, _)| key.len() + 1).max().unwrap_or(0);
    let rows = rows.map(|(key, value)| format!("\t{:<width$} {value}\n", format!("{key}:"))).concat();
    let time = &block.compute_time;
    let mut columns = summary_columns(std::iter::once(&time.summary));
    columns.push(PandasColumn::numbers("total", [&time.total]));
    format!(
        "{rows}\tCompute Time:\n{}\tResource Usage:\n{}\n",
        table("\t\t", &[""], &columns),
        summaries("\t\t", &block.resource_usage)
    )
}

/// Formats a table of quantities: a row for each, with its smallest, largest and mean value, and the standard deviation.
fn summaries(indent: &str, all: &Ordered<Summary>) -> String {
    let names: Vec<&str> = all.iter().map(|(name, _)| name).collect();
    table(indent, &names, &summary_columns(all.iter().map(|(_, summary)| summary)))
}

/// Makes the columns of a table that has a row for each summary.
fn summary_columns<'a>(all: impl Iterator<Item = &'a Summary> + Clone) -> Vec<PandasColumn> {
    vec![
        PandasColumn::numbers("min", all.clone().map(|summary| &summary.min)),
        PandasColumn::numbers("max", all.clone().map(|summary| &summary.max)),
        PandasColumn::numbers("mean", all.clone().map(|summary| &summary.mean)),
        PandasColumn::numbers("std", all.map(|summary| &summary.std)),
    ]
}

/// Formats the calls of each code block, below its name: a line for each with its start and its stop.
pub fn calls(blocks: &Ordered<Vec<(f64, f64)>>) -> String {
    let block = |(name, calls): (&str, &Vec<(f64, f64)>)| {
        let calls =
            calls.iter().map(|(start_s, stop_s)| format!("\t{} {}\n", number(*start_s), number(*stop_s)));
        format!("{}:\n{}", quote::escape(name), calls.collect::<String>())
    };
    blocks.iter().map(block).collect()
}

/// Formats a comparison: each quantity of the whole run, then of each code block, then how long the blocks took.
pub fn comparison(comparison: &Comparison) -> String {
    let used = comparison.code_block_resource_usage.iter().map(|(measurement, blocks)| {
        format!("\t{}:\n{}", title(measurement), side_by_side("\t\t", quote::escape, blocks))
    });
    format!(
        "Overall Resource Usage:\n{}Code Block Resource Usage:\n{}Code Block Compute Time:\n{}",
        side_by_side("\t", title, &comparison.overall_resource_usage),
        used.collect::<String>(),
        side_by_side("\t", quote::escape, &comparison.code_block_compute_time)
    )
}

/// Formats each key by `key_text`, and below it a table of one row: a column for each run, with its figure.
fn side_by_side(indent: &str, key_text: fn(&str) -> String, all: &Ordered<RunFigures>) -> String {
    let of_key = |(key, figures): (&str, &RunFigures)| {
        let columns = figures.iter().map(|(name, figure)| PandasColumn::numbers(name, [figure]));
        let table = table(&format!("{indent}\t"), &[""], &columns.collect::<Vec<_>>());
        format!("{indent}{}:\n{table}", key_text(key))
    };
    all.iter().map(of_key).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Session, Statistic, compare};
    use super::*;

    const ANALYSIS: &str = r#"{
        "overall": {"main_ram": {"min": 0.5, "max": 12.25, "mean": 3.125, "std": 0.123456789}},
        "static_data": {"ram_unit": "gigabytes", "n_expected_cores": 12},
        "code_block_results": [{"name": "t.py:9\u001b", "num_timepoints": 2, "num_calls": 10, "num_non_empty_calls": 1,
            "compute_time": {"min": 1.5, "max": 1.5, "mean": 1.5, "std": 0.0, "total": 15.0},
            "resource_usage": {"main_ram": {"min": null, "max": null, "mean": null, "std": null}}}]}"#;

    // Requirement: CMD-41
    #[test]
    fn texts_are_those_of_gpu_tracker() {
        let read: Analysis = serde_json::from_str(ANALYSIS).unwrap();
        let expected = "Overall:
\t          min   max  mean        std
\tmain_ram  0.5 12.25 3.125 0.12345679
Static Data:
\t   ram_unit n_expected_cores
\t  gigabytes               12
Code Block Results:
\tName:                t.py:9\\x1b
\tNum Timepoints:      2
\tNum Calls:           10
\tNum Non Empty Calls: 1
\tCompute Time:
\t\t  min  max  mean  std  total
\t\t  1.5  1.5   1.5  0.0   15.0
\tResource Usage:
\t\t          min  max  mean  std
\t\tmain_ram  n/a  n/a   n/a  n/a

";
        assert_eq!(analysis(&read), expected);
        let table = "block        calls   samples   total s   mean s   max RAM GB   mean cores\nt.py:9\\x1b   10      2         15.0      \
                     1.50     n/a          n/a\n\n";
        assert_eq!(blocks(&read), table);
    }

    // Requirement: CMD-46
    #[test]
    fn calls_are_listed_below_the_name_of_their_block() {
        let blocks = [("a\u{1b}".to_owned(), vec![(1.5, 2.0), (1746129778.99568, 1746129779.5)])];
        let expected = "a\\x1b:\n\t1.5 2.0\n\t1746129778.99568 1746129779.5\n";
        assert_eq!(calls(&blocks.into_iter().collect()), expected);
    }

    // Requirement: CMD-43
    #[test]
    fn comparison_has_a_table_for_each_quantity_and_block() {
        let sessions = ["before", "B"].map(|name| {
            let analysis = serde_json::from_str(&ANALYSIS.replace("\\u001b", "")).unwrap();
            Session { name: name.to_owned(), analysis }
        });
        let (compared, _) = compare(sessions.into(), Statistic::Max).unwrap();
        let expected = "Overall Resource Usage:
\tMain Ram:
\t\t  before     B
\t\t   12.25 12.25
Code Block Resource Usage:
\tMain Ram:
\t\tt.py:9:
\t\t\t  before   B
\t\t\t     n/a n/a
Code Block Compute Time:
\tt.py:9:
\t\t  before   B
\t\t     1.5 1.5
";
        assert_eq!(comparison(&compared), expected);
    }
}
