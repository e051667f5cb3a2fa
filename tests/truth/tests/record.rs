//! The recorder with commands whose processes are known. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs the recorder. If this user may not, writes a line that scripts/test counts, and gives `None`.
fn record(output: &Path, options: &[&str], command: &[&str]) -> Option<Value> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        // Written to the descriptor directly, because cargo captures what a passing test prints.
        let line = format!("SKIPPED {name}: needs root (process connector, taskstats, cgroup)\n");
        drop(std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()));
        return None;
    }
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_gpu-track-truth"));
    recorder.args(["record", "-o"]).arg(output).args(options).arg("--").args(command);
    assert!(recorder.status().unwrap().success());
    Some(serde_json::from_slice(&std::fs::read(output).unwrap()).unwrap())
}

/// Name, number of execs and status of each process.
fn summary(record: &Value) -> Vec<(&str, u64, u64)> {
    let processes = record["processes"].as_array().unwrap();
    processes
        .iter()
        .map(|p| (p["comm"].as_str().unwrap(), p["execs"].as_u64().unwrap(), p["status"].as_u64().unwrap()))
        .collect()
}

#[test]
fn shell_and_its_children_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let script = "/bin/true; (exit 3); i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -9 $$; exit 0";
    let command = ["env", "--", "@", "sh", "-c", script];
    let Some(record) = record(&directory.path().join("truth"), &[], &command) else { return };
    // env is outside of the counted tree, and the exec of our own executable in the root is not counted.
    assert_eq!(summary(&record), [("sh", 1, 9), ("true", 1, 0), ("sh", 0, 3 << 8)]);
    assert_eq!(record["status"], 9);
    assert_eq!((&record["left_at_end"], &record["killed"]), (&0.into(), &serde_json::json!([])));
    let processes = record["processes"].as_array().unwrap();
    for process in &processes[1..] {
        assert_eq!(process["ppid"], processes[0]["pid"]);
        assert!(process["start_s"].as_f64() < process["end_s"].as_f64(), "{process}");
    }
    assert!(processes.iter().all(|p| p["hiwater_rss_bytes"].as_u64() > Some(100_000)), "{record}");
    let (cpu_s, wall_s) = (record["cpu_s"].as_f64().unwrap(), record["wall_s"].as_f64().unwrap());
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(cpu_s > 0.01 && cpu_s <= cores * wall_s, "{record}");
    assert!(record["cpu_at_end_s"].as_f64() <= record["cpu_s"].as_f64(), "{record}");
}

#[test]
fn processes_left_behind_are_recorded_and_killed() {
    let directory = tempfile::tempdir().unwrap();
    // The daemon reports that it has started and then reads from a FIFO for ever; the recorder kills it.
    let [ready, fifo] = ["ready", "fifo"].map(|name| directory.path().join(name).display().to_string());
    let script =
        format!("mkfifo {ready} {fifo}; sh -c 'echo >{ready}; read x <>{fifo}' & read x <{ready}; exit 0");
    let command = ["sh", "-c", &script];
    let Some(record) = record(&directory.path().join("truth"), &["--grace", "0"], &command) else { return };
    assert_eq!(summary(&record), [("sh", 1, 0), ("mkfifo", 1, 0), ("sh", 1, 9)]);
    assert_eq!((&record["left_at_end"], &record["status"]), (&1.into(), &0.into()));
    assert_eq!(record["killed"], serde_json::json!([record["processes"][2]["pid"]]));
}
