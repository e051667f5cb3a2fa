//! The forms of `--tf` beside each other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::rows::{Database, JsonLines, Rows};
use crate::support::trace::Trace;
use crate::support::{Run, tracked};
use crate::tracking_file::JOB;

/// A run with a file of each form.
struct Files {
    run: Run,
    csv: Rows,
    lines: JsonLines,
    database: Database,
    trace: Trace,
    _directory: tempfile::TempDir,
}

fn with_files(command: &[&str], options: &[&str]) -> Files {
    let directory = tempfile::tempdir().unwrap();
    let all: [PathBuf; 4] =
        ["t.csv", "t.jsonl", "t.sqlite", "t.pftrace"].map(|name| directory.path().join(name));
    let given: Vec<&str> = all.iter().flat_map(|path| ["--tf", path.to_str().unwrap()]).collect();
    let run = tracked(command.iter().copied()).options(options).options(&given).run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    // No journal stays.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), all.len());
    let [csv, lines, database, trace] = &all;
    let (csv, lines, database) = (Rows::read(csv), JsonLines::read(lines), Database::read(database));
    Files { run, csv, lines, database, trace: Trace::read(trace), _directory: directory }
}

// Requirement: TIME-11, TIME-20
#[test]
fn lines_and_trace_have_the_rows_of_the_csv_file_every_process_and_the_report() {
    let files = with_files(&["python3", "-c", JOB], &["--st", "0.1"]);
    let (report, lines) = (files.run.report(), &files.lines);
    assert_eq!(lines.keys(), files.csv.keys());
    assert_eq!(files.trace.keys, files.csv.keys());
    for (sample, ram) in lines.of("sample").iter().zip(files.csv.column("combined_ram")) {
        assert_eq!(sample["footprint_bytes"]["combined"]["max"].as_f64(), Some(ram));
    }
    let percent = lines.of("sample").into_iter().map(|sample| sample["cpu"]["combined"]["percent"].as_f64());
    for (percent, rounded) in percent.zip(files.csv.column("cpu_combined_sum_utilization_percent")) {
        assert!((percent.unwrap_or(0.0) - rounded).abs() <= 0.001, "{percent:?} {rounded}");
    }

    let processes = lines.of("process");
    let keys: BTreeSet<_> = lines.processes().into_iter().collect();
    assert_eq!([keys.len(), processes.len()], [report.u64("processes.total") as usize; 2]);
    let in_trace: BTreeSet<_> = files.trace.processes.iter().copied().collect();
    assert_eq!((&in_trace, files.trace.processes.len()), (&keys, processes.len()));
    let cpu_s: f64 = processes.iter().map(|process| process["cpu_s"].as_f64().unwrap()).sum();
    report.assert_cpu(cpu_s, 1.0);
    let start_ns = |process: &serde_json::Value| process["start_ns"].as_u64().unwrap();
    let run_start_ns = processes.iter().map(|process| start_ns(process)).min().unwrap();
    for heaviest in report.array("processes.heaviest") {
        let of_pid = |process: &&&serde_json::Value| process["pid"] == heaviest["pid"];
        let process = processes.iter().find(of_pid).unwrap();
        let start_s = (start_ns(process) - run_start_ns) as f64 / 1e9;
        for (key, value) in heaviest.as_object().unwrap() {
            let expected = if key == "start_s" { start_s.into() } else { process[key].clone() };
            assert_eq!(value, &expected, "{key} of {process}");
        }
    }

    let [end] = lines.of("end")[..] else { panic!("no last line") };
    assert_eq!(lines.0.last().unwrap()["end"], *end);
    for set in ["main", "descendants", "combined"] {
        assert_eq!(end["max_ram"][set]["bytes"], *report.at(&format!("max_ram_bytes.{set}.total_rss")));
        assert!(!end["max_ram"][set]["source"].is_null(), "{end}");
    }
    let read = gpu_track_collector::report::read::read(&end["report"].to_string()).unwrap();
    assert_eq!(read.report, gpu_track_collector::report::read::read(&report.0.to_string()).unwrap().report);
}

// Requirement: TIME-12
#[test]
fn tables_have_the_rows_of_the_csv_file_and_every_process() {
    let files = with_files(&["python3", "-c", JOB], &["--st", "0.1"]);
    let (report, database, csv) = (files.run.report(), &files.database, &files.csv);
    assert_eq!(database.keys(), csv.keys());
    for (name, _) in database.rows("data")[0].as_object().unwrap() {
        let [in_table, in_file] = [database.known("data", name), csv.known(name)];
        let most = if name == "timestamp" { 0.01 } else { 0.0 };
        let is_equal = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= most,
            _ => a == b,
        };
        assert!(in_table.iter().zip(&in_file).all(is_equal), "{name}: {in_table:?} {in_file:?}");
    }
    let fixed = database.rows("static_data")[0].as_object().unwrap();
    assert_eq!(fixed.len(), csv.fixed.len());
    for (name, value) in fixed {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(text, csv.fixed[name].trim(), "{name}");
    }
    assert_eq!(
        database.column("data", "max_combined_ram").last(),
        Some(&report.f64("max_ram.combined.total_rss"))
    );

    let mut processes = files.lines.processes();
    processes.sort_unstable();
    assert_eq!(database.processes(), processes);
    for (row, line) in database.rows("processes").iter().zip(sorted(&files.lines)) {
        for name in ["ppid", "command", "wall_s", "cpu_s", "cpu_quality", "peak_rss_bytes", "peak_quality"] {
            assert_eq!(row[name], line[name], "{name}");
        }
        assert_eq!(
            [&row["exit_code"], &row["exit_signal"]],
            [&line["exit"]["code"], &line["exit"]["signal"]]
        );
    }
    let python = database.rows("samples_by_command").iter().filter(|row| row["command"] == "python3");
    assert!(python.count() >= csv.keys().len() / 2);
    assert!(database.rows("gpus").is_empty());
}

/// The processes of a file of lines, by their keys.
fn sorted(lines: &JsonLines) -> Vec<&serde_json::Value> {
    let mut processes = lines.of("process");
    processes.sort_by_key(|process| (process["pid"].as_u64(), process["start_ns"].as_u64()));
    processes
}
