//! What the launcher sends to the collector: first the configuration, then the start and end of the command.
//!
//! One pipe carries it, one JSON object per line. End of file without [`Message::Ended`] means that the launcher is
//! gone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::policy::SamplingPolicy;
use crate::model::cgroup::Cgroups;
use crate::model::gpu::GpuConfig;
use crate::model::style::{Output, Style};

/// Discovery layers in use (`--layers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The shim in every process.
    pub preload: bool,
    /// The shim's records of reaped children.
    pub wait: bool,
    /// The launcher as subreaper of orphans.
    pub subreaper: bool,
    /// The search in /proc for children of known processes.
    pub scan: bool,
    /// The kernel's process connector.
    pub connector: bool,
}

/// The configuration of a collector; the first line of the pipe.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// The command and its arguments, with bytes replaced that are not UTF-8.
    pub command: Vec<String>,
    /// The launcher, and when it began.
    pub start: SessionStart,
    /// Number of collectors of this run that were killed before this one.
    pub restarts: u32,
    /// Pid of the command, for a collector that starts while the command runs.
    pub running_pid: Option<u32>,
    /// How processes are found.
    pub discovery: DiscoveryConfig,
    /// Sampling interval, nanoseconds.
    pub interval_ns: u64,
    /// When samples are taken, and what they may cost.
    pub policy: SamplingPolicy,
    /// The cgroups that are read.
    pub cgroups: Cgroups,
    /// Which GPUs are tracked, and where to look for them.
    pub gpu: GpuConfig,
    /// What the report has, and where it goes.
    pub report: ReportConfig,
    /// `GPU_TRACK_JOURNAL`: the file that the run is written down to, for developers.
    pub journal: Option<PathBuf>,
}

/// The start of a session.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct SessionStart {
    /// Pid of the launcher, in the collector's pid namespace.
    pub launcher_pid: u32,
    /// Inode of the pid namespace of launcher and collector.
    pub pid_ns: u32,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// Nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Processes and threads that the machine had created by then, if the kernel counts them.
    pub forks_before: Option<u64>,
}

/// How processes are found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoveryConfig {
    /// Layers in use.
    pub layers: Layers,
    /// The directory of the shim, if it is preloaded.
    pub shim_directory: Option<String>,
    /// Why there is no process connector.
    pub connector_absent: Option<String>,
}

/// What the report has, and where it goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReportConfig {
    /// Where it is written.
    pub output: Output,
    /// How it is written.
    pub style: Style,
    /// `--disable-logs`: write nothing else to stderr.
    pub disable_logs: bool,
    /// `--n-expected-cores`.
    pub expected_cores: Option<u32>,
    /// `--heaviest`: how many processes it lists at most, by CPU time and by peak RSS each.
    pub most_heaviest: usize,
    /// Warnings of the launcher.
    pub warnings: Vec<String>,
}

/// What happens to the command; the lines after the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The command runs.
    Started {
        /// Pid of the command.
        pid: u32,
        /// CLOCK_MONOTONIC before its fork, nanoseconds.
        monotonic_ns: u64,
    },
    /// A process sent the launcher a signal while the command ran, the first of this number.
    Signalled {
        /// Its number.
        signal: i32,
        /// CLOCK_MONOTONIC when the launcher took it, nanoseconds.
        monotonic_ns: u64,
        /// The sender's pid, in the launcher's pid namespace.
        sender_pid: u32,
        /// Its user.
        sender_uid: u32,
    },
    /// The command could not be executed.
    Cancelled,
    /// The command (with `--wait-all`: the whole tree) ended.
    Ended {
        /// The command's wait status.
        status: i32,
        /// CLOCK_MONOTONIC when the launcher saw the end, nanoseconds.
        monotonic_ns: u64,
        /// RUSAGE_CHILDREN of the launcher since its start, without collectors that it reaped, microseconds.
        children_cpu_us: u64,
    },
}

#[cfg(test)]
impl Config {
    /// That of a made-up run.
    pub(crate) fn of_test() -> Self {
        Self {
            command: vec!["prog".into()],
            start: SessionStart {
                launcher_pid: 100,
                pid_ns: 1,
                monotonic_ns: 1,
                realtime_ns: 1_000_000_001,
                forks_before: None,
            },
            restarts: 0,
            running_pid: None,
            discovery: DiscoveryConfig {
                layers: Layers { preload: true, wait: true, subreaper: true, scan: true, connector: true },
                shim_directory: None,
                connector_absent: None,
            },
            interval_ns: 100_000_000,
            policy: SamplingPolicy::default(),
            cgroups: Cgroups::default(),
            gpu: GpuConfig { root: PathBuf::from("/nonexistent"), ..GpuConfig::default() },
            report: ReportConfig {
                output: Output::Stderr,
                style: Style::default(),
                disable_logs: false,
                expected_cores: None,
                most_heaviest: 10,
                warnings: Vec::new(),
            },
            journal: None,
        }
    }
}
