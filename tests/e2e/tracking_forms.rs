//! The forms of `--tf` beside each other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::rows::{JsonLines, Rows};
use crate::support::{Run, tracked};
use crate::tracking_file::JOB;

/// A run with a file of each form.
struct Files {
    run: Run,
    csv: Rows,
    lines: JsonLines,
    _directory: tempfile::TempDir,
}

fn with_files(command: &[&str], options: &[&str]) -> Files {
    let directory = tempfile::tempdir().unwrap();
    let [csv, lines]: [PathBuf; 2] = ["t.csv", "t.jsonl"].map(|name| directory.path().join(name));
    let given = ["--tf", csv.to_str().unwrap(), "--tf", lines.to_str().unwrap()];
    let run = tracked(command.iter().copied()).options(options).options(&given).run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    Files { run, csv: Rows::read(&csv), lines: JsonLines::read(&lines), _directory: directory }
}

// Requirement: TIME-11
#[test]
fn lines_have_the_rows_of_the_csv_file_every_process_and_the_report() {
    let files = with_files(&["python3", "-c", JOB], &["--st", "0.1"]);
    let (report, lines) = (files.run.report(), &files.lines);
    assert_eq!(lines.keys(), files.csv.keys());
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
    let cpu_s: f64 = processes.iter().map(|process| process["cpu_s"].as_f64().unwrap()).sum();
    report.assert_cpu(cpu_s, 1.0);
    for heaviest in report.array("processes.heaviest") {
        let of_pid = |process: &&&serde_json::Value| process["pid"] == heaviest["pid"];
        let process = processes.iter().find(of_pid).unwrap();
        for (key, value) in heaviest.as_object().unwrap() {
            assert_eq!(&process[key], value, "{key} of {process}");
        }
    }

    let [end] = lines.of("end")[..] else { panic!("no last line") };
    assert_eq!(lines.0.last().unwrap()["end"], *end);
    for set in ["main", "descendants", "combined"] {
        assert_eq!(end["max_ram"][set]["bytes"], *report.at(&format!("max_ram_bytes.{set}.total_rss")));
        assert!(!end["max_ram"][set]["source"].is_null(), "{end}");
    }
    let read = gpu_track_collector::read_report(&end["report"].to_string()).unwrap();
    assert_eq!(read.report, gpu_track_collector::read_report(&report.0.to_string()).unwrap().report);
}
