//! A cluster of hosts on this machine, for tests of what crosses nodes.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::run::{BINARY, cache_home};

/// The program that runs a command on a host (`PROGRAM exec n1 COMMAND`, `PROGRAM ssh`), to one test at a time: one changes
/// what its hosts have.
///
/// # Errors
/// If there is none: why a test is skipped.
pub fn cluster() -> Result<(String, MutexGuard<'static, ()>), &'static str> {
    static TURN: Mutex<()> = Mutex::new(());
    let program = std::env::var("GPU_TRACK_TEST_CLUSTER")
        .map_err(|_| "needs a cluster of hosts n1 and n2 (GPU_TRACK_TEST_CLUSTER)")?;
    Ok((program, TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// What a run on a cluster came to: its status, what it printed, and its report.
type Ended = (Option<i32>, String, Option<Value>);

/// The words before a line that runs in a job of Slurm, with two tasks on each of two nodes.
pub const IN_JOB: &[&str] = &["salloc", "-Q", "-N2", "-n4", "sh", "-c"];

/// Runs a line on n1. TRACK in it stands for gpu-track-run over several nodes, or for nothing.
pub fn on_n1(cluster: &str, line: &str, is_tracked: bool) -> Ended {
    run_on_n1(cluster, &["sh", "-c"], line, is_tracked)
}

/// Runs a line in a job of Slurm with two tasks on each of two nodes, as [`on_n1`] does.
///
/// # Errors
/// If the cluster has no Slurm.
pub fn on_slurm(cluster: &str, line: &str, is_tracked: bool) -> Result<Ended, &'static str> {
    let ping = Command::new(cluster).args(["exec", "n1", "scontrol", "ping"]).output().unwrap();
    if !ping.status.success() {
        return Err("needs a cluster with Slurm (GPU_TRACK_TEST_CLUSTER)");
    }
    Ok(run_on_n1(cluster, IN_JOB, line, is_tracked))
}

/// Runs a command on a host, which must succeed.
pub fn on_host(cluster: &str, host: &str, command: &[&str]) {
    let status = Command::new(cluster).args(["exec", host]).args(command).status().unwrap();
    assert!(status.success(), "{host}: {command:?}");
}

fn run_on_n1(cluster: &str, shell: &[&str], line: &str, is_tracked: bool) -> Ended {
    run_in(&tempfile::tempdir().unwrap(), cluster, shell, line, is_tracked)
}

/// As [`on_n1`] and [`on_slurm`], in this directory. `shell`: the words before the line.
pub fn run_in(
    directory: &tempfile::TempDir,
    cluster: &str,
    shell: &[&str],
    line: &str,
    is_tracked: bool,
) -> Ended {
    let path = directory.path().display();
    let line = line.replace("TRACK ", if is_tracked { "$TRACK " } else { "" });
    let output = Command::new(cluster)
        .args(["exec", "n1"])
        .args(shell)
        .arg(format!("cd {path}; {line}"))
        .env("TRACK", format!("{BINARY} -q -o {path}/r.json --"))
        .env("XDG_CACHE_HOME", cache_home())
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .output()
        .unwrap();
    let report = fs::read(directory.path().join("r.json")).ok();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text, report.map(|report| serde_json::from_slice(&report).unwrap()))
}

/// How many processes the report has of a node.
pub fn on_node(report: &Value, name: &str) -> Option<u64> {
    let nodes = report["nodes"].as_array()?;
    nodes.iter().find(|node| node["node"] == name)?["processes"].as_u64()
}
