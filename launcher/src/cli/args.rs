//! The options as clap knows them: the single source of parsing, `--help`, the man page and the completions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args as ClapArgs, Parser, ValueHint};
use clap_complete::Shell;
use gpu_track_collector::{Format, RamUnit, TimeUnit, Vendor};

use super::values::{Layer, cores, named, seconds, uuids};

/// The sections of help and man page after the options.
const AFTER_HELP: &str = "\
Examples:
  gpu-track-run make -j4
  gpu-track-run -f json -o usage.%j.json -- mpirun -n 4 ./app --steps 100
  gpu-track-run -o - -- sh -c 'zcat reads.gz | sort | uniq -c'
  gpu-track-run -e \"python train.py --epochs 10\" --ru megabytes --tu seconds
  gpu-track-run --recover -f json -o killed.%p.json

Exit status:
  The exit status of COMMAND; if a signal ended COMMAND, the same signal ends gpu-track-run
  126  COMMAND cannot be executed
  127  COMMAND is not found
  2    an option is wrong, and COMMAND was not started
  With --recover: 0 if there was a run to recover and each has its report, otherwise 1";

/// The options of `-h`, by their ids.
pub(super) const SHORT_HELP: [&str; 14] = [
    "execute",
    "output",
    "format",
    "full",
    "quiet",
    "ram_unit",
    "time_unit",
    "sleep_time",
    "wait_all",
    "gpus",
    "recover",
    "short_help",
    "help",
    "version",
];
/// What follows them.
pub(super) const AFTER_SHORT_HELP: &str = "\
Examples:
  gpu-track-run make -j4
  gpu-track-run -f json -o usage.%j.json -- mpirun -n 4 ./app --steps 100";

/// Runs a command and reports what its whole process tree used: RAM, CPU, GPU RAM, GPU utilization, I/O and time.
#[derive(Debug, Parser)]
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
pub(super) struct Args {
    #[command(flatten)]
    pub(super) command: CommandArgs,
    #[command(flatten)]
    pub(super) report: ReportArgs,
    #[command(flatten)]
    pub(super) tracking: TrackingArgs,
    #[command(flatten)]
    pub(super) gpu: GpuArgs,
    #[command(flatten)]
    pub(super) information: InformationArgs,
    #[command(flatten)]
    pub(super) diagnosis: DiagnosisArgs,
}

// No doc comments on the groups: clap would show them in place of the program's.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Command")]
pub(super) struct CommandArgs {
    /// The command to run; options after COMMAND belong to it
    #[arg(value_name = "COMMAND", display_order = 0, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,

    /// The command in one string, split into words as a shell does it. No shell runs it
    #[arg(short = 'e', long, value_name = "COMMAND", display_order = 1,
          value_hint = ValueHint::CommandString, conflicts_with = "command")]
    pub(super) execute: Option<String>,

    /// End when the last process of the tree ends, not when COMMAND ends
    #[arg(long, display_order = 2)]
    pub(super) wait_all: bool,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Write the report to FILE ("-": stdout) instead of stderr. In its name, %j is the batch job's id (or "nojob"), %r
    /// the task's rank (or "norank"), %h the host, and %p the pid. %t is the time in UTC (20260131T235959), %% a percent
    /// sign. With --recover, %p and %t are those of the killed run
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,

    /// Format of the report [default: text]
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&Format::ALL, Format::name))]
    pub(super) format: Option<Format>,

    /// Write every section as text, not a summary; "-o FILE" does so, too
    #[arg(long)]
    pub(super) full: bool,

    /// Write nothing to stderr unless tracking went wrong
    #[arg(short, long, conflicts_with = "full")]
    pub(super) quiet: bool,

    /// Say what to ask a batch system for next time, also where this run says little about it
    #[arg(long)]
    pub(super) hints: bool,

    /// Unit of RAM and I/O [default: gigabytes in JSON, a readable unit in text]
    #[arg(long = "ru", visible_alias = "ram-unit", value_name = "UNIT",
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    pub(super) ram_unit: Option<RamUnit>,

    /// Unit of GPU RAM: the same units and default as --ru
    #[arg(long = "gru", visible_alias = "gpu-ram-unit", value_name = "UNIT", hide_possible_values = true,
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    pub(super) gpu_ram_unit: Option<RamUnit>,

    /// Unit of time [default: hours in JSON, a readable unit in text]
    #[arg(long = "tu", visible_alias = "time-unit", value_name = "UNIT",
          value_parser = one_of(&TimeUnit::ALL, TimeUnit::name))]
    pub(super) time_unit: Option<TimeUnit>,

    /// List the N processes with the most CPU time and the N with the largest peak RSS
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) heaviest: usize,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Tracking")]
pub(super) struct TrackingArgs {
    /// Time between two samples, at least 0.001 [default: 0.1]
    #[arg(long = "st", visible_alias = "sleep-time", value_name = "SECONDS", allow_negative_numbers = true,
          value_parser = seconds)]
    pub(super) sleep_time: Option<Duration>,

    /// Number of cores that COMMAND should use, for the hardware percentages [default: all of the machine]
    #[arg(long = "nec", visible_alias = "n-expected-cores", value_name = "N", allow_negative_numbers = true,
          value_parser = cores)]
    pub(super) expected_cores: Option<u32>,

    /// Read options from a JSON file with gpu_tracker's keywords (sleep_time, ram_unit, ...); options on the command
    /// line override them. Keywords without a meaning here are named on stderr
    #[arg(long = "tconfig", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config: Option<PathBuf>,

    /// gpu_tracker's file of samples
    #[arg(long = "tf", value_name = "FILE", hide = true, value_hint = ValueHint::FilePath)]
    pub(super) tracking_file: Option<PathBuf>,

    /// Whether an existing file of samples is replaced
    #[arg(long, hide = true)]
    pub(super) overwrite: bool,

    /// Write no warnings to stderr while COMMAND runs
    #[arg(long)]
    pub(super) disable_logs: bool,

    /// Run COMMAND in a cgroup (v2) of its own, and add the kernel's figures for that cgroup to the report
    #[arg(long)]
    pub(super) cgroup: bool,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "GPUs")]
pub(super) struct GpuArgs {
    /// GPUs to track: UUIDs of GPUs or MIG instances, prefixes of UUIDs, or PCI addresses [default: all of the machine]
    #[arg(long = "guuids", value_name = "UUID,UUID", value_parser = uuids)]
    pub(super) gpu_uuids: Option<Uuids>,

    /// Track only the GPUs that COMMAND may use (CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)
    #[arg(long)]
    pub(super) visible: bool,

    /// Track only the GPUs of one vendor
    #[arg(long = "gb", visible_alias = "gpu-brand", value_name = "VENDOR",
          value_parser = one_of(&Vendor::ALL, Vendor::name))]
    pub(super) gpu_brand: Option<Vendor>,

    /// Path of NVIDIA's management library [default: GPU_TRACK_NVML_LIB, or libnvidia-ml.so.1]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(super) nvml_lib: Option<PathBuf>,

    /// Enable the driver's accounting mode for the run, to count GPU processes that end between two samples (NVIDIA;
    /// needs root)
    #[arg(long)]
    pub(super) gpu_accounting: bool,

    /// Read the /proc, /sys and /dev files of GPUs below DIR
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub(super) gpu_root: PathBuf,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Information")]
pub(super) struct InformationArgs {
    /// List the GPUs of this machine and the figures of each, and exit. With -f json, for programs
    #[arg(long)]
    pub(super) gpus: bool,

    /// Write the reports of runs that were killed as a whole, and exit. The data of a killed run, gpu-track-run
    /// included, is kept until your next run
    #[arg(long, conflicts_with_all = ["command", "execute"])]
    pub(super) recover: bool,

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

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Diagnosis")]
pub(super) struct DiagnosisArgs {
    /// Discovery layers to use
    #[arg(long, value_name = "LIST", hide_possible_values = true, value_delimiter = ',',
          action = ArgAction::Append, default_value = "preload,wait,subreaper,scan,connector", value_enum)]
    pub(super) layers: Vec<Layer>,

    /// Do not put the shim back into environments that a process of the tree makes for a program (env -i)
    #[arg(long)]
    pub(super) no_env_repair: bool,

    /// Create the session's files in DIR
    #[arg(long, value_name = "DIR", hide = true, default_value = "/dev/shm")]
    pub(super) session_dir: PathBuf,
}

/// A list in one value. For a bare `Vec`, clap would expect the option several times.
pub(super) type Uuids = Vec<String>;

/// A value that is one of a few names, which help, completions and errors list.
fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.iter().map(move |value| name(*value)));
    names.try_map(move |given| named(&given, all, name))
}
