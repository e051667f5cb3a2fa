//! A table of runs, by their reports: what each was given, what it used, and what to ask for next time.

use std::time::SystemTime;

use serde::Serialize;

use crate::command_line;
use crate::figures::{UNKNOWN, bytes, float, readable, short};
use crate::model::report::Report;
use crate::model::sorting::Sorting;
use crate::model::timestamp;
use crate::quote::{self, CsvColumn, csv_cell, csv_plain, csv_table, csv_text};
use crate::sections::{brief_end, slurm_options};
use crate::text::table::aligned;
use gpu_track_core::named;

/// Columns between two columns of the table.
const GAP: usize = 3;
/// Fewest columns of report and command together.
const LEAST_NAMES: usize = 30;

/// A run. Null is unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// The file of its report.
    pub file: String,
    /// Its command and arguments.
    pub command: Vec<String>,
    /// When it started.
    #[serde(serialize_with = "rfc3339")]
    pub started_at: SystemTime,
    /// How it ended.
    pub end: String,
    /// Wall time.
    pub wall_s: Amount,
    /// CPU time over wall time, cores.
    pub cores: Amount,
    /// Largest RAM, bytes.
    pub ram_bytes: Amount,
    /// Largest GPU memory, bytes; null as well where there is no GPU.
    pub gpu_ram_bytes: Amount,
    /// What to ask Slurm for next time; null: what it was given fits, or nothing can be said.
    pub hint: Option<String>,
}

/// How much of a resource a run used, and was given. Null is unknown, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Amount {
    /// Used.
    pub used: Option<f64>,
    /// Given.
    pub given: Option<f64>,
}

fn rfc3339<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp::rfc3339(*time))
}

/// The row of a report, which was read from this file.
pub fn row(file: String, report: &Report) -> RunRow {
    let amount = |used, given| Amount { used, given };
    let (hints, gpu_ram) = (&report.hints, &report.max_gpu_ram);
    let cpu_s = report.cpu_time.total_s.filter(|_| report.wall_s > 0.0);
    let wants_all = false;
    let options = slurm_options(hints, wants_all);
    RunRow {
        file,
        command: report.command.clone(),
        started_at: report.started_at,
        end: brief_end(report),
        wall_s: amount(Some(report.wall_s), hints.time.and_then(|hint| hint.given_s)),
        cores: amount(cpu_s.map(|cpu_s| cpu_s / report.wall_s), Some(report.usable.cores.count)),
        ram_bytes: amount(float(report.max_ram.combined.footprint_bytes), float(report.usable.memory.bytes)),
        gpu_ram_bytes: match report.usable.gpus.count {
            Some(0) => amount(None, None),
            _ => amount(float(gpu_ram.combined_bytes), float(gpu_ram.system_capacity_bytes)),
        },
        // Hints of a run that says too little of a job, such as one that is not over, are withheld for that reason.
        hint: (!options.is_empty() && hints.withheld.is_none()).then_some(options),
    }
}

named! {
    /// What runs are sorted by.
    #[derive(Default)]
    pub enum SortBy {
        /// The start: the oldest first.
        #[default]
        Start = "start",
        /// The name of the report.
        Name = "name",
        /// The wall time: the longest first.
        Wall = "wall",
        /// CPU time over wall time: the most first.
        Cores = "cores",
        /// The largest RAM: the most first.
        Ram = "ram",
        /// The largest GPU memory: the most first.
        GpuRam = "gpu_ram",
    }
}

/// Sorts runs. Among equal runs, the oldest comes first. Runs whose figure is not known come last.
pub fn sort(runs: &mut [RunRow], by: SortBy) {
    // The second sort is stable, so it keeps this order among equal runs.
    runs.order_by(|a, b| (a.started_at, &a.file).cmp(&(b.started_at, &b.file)));
    let figure = |run: &RunRow| match by {
        SortBy::Start | SortBy::Name => None,
        SortBy::Wall => run.wall_s.used,
        SortBy::Cores => run.cores.used,
        SortBy::Ram => run.ram_bytes.used,
        SortBy::GpuRam => run.gpu_ram_bytes.used,
    };
    match by {
        SortBy::Name => runs.order_by(|a, b| a.file.cmp(&b.file)),
        // -1 is below all known figures.
        _ => runs.order_by(|a, b| figure(b).unwrap_or(-1.0).total_cmp(&figure(a).unwrap_or(-1.0))),
    }
}

/// Formats runs as a table, a line for each in about `max_width` columns, and their sum. If all were given the same amount of a resource,
/// the head of its column has it. A column without any known cell is left out.
pub fn text(runs: &[RunRow], max_width: usize) -> String {
    let end = |run: &RunRow| if run.end.starts_with("OK") { "OK".to_owned() } else { run.end.clone() };
    // Each column is its head, and a cell for each run.
    let figures = [
        amounts("time", runs, |run| run.wall_s, &readable),
        amounts("cores", runs, |run| run.cores, &short),
        amounts("RAM", runs, |run| run.ram_bytes, &in_bytes),
        amounts("GPU RAM", runs, |run| run.gpu_ram_bytes, &in_bytes),
        ("next time".to_owned(), column(runs, |run| run.hint.clone().unwrap_or_default())),
    ];
    let is_known = |cells: &[String]| cells.iter().any(|cell| !cell.is_empty() && cell != UNKNOWN);
    let ends = [("end".to_owned(), column(runs, end))].into_iter();
    let mut columns: Vec<_> = ends.chain(figures.into_iter().filter(|(_, cells)| is_known(cells))).collect();
    let width = |(head, cells): &(String, Vec<String>)| {
        cells.iter().map(|cell| quote::width(cell)).chain([quote::width(head)]).max().unwrap_or(0) + GAP
    };
    let room = |columns: &[_]| max_width.saturating_sub(columns.iter().map(width).sum());
    let mut note = "";
    if room(&columns) < LEAST_NAMES && columns.last().is_some_and(|(head, _)| head == "next time") {
        columns.pop();
        note = "\nWhat to ask for next time is in -f csv and -f json.";
    }
    // The two columns of names share what the figures leave. That of the report gets at most half of it.
    let room = room(&columns).max(LEAST_NAMES) - GAP;
    let files: Vec<String> = column(runs, |run| quote::escape(&run.file));
    // At least 6, the width of the head `report`.
    let file_width = files.iter().map(|file| quote::width(file)).max().unwrap_or(0).max(6).min(room / 2);
    let command =
        |run: &RunRow| quote::escape(&command_line::process(Some(&run.command), UNKNOWN, room - file_width));
    let names = [
        ("report".to_owned(), quote::shorten(&files, file_width)),
        ("command".to_owned(), column(runs, command)),
    ];
    let shown: Vec<_> = names.into_iter().chain(columns).collect();
    let mut rows = vec![shown.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>()];
    rows.extend((0..runs.len()).map(|run| shown.iter().map(|(_, cells)| cells[run].clone()).collect()));
    format!("{}\n{}{note}\n", aligned(&rows).join("\n"), sum(runs))
}

/// Formats bytes in the unit that fits.
fn in_bytes(value: f64) -> String {
    bytes(value.max(0.0).round() as u64)
}

/// Says in a sentence what runs used together.
fn sum(runs: &[RunRow]) -> String {
    // If some runs lack the figure, the sum of the others is a lower bound. If all lack it, the sum is unknown.
    let total = |value: &dyn Fn(&RunRow) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(value).collect();
        let at_least = if known.len() < runs.len() { "at least " } else { "" };
        if known.is_empty() {
            "unknown".into()
        } else {
            format!("{at_least}{}", readable(known.iter().sum()))
        }
    };
    let wall = total(&|run| run.wall_s.used);
    let cpu = total(&|run| Some(run.cores.used? * run.wall_s.used?));
    let failed = runs.iter().filter(|run| !run.end.starts_with("OK")).count();
    let failed = if failed > 0 { format!(", {failed} not OK") } else { String::new() };
    let most = runs.iter().filter_map(|run| run.ram_bytes.used).reduce(f64::max);
    let most = most.map_or(String::new(), |most| format!("; most RAM {}", in_bytes(most)));
    let runs = if runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", runs.len()) };
    format!("{runs}{failed}: {wall} of wall time, {cpu} of CPU time{most}.")
}

/// Makes a column of an amount: its head, and a cell for each run. If all runs were given the same, the head says what.
fn amounts(
    name: &str,
    runs: &[RunRow],
    amount: impl Fn(&RunRow) -> Amount,
    form: &dyn Fn(f64) -> String,
) -> (String, Vec<String>) {
    let first = runs.first().and_then(|run| amount(run).given);
    let is_same = runs.iter().all(|run| amount(run).given == first);
    match first.filter(|_| is_same) {
        Some(given) => {
            let used = |run: &RunRow| Amount { given: None, ..amount(run) }.text(form);
            (format!("{name} / {}", form(given)), column(runs, used))
        }
        None if is_same => (name.to_owned(), column(runs, |run| amount(run).text(form))),
        None => (format!("{name} / given"), column(runs, |run| amount(run).text(form))),
    }
}

fn column(runs: &[RunRow], cell: impl Fn(&RunRow) -> String) -> Vec<String> {
    runs.iter().map(cell).collect()
}

impl Amount {
    /// Formats what was used, and after a slash what was given if both are known. `form` writes each.
    fn text(self, form: impl Fn(f64) -> String) -> String {
        let used = self.used.map_or(UNKNOWN.to_owned(), &form);
        match self.given {
            Some(given) if self.used.is_some() => format!("{used} / {}", form(given)),
            _ => used,
        }
    }
}

/// The columns of runs in CSV.
const COLUMNS: [CsvColumn<RunRow>; 13] = [
    ("report", |run| csv_cell(&run.file)),
    ("command", |run| csv_cell(&quote::words(&run.command))),
    ("started_at", |run| timestamp::rfc3339(run.started_at)),
    ("end", |run| csv_cell(&run.end)),
    ("wall_s", |run| csv_plain(run.wall_s.used)),
    ("wall_s_given", |run| csv_plain(run.wall_s.given)),
    ("cores", |run| csv_plain(run.cores.used)),
    ("cores_given", |run| csv_plain(run.cores.given)),
    ("ram_bytes", |run| csv_plain(run.ram_bytes.used)),
    ("ram_bytes_given", |run| csv_plain(run.ram_bytes.given)),
    ("gpu_ram_bytes", |run| csv_plain(run.gpu_ram_bytes.used)),
    ("gpu_ram_bytes_given", |run| csv_plain(run.gpu_ram_bytes.given)),
    ("hint", |run| csv_text(run.hint.as_deref())),
];

/// Formats runs as CSV, with the names in the first line. What is not known is empty.
pub fn csv(runs: &[RunRow]) -> String {
    csv_table(&COLUMNS, runs)
}

/// Formats runs as JSON, an array of objects.
pub fn json(runs: &[RunRow]) -> String {
    quote::json_pretty(&runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-19
    #[test]
    fn table_fits_its_columns_and_has_sums() {
        let full = gpu_track_core::fixtures::full();
        let mut runs: Vec<RunRow> = (1_u8..5)
            .map(|number| {
                let name = format!("of_a_long_name/with_a_directory/run_{number}.json");
                let mut run = row(name, &full);
                run.command =
                    ["sh", "-c", "for i in 1 2 3 4 5; do ./solve --level $i; done"].map(str::to_owned).into();
                run.wall_s.used = Some(f64::from(number));
                run.cores.used = Some(2.0);
                run
            })
            .collect();
        runs[2].end = "exit 3".into();
        sort(&mut runs, SortBy::Wall);
        let text = text(&runs, 80);
        assert!(text.lines().take(5).all(|line| quote::width(line) <= 80), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("cores / ") && lines[0].contains("RAM / 16.0 GB"), "{text}");
        assert!(lines[1].contains("4.json") && lines[1].contains("sh -c 'for"), "{text}");
        assert!(lines[2].contains("exit 3"), "{text}");
        let sum = "4 runs, 1 not OK: 10.0 s of wall time, 20.0 s of CPU time; most RAM 204 MB.";
        assert!(lines[5].starts_with(sum), "{text}");
    }

    // Requirement: CMD-19
    #[test]
    fn each_run_has_a_line_with_what_it_was_given_and_used() {
        let (full, unknown) = (gpu_track_core::fixtures::full(), gpu_track_core::fixtures::unknown());
        let runs = [row("a.json".into(), &full), row("b\x1b.json".into(), &unknown)];
        let text = text(&runs, 140);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("report") && lines.len() == 4, "{text}");
        assert!(lines[3].contains(" of wall time, at least 5 min 17 s of CPU time"), "{text}");
        assert!(super::text(&runs[1..], 140).contains(", unknown of CPU time."), "{text}");
        for part in ["a.json", "OK", "1 min 23 s", "204 MB / 16.0 GB", "--mem=1G --time=00:10:00"] {
            assert!(lines[1].contains(part), "{part}: {text}");
        }
        assert!(lines[2].starts_with("b\\x1b.json") && !text.contains('\x1b'), "{text}");
        let rows = csv(&runs);
        let row = rows.lines().nth(1).unwrap();
        assert!(row.starts_with("\"a.json\",") && row.contains(",204472320,16000000000,"), "{rows}");
        let read: serde_json::Value = serde_json::from_str(&json(&runs)).unwrap();
        assert_eq!(read[0]["ram_bytes"]["used"], 204_472_320.0);
        assert!(read[1]["ram_bytes"]["used"].is_null() && read[1]["hint"].is_null());
    }
}
