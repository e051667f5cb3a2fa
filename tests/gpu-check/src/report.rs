//! What is read of gpu-track-run's JSON report, and how it is made. The report has more keys.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::results::Results;

/// gpu-track-run's report.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Report {
    pub gpus: Vec<Gpu>,
    pub max_gpu_ram: MaxGpuRam,
    pub warnings: Vec<Warning>,
}

/// What a reader of the report should know.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Warning {
    pub text: String,
}

/// The tree's largest GPU memory, bytes; `None`: not known.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MaxGpuRam {
    pub combined: Option<f64>,
}

/// A device.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Gpu {
    pub id: String,
    pub name: Option<String>,
    pub visible: Option<bool>,
    pub memory: Memory,
    pub utilization: Utilization,
    pub power: Power,
    pub clocks: Clocks,
    pub pcie: Pcie,
    #[serde(default)]
    pub activity: Activity,
    pub max_temperature_c: Option<f64>,
    pub processes: Vec<Process>,
    pub missing: Vec<MissingFigure>,
    /// Absent in older versions.
    pub reading: Option<Reading>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Memory {
    pub total_bytes: Option<u64>,
    pub max_used_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Utilization {
    pub active_s: Option<f64>,
    pub mean_percent: Option<f64>,
    pub max_percent: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Power {
    pub mean_w: Option<f64>,
    pub max_w: Option<f64>,
    pub energy_j: Option<f64>,
    /// The time that it covers. Absent in older versions.
    pub energy_span_s: Option<f64>,
    pub integrated_energy_j: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Clocks {
    pub max_sm_mhz: Option<f64>,
}

/// What performance counters showed (GPM). Null before Hopper.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Activity {
    pub mean_sm_percent: Option<f64>,
    pub max_sm_percent: Option<f64>,
    pub mean_tensor_percent: Option<f64>,
    pub mean_memory_bandwidth_percent: Option<f64>,
    pub measured_s: Option<f64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pcie {
    pub rx_bytes: Option<f64>,
}

/// How often the device's processes were read.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reading {
    pub count: u64,
    pub mean_interval_s: Option<f64>,
    pub max_interval_s: Option<f64>,
}

/// A process on a device.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Process {
    pub pid: u32,
    pub driver_pid: u32,
    pub peak_bytes: Option<u64>,
    pub mean_sm_percent: Option<f64>,
    pub max_sm_percent: Option<f64>,
    /// Whether the peak comes from the driver's accounting.
    pub accounted: bool,
}

/// A figure that is not known, and why.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MissingFigure {
    pub figure: String,
    pub reason: String,
}

impl Report {
    /// The device with this UUID.
    pub(crate) fn gpu(&self, uuid: &str) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == uuid)
    }
}

impl Gpu {
    /// Why it lacks a figure; `None`: it has the figure.
    pub(crate) fn lacks(&self, figure: &str) -> Option<&str> {
        self.missing.iter().find(|missing| missing.figure == figure).map(|missing| missing.reason.as_str())
    }

    /// The process of this pid.
    pub(crate) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }
}

/// A path for a report of this process.
pub(crate) fn unused() -> PathBuf {
    std::env::temp_dir().join(format!("gpu-check.{}.json", std::process::id()))
}

/// The report on a command that runs under `tracker` with these options. `None`, as a failure, if the command failed.
pub(crate) fn tracked(
    results: &mut Results,
    tracker: &Path,
    options: &[&str],
    command: &[String],
    variables: &[(&str, &str)],
) -> Option<Report> {
    let path = unused();
    let mut run = Command::new(tracker);
    run.args(["-f", "json", "--gru", "bytes", "--tu", "seconds", "-o"].map(OsStr::new)).arg(&path);
    run.args(options).arg("--").args(command).envs(variables.iter().copied());
    // What a part prints to standard output is for its parent; its errors belong in the log.
    let output = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let errors = output.as_ref().map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    for line in errors.unwrap_or_default().lines() {
        results.note(line);
    }
    let status = output.map(|output| output.status);
    let text = std::fs::read_to_string(&path);
    let _ = std::fs::remove_file(&path);
    if !status.as_ref().is_ok_and(|status| status.success()) {
        results.check(
            "the command under gpu-track-run",
            false,
            &format!("{command:?} ended with {status:?}"),
        );
        return None;
    }
    let report = text.map_err(|error| error.to_string());
    match report.and_then(|text| serde_json::from_str::<Report>(&text).map_err(|error| error.to_string())) {
        Ok(report) => {
            for warning in &report.warnings {
                results.note(&format!("warning: {}", warning.text));
            }
            Some(report)
        }
        Err(error) => {
            results.check("gpu-track-run's report", false, &error);
            None
        }
    }
}
