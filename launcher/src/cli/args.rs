//! The options as clap knows them: the one source of parsing, `--help`, the man page and the completions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, ValueHint};
use clap_complete::Shell;
use gpu_track_collector::model::gpu::Vendor;
use gpu_track_collector::model::style::{Format, RamUnit, TimeUnit};

use super::values::{Layer, cores, seconds, uuids};

/// What help and man page say after the options.
pub const AFTERWORD: &str = "\
Examples:
  gpu-track-run make -j4
  gpu-track-run -f json -o usage.%j.json -- mpirun -n 4 ./app --steps 100
  gpu-track-run -o - -- sh -c 'zcat reads.gz | sort | uniq -c'
  gpu-track-run -e \"python train.py --epochs 10\" --ru megabytes --tu seconds
  gpu-track-run --recover -f json -o killed.%p.json

Exit status:
  COMMAND's own; if a signal ended it, gpu-track-run dies by the same signal
  126  COMMAND can't be executed
  127  COMMAND is not found
  2    an option is wrong, and COMMAND was not started
  With --recover: 0 if there was a run to recover and each has its report, else 1";

/// Runs a command and reports what its whole process tree used: RAM, CPU, GPU RAM, GPU utilization, I/O and time.
#[derive(Debug, Parser)]
#[command(
    name = "gpu-track-run",
    version,
    override_usage = "gpu-track-run [OPTIONS] [--] COMMAND [ARG]...\n       \
                      gpu-track-run [OPTIONS] -e \"COMMAND ARG...\"",
    after_help = AFTERWORD,
    args_override_self = true,
    disable_help_flag = true,
    disable_version_flag = true,
    max_term_width = 100
)]
pub struct Args {
    /// The command to run; options after COMMAND are its own
    #[arg(value_name = "COMMAND", help_heading = "Command", display_order = 0, trailing_var_arg = true,
          value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,

    /// The command in one string, split into words as a shell splits them (but no shell runs it)
    #[arg(short = 'e', long = "execute", value_name = "COMMAND", help_heading = "Command", display_order = 1,
          value_hint = ValueHint::CommandString)]
    pub execute: Option<String>,

    /// End when the last process of the tree ends, not when COMMAND does
    #[arg(long, help_heading = "Command", display_order = 2)]
    pub wait_all: bool,

    /// Write the report to FILE ("-": stdout) instead of stderr; in its name %j is the batch job's id (or "nojob"), %r
    /// the task's rank (or "norank"), %h the host, %p the pid, %t the time in UTC (20260131T235959), %% a percent sign;
    /// with --recover %p and %t are the killed run's
    #[arg(short, long, value_name = "FILE", help_heading = "Report", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Form of the report [default: text]
    #[arg(short, long, value_name = "FORMAT", help_heading = "Report",
          value_parser = one_of(&Format::ALL, Format::name))]
    pub format: Option<Format>,

    /// Unit of RAM and I/O [default: gigabytes in JSON, what reads well in text]
    #[arg(long = "ru", visible_alias = "ram-unit", value_name = "UNIT", help_heading = "Report",
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    pub ram_unit: Option<RamUnit>,

    /// Unit of GPU RAM, likewise
    #[arg(long = "gru", visible_alias = "gpu-ram-unit", value_name = "UNIT", help_heading = "Report",
          hide_possible_values = true,
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    pub gpu_ram_unit: Option<RamUnit>,

    /// Unit of time [default: hours in JSON, what reads well in text]
    #[arg(long = "tu", visible_alias = "time-unit", value_name = "UNIT", help_heading = "Report",
          value_parser = one_of(&TimeUnit::ALL, TimeUnit::name))]
    pub time_unit: Option<TimeUnit>,

    /// List the N heaviest processes singly, by CPU time and by peak RSS
    #[arg(long, value_name = "N", help_heading = "Report", default_value_t = 10)]
    pub heaviest: usize,

    /// Time between two samples, at least 0.001 [default: 0.1]
    #[arg(long = "st", visible_alias = "sleep-time", value_name = "SECONDS", help_heading = "Tracking",
          allow_negative_numbers = true, value_parser = seconds)]
    pub sleep_time: Option<Duration>,

    /// Cores that COMMAND is expected to use, for the hardware percentages [default: all of the machine]
    #[arg(long = "nec", visible_alias = "n-expected-cores", value_name = "N", help_heading = "Tracking",
          allow_negative_numbers = true, value_parser = cores)]
    pub expected_cores: Option<u32>,

    /// GPUs to track: UUIDs of GPUs or MIG instances, or their beginnings, or PCI addresses [default: all of the machine]
    #[arg(long = "guuids", value_name = "UUID,UUID", help_heading = "GPUs", value_parser = uuids)]
    pub gpu_uuids: Option<Uuids>,

    /// Track only the GPUs that COMMAND may see (CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, ROCR_VISIBLE_DEVICES)
    #[arg(long, help_heading = "GPUs")]
    pub visible: bool,

    /// Track only GPUs of one maker
    #[arg(long = "gb", visible_alias = "gpu-brand", value_name = "MAKER", help_heading = "GPUs",
          value_parser = one_of(&Vendor::ALL, Vendor::name))]
    pub gpu_brand: Option<Vendor>,

    /// NVIDIA's library [default: GPU_TRACK_NVML_LIB, or libnvidia-ml.so.1]
    #[arg(long, value_name = "PATH", help_heading = "GPUs", value_hint = ValueHint::FilePath)]
    pub nvml_lib: Option<PathBuf>,

    /// Switch on the driver's accounting for the run, which sees GPU processes that no sample sees (NVIDIA; needs root)
    #[arg(long, help_heading = "GPUs")]
    pub gpu_accounting: bool,

    /// Look for /proc, /sys and /dev of GPUs below DIR
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub gpu_root: PathBuf,

    /// Print the GPUs that are found, with what each can tell, and exit (-f json: for programs)
    #[arg(long, help_heading = "Information")]
    pub gpus: bool,

    /// Make reports of runs of yours that were killed together with gpu-track-run, and exit (your next run removes them)
    #[arg(long, help_heading = "Information")]
    pub recover: bool,

    /// Where sessions lie
    #[arg(long, value_name = "DIR", hide = true, default_value = "/dev/shm")]
    pub session_dir: PathBuf,

    /// Take options from a JSON file with gpu_tracker's keywords (sleep_time, ram_unit, ...); those given here go first
    #[arg(long = "tconfig", value_name = "FILE", help_heading = "Tracking", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// No warnings on stderr while COMMAND runs
    #[arg(long, help_heading = "Tracking")]
    pub disable_logs: bool,

    /// Run COMMAND in a cgroup (v2) of its own and report what the kernel says of it, too
    #[arg(long, help_heading = "Tracking")]
    pub cgroup: bool,

    /// Ways to discover processes that may be used
    #[arg(long, value_name = "LIST", help_heading = "Diagnosis",
          hide_possible_values = true, value_delimiter = ',', action = ArgAction::Append,
          default_value = "preload,wait,subreaper,scan,connector", value_parser = one_of(&Layer::ALL, Layer::name))]
    pub layers: Vec<Layer>,

    /// Leave alone the environments that processes of the tree give to programs
    #[arg(long, help_heading = "Diagnosis")]
    pub no_env_repair: bool,

    /// Print a completion script for SHELL
    #[arg(long, value_name = "SHELL", help_heading = "Information")]
    pub completions: Option<Shell>,

    /// Print the man page, for man -l -
    #[arg(long, help_heading = "Information")]
    pub man: bool,

    /// Print this help
    #[arg(short, long, help_heading = "Information", action = ArgAction::Help)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, help_heading = "Information", action = ArgAction::Version)]
    version: Option<bool>,
}

/// A list in one value (clap takes a bare `Vec` as a value repeated).
pub type Uuids = Vec<String>;

/// A value that is one of a few names; help, completions and errors list them.
fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.iter().map(move |value| name(*value)));
    names.try_map(move |given| {
        all.iter().copied().find(|value| name(*value) == given).ok_or("not one of the allowed values")
    })
}
