//! The options as clap knows them: the single source of parsing, `--help`, the man page and the completions. `groups.rs` has
//! those that the collector obeys, and `rules.rs` the limits and alerts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, Parser, ValueHint};
use clap_complete::Shell;
use gpu_track_collector::model::config::{DiscoveryConfig, ReportConfig, TrackingConfig};
use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::policy::SamplingPolicy;
use gpu_track_collector::report::format;

use super::agent_spec::AgentSpec;
use super::groups::{DiscoveryArgs, GpuArgs, Preparations, ReportArgs, TrackingArgs};
use super::rules::{AlertArgs, LimitArgs};
use super::values::{descriptor, pid};
use crate::process::exit::Manner;
use crate::process::spawn::Program;

/// The sections of help and man page after the options.
const AFTER_HELP: &str = "\
Examples:
  gpu-track-run make -j4
  gpu-track-run -f json -o usage.%j.json -- mpirun -n 4 ./app --steps 100
  gpu-track-run -o - -- sh -c 'zcat reads.gz | sort | uniq -c'
  gpu-track-run -e \"python train.py --epochs 10\" --ru megabytes --tu seconds
  gpu-track-run --attach 1234 -f json -o usage.json
  gpu-track-run --recover -f json -o killed.%p.json
  gpu-track-run --last --full

Exit status:
  The exit status of COMMAND; if a signal ended COMMAND, the same signal ends gpu-track-run
  126  COMMAND cannot be executed
  127  COMMAND is not found
  124  a limit was exceeded, and SIGTERM ended all processes; 137 where SIGKILL was needed
  2    an option is wrong, and COMMAND was not started
  With --attach: 0 if the process was tracked, 2 if it can't be, 1 if tracking could not begin
  With --recover: 0 if there was a run to recover and each has its report, otherwise 1
  With --last: 0 if a report was kept and is written, otherwise 1";

/// The format where neither `-f` nor the file's name tells one.
const DEFAULT_FORMAT: &str = "text";

/// The options of `-h` in their order, by their ids.
pub(super) const SHORT_HELP: [&str; 14] = [
    "execute",
    "wait_all",
    "outputs",
    "format",
    "full",
    "quiet",
    "ram_unit",
    "time_unit",
    "sleep_time",
    "gpus",
    "last",
    "short_help",
    "help",
    "version",
];
/// The section of `-h` after the options.
pub(super) const AFTER_SHORT_HELP: &str = "\
Examples:
  gpu-track-run make -j4
  gpu-track-run -f json -o usage.%j.json -- mpirun -n 4 ./app --steps 100";

/// Runs a command and reports what its whole process tree used: RAM, CPU, GPU RAM, GPU utilization, I/O and time.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "gpu-track-run",
    version,
    override_usage = "gpu-track-run [OPTIONS] [--] COMMAND [ARG]...\n       \
                      gpu-track-run [OPTIONS] -e \"COMMAND ARG...\"",
    after_help = AFTER_HELP,
    args_override_self = true,
    disable_help_flag = true,
    disable_version_flag = true,
    max_term_width = 100
)]
pub(super) struct Arguments {
    #[command(flatten)]
    command: CommandOptions,

    #[command(flatten)]
    places: ReportPlaces,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    tracking: TrackingArgs,
    #[command(flatten)]
    preparations: Preparations,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    alerts: AlertArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    #[command(flatten)]
    pub(super) information: InformationOptions,
    #[command(flatten)]
    discovery: DiscoveryArgs,
    #[command(flatten)]
    diagnosis: DiagnosisOptions,
}

/// What the user asks for, and what follows from it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// What to run.
    pub(crate) command: CommandOptions,
    /// Where the report goes, in the user's words.
    pub(crate) places: ReportPlaces,
    /// What the report has, and where it goes, worked out from `places` and others.
    pub(crate) report: ReportConfig,
    /// How the run is tracked.
    pub(crate) tracking: TrackingConfig,
    /// What the launcher prepares for the tracking.
    pub(crate) preparations: Preparations,
    /// Which GPUs are tracked.
    pub(crate) gpu: GpuConfig,
    /// What to print instead of running a command.
    pub(crate) information: InformationOptions,
    /// How processes are found.
    pub(crate) discovery: DiscoveryConfig,
    /// Options for developers, and for programs that don't work with the shim.
    pub(crate) diagnosis: DiagnosisOptions,
    /// What was given and has no effect, in a line for the user.
    pub(crate) without_effect: Option<String>,
    /// The rank, if this is one of several with the same command line.
    pub(crate) rank: Option<u32>,
    /// The name of the job whose ranks make one report. `None`: each rank has a report of its own, or there is only one.
    pub(crate) joint_job: Option<OsString>,
    /// How the launcher ends.
    pub(crate) exit_manner: Manner,
    /// Pid of the launcher's relay, the process that the caller takes for gpu-track-run. `None`: there is none.
    pub(crate) relay: Option<u32>,
}

impl From<Arguments> for Options {
    fn from(arguments: Arguments) -> Self {
        let mut tracking = TrackingConfig::from(arguments.tracking);
        let mut preparations = arguments.preparations;
        tracking.limits = arguments.limits.into();
        (tracking.alerts, preparations.events, preparations.on_alert) = arguments.alerts.into();
        Self {
            command: arguments.command,
            places: arguments.places,
            report: arguments.report.into(),
            tracking,
            preparations,
            gpu: arguments.gpu.into(),
            information: arguments.information,
            discovery: arguments.discovery.into(),
            diagnosis: arguments.diagnosis,
            without_effect: None,
            rank: None,
            joint_job: None,
            exit_manner: Manner::default(),
            relay: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Command")]
pub(crate) struct CommandOptions {
    /// The command to run; options after COMMAND belong to it
    #[arg(id = "command", value_name = "COMMAND", display_order = 0, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(crate) words: Vec<OsString>,

    /// The command in one string, split into words as a shell does it. No shell runs it
    #[arg(short = 'e', long, value_name = "COMMAND", display_order = 1,
          value_hint = ValueHint::CommandString, conflicts_with = "command")]
    pub(crate) execute: Option<String>,

    /// End when the last process of the tree ends, not when COMMAND ends
    #[arg(long, display_order = 2)]
    pub(crate) wait_all: bool,

    /// Track the process PID, which runs already, and its descendants, until it ends or a signal ends gpu-track-run (Ctrl-C). It
    /// runs on, and counts from then on
    #[arg(long, value_name = "PID", display_order = 3, allow_negative_numbers = true, value_parser = pid,
          conflicts_with_all = ["command", "execute", "wait_all", "nodes", "cgroup", "containers", "limits", "signals", "gpus", "recover",
                               "last"])]
    pub(crate) attach: Option<u32>,

    /// With --attach: when the run has begun, write a line of JSON to the descriptor FD. It has the environment variables by which
    /// programs that are started from then on report to this run
    #[arg(long, value_name = "FD", display_order = 4,
          allow_negative_numbers = true, value_parser = descriptor)]
    pub(crate) ready_fd: Option<i32>,

    /// The file of the program that runs behind a stand-in; the words are its arguments
    #[arg(skip)]
    pub(crate) behind: Option<OsString>,
}

impl CommandOptions {
    /// What is executed.
    pub(crate) fn program(&self) -> Program<'_> {
        Program { words: &self.words, behind: self.behind.as_deref() }
    }
}

/// Where the report goes, and in which form.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportPlaces {
    /// Write the report to FILE ("-": stdout) instead of stderr; repeatable. In its name, %j is the batch
    /// job's id (or "nojob"), %r the task's rank (or "norank"), %h the host, and %p the pid. %t is the time in UTC
    /// (20260131T235959), %% a percent sign. With --recover, %p and %t are those of the killed run
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = ValueHint::FilePath, action = ArgAction::Append)]
    pub(crate) outputs: Vec<PathBuf>,

    /// Format of the report [default: as FILE ends, else text]. FILE can end in .json, .html, .txt or .prom (openmetrics: for
    /// node_exporter; rewritten every 15 s while COMMAND runs). With several FILEs, FORMAT is for
    /// those whose names do not tell it
    #[arg(short, long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(format::names()))]
    pub(crate) format: Option<String>,

    /// Write the summary to stderr, too, where -o names FILEs
    #[arg(long, conflicts_with_all = ["quiet", "full"])]
    pub(super) summary: bool,
}

impl ReportPlaces {
    /// The format of a report whose file's name tells none.
    pub(crate) fn format(&self) -> &str {
        self.format.as_deref().unwrap_or(DEFAULT_FORMAT)
    }
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Information")]
pub(crate) struct InformationOptions {
    /// List the GPUs of this machine and the figures of each, and exit. With -f json, for programs
    #[arg(long)]
    pub(crate) gpus: bool,

    /// Write the reports of runs that were killed as a whole, and exit. The data of a killed run, gpu-track-run
    /// included, is kept until your next run
    #[arg(long, conflicts_with_all = ["command", "execute"])]
    pub(crate) recover: bool,

    /// Show the newest report that was kept, and exit. It goes to stdout, or to the FILEs of -o. Reports are kept where stderr is a
    /// terminal, in no batch job, and elsewhere with GPU_TRACK_KEEP=N: the last N
    #[arg(long, conflicts_with_all = ["command", "execute", "recover", "gpus"])]
    pub(crate) last: bool,

    /// Print a completion script for SHELL
    #[arg(long, value_name = "SHELL")]
    pub(super) completions: Option<Shell>,

    /// Print the man page (to read it: gpu-track-run --man | man -l -)
    #[arg(long)]
    pub(super) man: bool,

    /// Print the options that are used most
    #[arg(short = 'h')]
    pub(super) short_help: bool,

    /// Print all options
    #[arg(long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Diagnosis")]
pub(crate) struct DiagnosisOptions {
    /// Do not put the shim back into environments that a process of the tree makes for a program (env -i)
    #[arg(long)]
    pub(crate) no_env_repair: bool,

    /// Create the session's files in DIR
    #[arg(long, value_name = "DIR", hide = true, default_value = "/dev/shm")]
    pub(crate) session_dir: PathBuf,

    /// Track COMMAND as a part of a run over several nodes
    #[arg(long, value_name = "SPEC", hide = true)]
    pub(crate) agent: Option<AgentSpec>,

    /// Write every observation of the run to FILE, for a replay. It must not exist
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) journal: Option<PathBuf>,

    /// Fields of SamplingPolicy in JSON, to measure what each buys
    #[arg(long, value_name = "JSON", hide = true, value_parser = sampling_policy)]
    pub(crate) sampling: Option<SamplingPolicy>,
}

/// Parses `--sampling`: fields of a [`SamplingPolicy`] as JSON.
fn sampling_policy(fields: &str) -> Result<SamplingPolicy, String> {
    serde_json::from_slice(fields.as_bytes())
        .map_err(|error| format!("\"{fields}\" is no sampling policy: {error}"))
}
