//! What the launcher sends to the collector: first the configuration, then the start and end of the command, and answers
//! to orders. The groups of options that the collector obeys are parts of the configuration, with what the launcher adds to them.
//!
//! One pipe carries it, one JSON object per line. End of file without [`Message::Ended`] means that the launcher is
//! gone.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use serde::{Deserialize, Serialize};

use super::order::{OrderId, OrderResult};
use super::policy::SamplingPolicy;
use crate::model::cgroup::Cgroups;
use crate::model::gpu::GpuConfig;
use crate::model::style::{Output, StreamFile, Style};
use crate::model::values::{cores, seconds};

/// A discovery layer, by the name that the report uses too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[expect(missing_docs, reason = "clap would add them to the completions")]
pub enum Layer {
    // The shim in every process.
    Preload,
    // The shim's records of reaped children.
    Wait,
    // The launcher as subreaper of orphans.
    Subreaper,
    // The search in /proc for children of known processes.
    Scan,
    // The kernel's process connector.
    Connector,
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
    /// Pid of the command, for a collector that replaces another. The command may have ended.
    pub main_pid: Option<u32>,
    /// How processes are found.
    pub discovery: DiscoveryConfig,
    /// How the run is tracked.
    pub tracking: TrackingConfig,
    /// When samples are taken, and what they may cost.
    pub policy: SamplingPolicy,
    /// The cgroups that are read.
    pub cgroups: Cgroups,
    /// Which GPUs are tracked, and where to look for them.
    pub gpu: GpuConfig,
    /// What the report has, and where it goes.
    pub report: ReportConfig,
    /// `--journal`: the file that the run is written down to, for developers.
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
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Diagnosis")]
pub struct DiscoveryConfig {
    /// Discovery layers to use
    #[arg(long, value_name = "LIST", hide_possible_values = true, value_delimiter = ',',
          action = ArgAction::Append, default_value = "preload,wait,subreaper,scan,connector", value_enum)]
    pub layers: Vec<Layer>,

    /// The directory of the shim, if it is preloaded.
    #[arg(skip)]
    pub shim_directory: Option<String>,

    /// Why there is no process connector.
    #[arg(skip)]
    pub connector_absent: Option<String>,
}

impl DiscoveryConfig {
    /// Whether a layer is in use.
    #[must_use]
    pub fn uses(&self, layer: Layer) -> bool {
        self.layers.contains(&layer)
    }
}

/// How the run is tracked. What only the launcher obeys is not sent.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Tracking")]
pub struct TrackingConfig {
    /// Time between two samples, at least 0.001 [default: 0.1]
    #[arg(long = "st", visible_alias = "sleep-time", value_name = "SECONDS", allow_negative_numbers = true,
          value_parser = seconds)]
    pub sleep_time: Option<Duration>,

    /// Number of cores that COMMAND should use, for the hardware percentages [default: all of the machine]
    #[arg(long = "nec", visible_alias = "n-expected-cores", value_name = "N", allow_negative_numbers = true,
          value_parser = cores)]
    pub expected_cores: Option<u32>,

    /// Read options from a JSON file with gpu_tracker's keywords (sleep_time, ram_unit, ...); options on the command
    /// line override them. Keywords without a meaning here are named on stderr
    #[arg(long = "tconfig", value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Write the run over time to FILE, which must end in .csv: a row for each interval, in the form of gpu_tracker's tracking
    /// file. Its name has the patterns of --output
    #[arg(long = "tf", visible_alias = "tracking-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[serde(skip)]
    pub tracking_file: Option<PathBuf>,

    /// Replace the file of --tf if it exists
    #[arg(long)]
    #[serde(skip)]
    pub overwrite: bool,

    /// The file of --tf, which the launcher made.
    #[arg(skip)]
    pub tracking_target: Option<StreamFile>,

    /// Write no warnings to stderr while COMMAND runs
    #[arg(long)]
    pub disable_logs: bool,

    /// Whether the user is told what `--wait-all` waits for.
    #[arg(skip)]
    pub tells_waiting: bool,

    /// Run COMMAND in a cgroup (v2) of its own, and add the kernel's figures for that cgroup to the report
    #[arg(long)]
    #[serde(skip)]
    pub cgroup: bool,
}

impl TrackingConfig {
    /// Time between two samples; if the user gives none, a tenth of gpu_tracker's, since a sample takes only microseconds.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.sleep_time.unwrap_or(Duration::from_millis(100))
    }

    /// The same in nanoseconds.
    #[must_use]
    pub fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What the report has, and where it goes.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Report")]
pub struct ReportConfig {
    /// How it is written.
    #[command(flatten)]
    pub style: Style,

    /// List the N processes with the most CPU time and the N with the largest peak RSS
    #[arg(long = "heaviest", value_name = "N", default_value_t = 10)]
    pub most_heaviest: usize,

    /// Name of its form.
    #[arg(skip)]
    pub format: String,

    /// Where it is written.
    #[arg(skip)]
    pub output: Output,

    /// Warnings of the launcher.
    #[arg(skip)]
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
    /// The command has ended, and the launcher waits for its tree (`--wait-all`).
    WaitingForTree {
        /// CLOCK_MONOTONIC when the launcher saw the command's end, nanoseconds.
        since_ns: u64,
    },
    /// The launcher has obeyed an order, or an earlier collector's of this id.
    OrderAnswered {
        /// The order.
        id: OrderId,
        /// What came of it.
        result: OrderResult,
    },
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

/// A group of options of which none is given.
#[cfg(any(test, feature = "test-support"))]
#[must_use]
pub fn without_options<T: Args>() -> T {
    let matches = T::augment_args(clap::Command::new("")).get_matches_from([""]);
    T::from_arg_matches(&matches).expect("all have defaults")
}

#[cfg(any(test, feature = "test-support"))]
impl Config {
    /// That of a made-up run.
    pub fn of_test() -> Self {
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
            main_pid: None,
            discovery: without_options(),
            tracking: without_options(),
            policy: SamplingPolicy::default(),
            cgroups: Cgroups::default(),
            gpu: GpuConfig { root: PathBuf::from("/nonexistent"), ..GpuConfig::default() },
            report: without_options(),
            journal: None,
        }
    }
}
