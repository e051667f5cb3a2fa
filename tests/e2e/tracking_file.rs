//! `--tf FILE.csv`: the run over time.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::gpu_tracker::theirs;
use crate::support::gpu::FakeGpus;
use crate::support::rows::Rows;
use crate::support::{Run, kill, or_skip, program, tracked, wait_until};

/// A job with memory that comes and goes: in its first process, in a child, and in one shorter than an interval.
pub const JOB: &str = "b = bytearray(150_000_000)
import subprocess, sys, time
run = lambda code: subprocess.run([sys.executable, '-c', code])
run('import time; b = bytearray(200_000_000); time.sleep(0.5)')
run('b = bytearray(300_000_000)')
t = time.time()
while time.time() < t + 0.5: pass
";

struct Tracked {
    run: Run,
    rows: Rows,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

fn with_rows(command: &[&str], options: &[&str]) -> Tracked {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    let run =
        tracked(command.iter().copied()).options(options).options(&["--tf", path.to_str().unwrap()]).run();
    assert_eq!(run.stderr, "");
    Tracked { run, rows: Rows::read(&path), path, _directory: directory }
}

/// What the file has as the largest of a column, and the report at a path; `max_column` has the reason of a difference.
fn assert_agrees(tracked: &Tracked, column: &str, path: &str, max_column: &str) {
    let (rows, reported) = (tracked.rows.max(column), tracked.run.report().f64(path));
    let is_near = (rows - reported).abs() <= reported * 0.03 + 1e5;
    let is_explained =
        (tracked.rows.last(max_column) - reported).abs() <= 1.0 && tracked.rows.last("max_ram_source") > 0.0;
    assert!(is_near || is_explained, "{column}: {rows} in the file, {reported} in the report");
}

// Requirement: TIME-1
#[test]
fn largest_of_the_rows_are_the_reports_figures() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let tracked = with_rows(&["python3", "-c", JOB], &["--st", "0.1"]);
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert_eq!(tracked.run.status.code(), Some(0));
    for set in ["main", "descendants", "combined"] {
        let total = format!("max_ram.{set}.total_rss");
        assert_agrees(&tracked, &format!("{set}_ram"), &total, &format!("max_{set}_ram"));
        assert_eq!(
            tracked.rows.last(&format!("max_{set}_ram")),
            tracked.run.report().f64(&total),
            "the last row's maximum"
        );
    }
    let report = tracked.run.report();
    assert_eq!(tracked.rows.max("system_ram"), report.f64("max_ram.system"));
    assert_eq!(tracked.rows.max("main_n_threads"), report.f64("cpu_utilization.main_n_threads"));
    assert_eq!(tracked.rows.max("n_processes"), report.f64("processes.max_concurrent"));
    let cpu = report.f64("cpu_utilization.combined.max_sum_percent");
    assert!((tracked.rows.max("cpu_combined_sum_utilization_percent") - cpu).abs() <= cpu * 0.03, "{cpu}");
    let times = tracked.rows.column("timestamp");
    assert!(times.iter().all(|time| (before..=after).contains(time)), "{before} {times:?} {after}");
    assert!(tracked.rows.keys().is_sorted_by(|a, b| a < b));
    assert_eq!(tracked.rows.fixed["ram_unit"], "bytes");
    assert_eq!(tracked.rows.fixed["system_core_count"], report.u64("host.cores").to_string());
}

// Requirement: TIME-1
#[test]
fn shortest_run_has_a_row_in_which_only_its_states_can_be_unknown() {
    let tracked = with_rows(&["/bin/true"], &["--ru", "megabytes", "--st", "1000"]);
    assert_eq!(tracked.rows.keys().len(), 1);
    let text = std::fs::read_to_string(&tracked.path).unwrap();
    let cells = |line: usize| text.lines().nth(line).unwrap().split(',');
    let empty = cells(2).zip(cells(3)).filter(|(_, cell)| cell.is_empty()).map(|(column, _)| column);
    assert!(empty.clone().all(|column| column.starts_with("time_")), "{text}");
    assert_eq!(
        tracked.rows.last("max_combined_ram") * 1e6,
        tracked.run.report().f64("max_ram.combined.total_rss") * 1e6
    );
}

// Requirement: TIME-1, TIME-12
#[test]
fn gpu_trackers_own_program_reads_the_files() {
    let program = or_skip!(theirs());
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("t.sqlite");
    let tracked = with_rows(
        &["python3", "-c", JOB],
        &["--ru", "gigabytes", "--st", "0.1", "--tf", database.to_str().unwrap()],
    );
    let times = tracked.rows.column("timestamp");
    let (first, last) = (times[0] - 0.05, times[times.len() - 1] + 0.05);
    let marks = tracked.path.with_file_name("marks.csv");
    let lines = format!("7,block,0,{first:.6}\n7,block,1,{last:.6}\n");
    std::fs::write(&marks, format!("process_id,code_block_name,position,timestamp\n{lines}")).unwrap();
    let marks_table = marks.with_extension("sqlite");
    let insert = format!(
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1])
db.execute('CREATE TABLE data (process_id INTEGER, code_block_name VARCHAR, position INTEGER, timestamp FLOAT)')
db.executemany('INSERT INTO data VALUES (7, \"block\", ?, ?)', [(0, {first}), (1, {last})]); db.commit()"
    );
    assert!(Command::new("python3").args(["-c", &insert]).arg(&marks_table).status().unwrap().success());
    for (file, marks) in [(&tracked.path, &marks), (&database, &marks_table)] {
        let args = ["sub-track", "analyze", "--format=json"].map(str::to_owned);
        let files = [format!("--tf={}", file.display()), format!("--stf={}", marks.display())];
        let read = Command::new(&program).args(args).args(files).output().unwrap();
        let text = String::from_utf8_lossy(&read.stdout);
        assert!(
            read.status.success() && !text.contains("NaN"),
            "{text}{}",
            String::from_utf8_lossy(&read.stderr)
        );
        let results: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(results["static_data"]["ram_unit"], "gigabytes");
        assert_eq!(results["code_block_results"][0]["name"], "block", "{text}");
        for column in ["combined_ram", "cpu_combined_sum_utilization_percent", "combined_n_threads"] {
            let (overall, largest) = (&results["overall"][column], tracked.rows.max(column));
            assert_eq!(overall["max"].as_f64(), Some(largest), "{column}: {text}");
            let values = tracked.rows.column(column);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let is_mean = |found: &Value| (found.as_f64().unwrap() - mean).abs() <= mean * 1e-6;
            assert!(is_mean(&overall["mean"]), "{column}: {text}");
            let block = &results["code_block_results"][0]["resource_usage"][column];
            assert_eq!(block["max"].as_f64(), Some(largest), "{column}: {text}");
            assert!(is_mean(&block["mean"]), "{column}: {text}");
        }
    }
}

/// Runs a command that leaves a mark if it is started.
fn is_refused(options: &[&str], directory: &Path) -> String {
    let mark = directory.join("mark");
    let run = tracked(["touch", mark.to_str().unwrap()]).options(options).run();
    assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(2), 1), "{}", run.stderr);
    assert!(!mark.exists(), "the command was started");
    run.stderr.clone()
}

// Requirement: TIME-5
#[test]
fn file_that_can_not_be_written_is_refused_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("old.csv"), "old").unwrap();
    std::fs::create_dir(path("dir.csv")).unwrap();
    for (name, part) in [
        ("old.csv", "exists: give --overwrite"),
        ("t.parquet", "ends in .csv, .jsonl, .pftrace or .sqlite"),
        ("t.txt", "ends in .csv"),
        ("dir.csv", "is a directory"),
        ("no/such.csv", "does not exist: create it first"),
    ] {
        let line = is_refused(&["--tf", &path(name)], directory.path());
        assert!(line.contains("--tf") && line.contains(part), "{line}");
    }
    let twice = directory.path().join(".").join("a.csv");
    let line = is_refused(&["--tf", &path("a.csv"), "--tf", twice.to_str().unwrap()], directory.path());
    assert!(line.contains("same file as another --tf"), "{line}");
    let line = is_refused(&["-o", &path("r.csv"), "--tf", &path("r.csv")], directory.path());
    assert!(line.contains("file of the report"), "{line}");
    assert_eq!(std::fs::read_to_string(path("old.csv")).unwrap(), "old");
}

// Requirement: TIME-13
#[test]
fn database_is_refused_where_it_can_not_be_locked_or_another_user_could_replace_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("old.sqlite"), "old").unwrap();
    for name in ["t.sqlite", "old.sqlite"] {
        let run = tracked(["touch", &path("mark")])
            .through(&[&program("refused"), "locks"])
            .options(&["--overwrite", "--tf", &path(name)])
            .run();
        assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(2), 1), "{}", run.stderr);
        assert!(run.stderr.contains("locks that SQLite needs (No locks available"), "{}", run.stderr);
        assert!(run.stderr.contains("ends in .csv"), "{}", run.stderr);
    }
    assert_eq!(std::fs::read_to_string(path("old.sqlite")).unwrap(), "old");
    assert!(!directory.path().join("t.sqlite").exists() && !directory.path().join("mark").exists());

    let open = directory.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let line = is_refused(&["--tf", &path("open/t.sqlite")], directory.path());
    assert!(line.contains("other users can write to") && line.contains("ends in .csv"), "{line}");
    let run = tracked(["/bin/true"]).options(&["--tf", &path("open/t.csv")]).run();
    assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
}

// Requirement: TIME-5, CMD-14
#[test]
fn file_is_replaced_if_asked_for_on_the_command_line_or_in_tconfig() {
    let directory = tempfile::tempdir().unwrap();
    let (path, config) = (directory.path().join("t.csv"), directory.path().join("c.json"));
    let json = serde_json::json!({"tracking_file": path, "overwrite": true});
    std::fs::write(&config, json.to_string()).unwrap();
    for options in
        [["--tconfig", config.to_str().unwrap(), "--full"], ["--overwrite", "--tf", path.to_str().unwrap()]]
    {
        std::fs::write(&path, "old").unwrap();
        let run = tracked(["/bin/true"]).options(&options).run();
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""));
        // On a busy machine there is time for a second sample.
        assert!(!Rows::read(&path).keys().is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}

// Requirement: TIME-2, TIME-5
#[test]
fn each_of_several_files_gets_the_rows_and_a_failed_one_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let [stop, a, b] = [path("stop"), path("a.csv"), path("b.csv")];
    let until_stop = "while [ ! -e \"$0\" ]; do sleep 0.01; done";
    let running = tracked(["sh", "-c", until_stop, stop.to_str().unwrap()])
        .options(&["--st", "0.02", "--tf", a.to_str().unwrap(), "--tf", b.to_str().unwrap()])
        .start();
    wait_until("rows in both", || {
        [&a, &b].iter().all(|path| path.metadata().is_ok_and(|file| file.len() > 0))
    });
    std::fs::rename(&b, path("moved")).unwrap();
    std::fs::write(&b, "not to be touched").unwrap();
    let collector = running.wait_for_collector();
    kill(collector, libc::SIGKILL);
    let before = a.metadata().unwrap().len();
    wait_until("rows of another collector", || a.metadata().unwrap().len() > before + 2000);
    std::fs::write(&stop, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let warnings = run.report().warnings();
    assert!(warnings.contains("b.csv could not be written") && !warnings.contains("a.csv"), "{warnings}");
    assert_eq!(std::fs::read_to_string(&b).unwrap(), "not to be touched");
    let (all, moved) = (Rows::read(&a).keys(), Rows::read(&path("moved")).keys());
    assert!(all.len() > moved.len() && all.is_sorted_by(|a, b| a < b), "{all:?} {moved:?}");
    // A kill may come between the two files.
    assert_eq!(all[..moved.len() - 1], moved[..moved.len() - 1]);
}

#[test]
fn command_that_can_not_run_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    let run = tracked(["/no/such/command"]).options(&["--tf", path.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(127));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

// Requirement: TIME-1
#[test]
fn gpu_columns_have_the_reports_maxima() {
    let gpus = FakeGpus::new(2, "*.samples 500000:0\n*.process_times");
    let busy = gpus.script(
        "busy",
        "0.memory_used 3000000000\n0.samples 500001:0 1500001:80 2500001:40\n1.samples 500001:0 1500001:0",
    );
    let (directory, script) = (tempfile::tempdir().unwrap(), format!("script:{busy}"));
    let path = directory.path().join("t.csv");
    let words = gpus.words(&[
        "sampled",
        "hold:0:2000000000,c,60",
        &script,
        "sampled",
        "hold:1:500000000,c",
        "sampled",
    ]);
    let run = gpus.tracked(words).options(&["--tf", path.to_str().unwrap()]).run();
    let (report, rows) = (run.assert_clean(0), Rows::read(&path));
    for (column, reported) in [
        ("main_gpu_ram", "max_gpu_ram.main"),
        ("combined_gpu_ram", "max_gpu_ram.combined"),
        ("system_gpu_ram", "max_gpu_ram.system"),
        ("gpu_sum_utilization_percent", "gpu_utilization.gpu_percentages.max_sum_percent"),
        ("gpu_hardware_utilization_percent", "gpu_utilization.gpu_percentages.max_hardware_percent"),
    ] {
        assert_eq!(rows.known_max(column), report.f64(reported), "{column}");
    }
    assert_eq!((rows.fixed["system_gpu_count"].as_str(), rows.fixed["n_expected_gpus"].as_str()), ("2", "2"));
    let capacity: f64 = rows.fixed["gpu_ram_system_capacity"].parse().unwrap();
    assert_eq!(capacity, report.f64("max_gpu_ram.system_capacity"));
}
