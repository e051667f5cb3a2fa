//! `-o FILE.html`: the report as a page.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::{program, skip, tracked};

fn companion(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-track")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The part of a page between two texts.
fn part<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("no {from}: {page}"));
    rest.split_once(to).unwrap().0
}

/// The columns of the table beside a chart, by their names without the unit; what is not known is NaN.
fn columns(page: &str, title: &str) -> Vec<(String, Vec<f64>)> {
    let table = part(part(page, &format!("<h3>{title}</h3>"), "</figure>"), "<table", "</table>");
    let cells = |row: &str, end: &str| -> Vec<String> {
        row.split(end).filter_map(|cell| Some(cell.rsplit_once('>')?.1.to_owned())).collect()
    };
    let names = cells(part(table, "<thead>", "</thead>"), "</th>");
    let rows: Vec<Vec<String>> = part(table, "<tbody>", "</tbody>")
        .lines()
        .map(|row| cells(row, "</td>"))
        .filter(|row| row.len() > 1)
        .collect();
    let column = |(at, name): (usize, &String)| {
        let number = |row: &Vec<String>| row[at].replace(',', "").parse().unwrap_or(f64::NAN);
        (name.split(" [").next().unwrap().to_owned(), rows.iter().map(number).collect())
    };
    // The first head is that of the times.
    names[1..].iter().enumerate().map(column).collect()
}

/// Two commands hold the memory one after the other.
// Requirement: OUT-34
#[test]
fn page_tells_which_command_held_the_memory_when_and_is_made_again_from_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [page, json, second, again] = ["run.html", "run.json", "second", "again.html"].map(path);
    std::os::unix::fs::symlink(program("touch"), &second).unwrap();
    let script =
        format!("{} hold {bytes} 300; {second} hold {bytes} 300", program("touch"), bytes = 80 << 20);
    let options = ["--st", "0.02", "-o", &page, "-o", &json, "--ru", "megabytes"];
    let run = tracked(["sh", "-c", &script]).only_options(&options).run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
    let written = fs::read_to_string(&page).unwrap();
    let columns = columns(&written, "RAM by command");
    let held = |name: &str| {
        let (_, values) =
            columns.iter().find(|(column, _)| column == name).unwrap_or_else(|| panic!("{columns:?}"));
        let held: Vec<usize> = (0..values.len()).filter(|at| values[*at] > 40.0).collect();
        (*held.first().unwrap_or_else(|| panic!("{name}: {columns:?}")), *held.last().unwrap())
    };
    assert!(held("touch").1 < held("second").0, "{columns:?}");
    for arguments in [
        &["report", &json, "-f", "html", "--ru", "megabytes"][..],
        &["report", &json, "-o", &again, "--ru", "megabytes"],
    ] {
        let shown = companion(arguments);
        assert_eq!((shown.status.code(), text(&shown.stderr)), (Some(0), String::new()));
        let shown =
            if arguments.contains(&"-o") { fs::read_to_string(&again).unwrap() } else { text(&shown.stdout) };
        assert_eq!(shown, written);
    }
}

// Requirement: OUT-34
#[test]
fn page_has_the_charts_of_each_gpu() {
    let gpus = FakeGpus::new(1, "0.samples ring 100 20000 37");
    let page = gpus.directory().join("run.html");
    let run = gpus
        .tracked(gpus.words(&["hold:0:500000000,c", "sampled"]))
        .options(&["-o", page.to_str().unwrap()])
        .run();
    let report = run.assert_clean(0);
    let page = fs::read_to_string(page).unwrap();
    let charts = part(&page, "<h3>GPU 0", "</figure>");
    for label in ["Utilization", "Memory", "Power"] {
        assert!(charts.contains(&format!("<p class=\"label\">{label}")), "{label}: {charts}");
    }
    assert!(charts.contains("of the run <b>500,000,000 B</b>"), "{charts}");
    assert_eq!(report.gpu(GPU0).f64("memory.max_combined_bytes"), 5e8);
}

// Requirement: OUT-36
#[test]
fn page_of_5000_processes_and_8_gpus_is_within_its_bytes() {
    const GPUS: usize = 8;
    let gpus = FakeGpus::new(GPUS, "*.samples ring 100 20000 37");
    let page = gpus.path("run.html");
    let holds: Vec<String> = (0..GPUS).map(|gpu| format!("hold:{gpu}:{}000000000,c", gpu + 1)).collect();
    let words: Vec<&str> = holds.iter().map(String::as_str).chain(["sampled"]).collect();
    let script = format!("{}; {} 5000", gpus.line(&words), program("fork_bomb"));
    let options = ["--heaviest", "60", "-o", &page];
    let run = gpus.tracked(["sh", "-c", &script]).options(&options).run();
    assert!(run.assert_clean(0).u64("processes.total") >= 5001);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.len() <= 120_000 + GPUS * 6_000, "{}", page.len());
    for gpu in 0..GPUS {
        let charts = part(&page, &format!("<h3>GPU {gpu}"), "</figure>");
        assert!(charts.contains(&format!("of the run <b>{},000,000,000 B</b>", gpu + 1)), "{charts}");
    }
}

// Requirement: OUT-34
#[test]
fn page_has_no_message_in_a_browser_and_is_the_same_without_scripts() {
    // The second GPU is idle. Its chart has a line at zero.
    let gpus = FakeGpus::new(2, "0.samples ring 100 20000 37\n1.utilization 0");
    let page = gpus.path("run.html");
    let command = gpus.words(&["hold:0:500000000,c", "sampled"]);
    gpus.tracked(command).options(&["-o", &page]).run().assert_clean(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/check-page");
    let checked = Command::new(script).arg(&page).output().unwrap();
    if checked.status.code() == Some(77) {
        skip!("{}", text(&checked.stdout).trim().trim_start_matches("SKIPPED scripts/check-page: "));
    }
    assert_eq!((checked.status.code(), text(&checked.stderr).as_str()), (Some(0), ""));
}

// Requirement: CMD-12
#[test]
fn page_of_what_is_no_report_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("run.json").to_str().unwrap().to_owned();
    let done = companion(&["run", "-q", "-o", &json, "--", "true"]);
    assert_eq!(done.status.code(), Some(0));
    let all = directory.path().to_str().unwrap();
    let page = directory.path().join("page.html").to_str().unwrap().to_owned();
    for arguments in [
        &["report", all, "-f", "html"][..],
        &["report", all, "-o", &page],
        &["report", &json, "--every", "1", "-f", "html"],
        &["report", &json, "--list-events", "-f", "html"],
        &["gpus", "-f", "html"],
        &["run", "--gpus", "-f", "html"],
    ] {
        let refused = companion(arguments);
        let stderr = text(&refused.stderr);
        assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains("\"html\""), "{arguments:?}: {stderr}");
        assert_eq!(text(&refused.stdout), "");
    }
    assert!(!fs::exists(page).unwrap());
}
