//! How the time was spent, over the run: columns of tracking files, and the points of the report.

use std::process::Command;

use serde_json::Value;

use crate::support::rows::{Database, JsonLines, Rows};
use crate::support::tracked;

/// It computes, and then sleeps.
const JOB: &str = "import time
end = time.time() + 0.8
while time.time() < end: pass
time.sleep(0.8)
";
/// The groups of states, as columns and keys name them.
const GROUPS: [&str; 6] = ["computing", "waiting_for_core", "storage", "network", "locks", "other"];

/// Whether some moment has most of its time in one of these groups, of shares of which all are 1.
fn is_some_most(moments: &[[Option<f64>; 6]], groups: &[usize]) -> bool {
    moments.iter().any(|moment| groups.iter().filter_map(|at| moment[*at]).sum::<f64>() > 0.6)
}

/// Checks the shares of a program that computes and then sleeps. On a machine with much to do, it waits for a core.
#[track_caller]
fn assert_computes_then_sleeps(moments: &[[Option<f64>; 6]]) {
    for moment in moments {
        let known: Vec<f64> = moment.iter().copied().flatten().collect();
        let sum: f64 = known.iter().sum();
        assert!(known.is_empty() || (known.len() == 6 && (sum - 1.0).abs() < 1e-3), "{moment:?}");
    }
    let half = moments.len() / 2;
    assert!(is_some_most(&moments[..half], &[0, 1]), "{moments:?}");
    assert!(is_some_most(&moments[half..], &[5]), "{moments:?}");
}

// Requirement: SLOW-10, SLOW-11, SLOW-12
#[test]
fn each_form_and_the_report_have_how_the_time_was_spent() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let files = ["t.csv", "t.sqlite", "t.jsonl"].map(|name| path(name).to_str().unwrap().to_owned());
    let options: Vec<&str> = files.iter().flat_map(|file| ["--tf", file]).chain(["--st", "0.1"]).collect();
    let run = tracked(["python3", "-c", JOB]).options(&options).run();
    let report = run.report();

    let rows = Rows::read(&path("t.csv"));
    let columns = GROUPS.map(|group| rows.known(&format!("time_{group}_percent")));
    let of_rows: Vec<[Option<f64>; 6]> = (0..rows.keys().len())
        .map(|row| std::array::from_fn(|at| columns[at][row].map(|percent| percent / 100.0)))
        .collect();
    assert_computes_then_sleeps(&of_rows);

    let database = Database::read(&path("t.sqlite"));
    let percent = |row: &Value, group: &str| row[format!("time_{group}_percent")].as_f64();
    let shares = |row: &Value| GROUPS.map(|group| percent(row, group).map(|percent| percent / 100.0));
    assert_eq!(database.rows("data").iter().map(shares).collect::<Vec<_>>(), of_rows);

    let lines = JsonLines::read(&path("t.jsonl"));
    let of_lines: Vec<[Option<f64>; 6]> = lines
        .of("sample")
        .into_iter()
        .map(|sample| {
            let ns = GROUPS.map(|group| sample["time_ns"][group].as_f64());
            let all: f64 = ns.iter().flatten().sum();
            ns.map(|ns| ns.map(|ns| ns / all))
        })
        .collect();
    assert_computes_then_sleeps(&of_lines);

    let shares = GROUPS.map(|group| report.array(&format!("series.time_spent.{group}")));
    let points = report.array("series.start_s").len();
    let of_report: Vec<[Option<f64>; 6]> =
        (0..points).map(|point| std::array::from_fn(|at| shares[at][point].as_f64())).collect();
    assert_computes_then_sleeps(&of_report);

    for file in &files {
        let shown = Command::new(env!("CARGO_BIN_EXE_gpu-track"))
            .args(["report", file, "--every", "0.4", "-f", "csv"])
            .output()
            .unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let columns = lines.next().unwrap();
        let places = GROUPS.map(|group| {
            let name = format!("time_{group}_percent");
            columns.iter().position(|column| *column == name).unwrap_or_else(|| panic!("{file}: {text}"))
        });
        let share = |cell: &str| cell.parse::<f64>().ok().map(|percent| percent / 100.0);
        let points: Vec<_> = lines.map(|cells| places.map(|place| share(cells[place]))).collect();
        assert_computes_then_sleeps(&points);
    }
}
