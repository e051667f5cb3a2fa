//! A table of runs, by their reports: what each was given, what it used, and what to ask for next time.

use std::time::SystemTime;

use serde::Serialize;

use crate::figures::{UNKNOWN, bytes, readable, short};
use crate::model::report::Report;
use crate::model::timestamp;
use crate::quote;
use crate::sections::{brief_end, slurm_options};
use crate::text::table::aligned;

/// Most columns of a command.
const COMMAND: usize = 32;
/// Most columns of the name of a report.
const FILE: usize = 32;

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

/// Gives the row of a report, which was read from this file.
pub fn row(file: String, report: &Report) -> RunRow {
    let amount = |used, given| Amount { used, given };
    let float = |number: Option<u64>| number.map(|number| number as f64);
    let hints = &report.hints;
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
            _ => amount(
                float(report.max_gpu_ram.combined_bytes),
                float(report.max_gpu_ram.system_capacity_bytes),
            ),
        },
        hint: (!options.is_empty() && hints.withheld.is_none()).then_some(options),
    }
}

/// Writes runs as text, a line for each. Columns of which nothing is known of any run are left out.
pub fn text(runs: &[RunRow]) -> String {
    let in_bytes = |value: f64| bytes(value.max(0.0).round() as u64);
    let columns: [(&str, Vec<String>); 8] = [
        ("report", column(runs, |run| quote::cut_middle(&quote::escape(&run.file), FILE))),
        ("command", column(runs, |run| quote::escape(&quote::command(&run.command, COMMAND)))),
        ("end", column(runs, |run| run.end.clone())),
        ("time / given", column(runs, |run| run.wall_s.text(readable))),
        ("cores / given", column(runs, |run| run.cores.text(short))),
        ("RAM / given", column(runs, |run| run.ram_bytes.text(in_bytes))),
        ("GPU RAM / given", column(runs, |run| run.gpu_ram_bytes.text(in_bytes))),
        ("next time", column(runs, |run| run.hint.clone().unwrap_or_default())),
    ];
    let is_known = |cells: &[String]| cells.iter().any(|cell| !cell.is_empty() && cell != UNKNOWN);
    let shown: Vec<_> = columns.into_iter().filter(|(_, cells)| is_known(cells)).collect();
    let mut rows = vec![shown.iter().map(|(head, _)| (*head).to_owned()).collect::<Vec<_>>()];
    rows.extend((0..runs.len()).map(|run| shown.iter().map(|(_, cells)| cells[run].clone()).collect()));
    aligned(&rows).join("\n") + "\n"
}

fn column(runs: &[RunRow], cell: impl Fn(&RunRow) -> String) -> Vec<String> {
    runs.iter().map(cell).collect()
}

impl Amount {
    /// Writes what was used, and behind a slash what was given if both are known. `form` writes each.
    fn text(self, form: impl Fn(f64) -> String) -> String {
        let used = self.used.map_or(UNKNOWN.to_owned(), &form);
        match self.given {
            Some(given) if self.used.is_some() => format!("{used} / {}", form(given)),
            _ => used,
        }
    }
}

/// Writes runs as CSV, with the names in the first line. What is not known is empty.
pub fn csv(runs: &[RunRow]) -> String {
    let amounts =
        ["wall_s", "cores", "ram_bytes", "gpu_ram_bytes"].map(|name| format!("{name},{name}_given"));
    let head = format!("report,command,started_at,end,{},hint\n", amounts.join(","));
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    let row = |run: &RunRow| {
        let amounts = [run.wall_s, run.cores, run.ram_bytes, run.gpu_ram_bytes];
        let amounts = amounts.map(|amount| format!("{},{}", number(amount.used), number(amount.given)));
        let words: Vec<String> = run.command.iter().map(|word| quote::word(word)).collect();
        let [file, command, end] = [&run.file, &words.join(" "), &run.end].map(|text| quote::csv_cell(text));
        let hint = quote::csv_cell(run.hint.as_deref().unwrap_or_default());
        format!(
            "{file},{command},{},{end},{},{hint}\n",
            timestamp::rfc3339(run.started_at),
            amounts.join(",")
        )
    };
    [head].into_iter().chain(runs.iter().map(row)).collect()
}

/// Writes runs as JSON, an array of objects.
pub fn json(runs: &[RunRow]) -> String {
    quote::escape_json(&serde_json::to_string_pretty(runs).unwrap_or_default()) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-19
    #[test]
    fn each_run_has_a_line_with_what_it_was_given_and_used() {
        let (full, unknown) = (gpu_track_core::fixtures::full(), gpu_track_core::fixtures::unknown());
        let runs = [row("a.json".into(), &full), row("b\x1b.json".into(), &unknown)];
        let text = text(&runs);
        println!("{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("report") && lines.len() == 3, "{text}");
        for part in ["a.json", "OK, exit 0", "1 min 23 s", "204 MB / 16.0 GB", "--mem=1G --time=00:10:00"] {
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
