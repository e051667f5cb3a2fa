//! The groups of options that tracking and report obey, as clap knows them. Those of the collector become its configuration.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueHint};
use gpu_track_collector::model::config::{Bundles, DiscoveryConfig, Layer, ReportConfig, TrackingConfig};
use gpu_track_collector::model::gpu::{GpuConfig, Vendor};
use gpu_track_collector::model::style::{RamUnit, Style, TimeUnit};
use gpu_track_collector::named;

use super::bundles::bundles;
use super::gpu_trace::{AskedTrace, asked};
use super::task_variables::{TaskVariables, task_variables};
use super::values::{Time, Uuids, cores, interval, one_of, uuids};

/// How the report is written.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportArgs {
    /// Write every section as text, not a summary; "-o FILE" does so, too
    #[arg(long)]
    full: bool,

    /// Write nothing to stderr unless tracking went wrong
    #[arg(short, long, conflicts_with = "full")]
    quiet: bool,

    /// Say what to ask a batch system for next time, also where this run says little about it
    #[arg(long)]
    hints: bool,

    /// Unit of RAM and I/O [default: gigabytes in JSON, a readable unit in text]
    #[arg(long = "ru", visible_alias = "ram-unit", value_name = "UNIT",
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    ram_unit: Option<RamUnit>,

    /// Unit of GPU RAM: the same units and default as --ru
    #[arg(long = "gru", visible_alias = "gpu-ram-unit", value_name = "UNIT", hide_possible_values = true,
          value_parser = one_of(&RamUnit::ALL, RamUnit::name))]
    gpu_ram_unit: Option<RamUnit>,

    /// Unit of time [default: hours in JSON, a readable unit in text]
    #[arg(long = "tu", visible_alias = "time-unit", value_name = "UNIT",
          value_parser = one_of(&TimeUnit::ALL, TimeUnit::name))]
    time_unit: Option<TimeUnit>,

    /// List the N processes with the most CPU time and the N with the largest peak RSS
    #[arg(long = "heaviest", value_name = "N", default_value_t = ReportConfig::default().most_heaviest)]
    most_heaviest: usize,
}

/// How the run is tracked, as far as the collector obeys it. [`Preparations`] has the other options under this heading.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tracking")]
pub(super) struct TrackingArgs {
    /// Time between two samples (0.1, 100ms, 1m), at least 1ms [default: 0.1]
    #[arg(long = "st", visible_alias = "sleep-time", value_name = "TIME", display_order = 0,
          allow_negative_numbers = true, value_parser = interval)]
    sleep_time: Option<Duration>,

    /// Number of cores that COMMAND should use, for the hardware percentages [default: all of the machine]
    #[arg(long = "nec", visible_alias = "n-expected-cores", value_name = "N", display_order = 1,
          allow_negative_numbers = true, value_parser = cores)]
    expected_cores: Option<u32>,

    /// If something ends COMMAND (out of memory, a limit, a fatal signal), make a bundle of evidence in DIR: the report, the last
    /// minute (TIME) sample by sample, what the kernel says of memory. "gpu-track report" shows it. There are 5 bundles (N) of 256M
    /// together (BYTES) at most
    #[arg(long, value_name = "DIR[,keep=N][,max=BYTES][,tail=TIME]", display_order = 5,
          value_hint = ValueHint::DirPath, value_parser = OsStringValueParser::new().try_map(|given| bundles(&given)))]
    record: Option<Bundles>,

    /// Write a line about the run to stderr each TIME (5, 5s, 500ms, 1m; at least 0.1 s): RAM, CPU, processes and GPUs, of the run and
    /// of the machine. It does so with --quiet, too
    #[arg(long, value_name = "TIME", display_order = 7, allow_negative_numbers = true,
          value_parser = |given: &str| Time::Pause.parse(given))]
    every: Option<Duration>,

    /// Write no warnings to stderr while COMMAND runs
    #[arg(long, display_order = 8)]
    disable_logs: bool,
}

/// The options of tracking that the launcher obeys, and not the collector.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Tracking")]
pub(crate) struct Preparations {
    /// Read options from a JSON file with gpu_tracker's keywords (sleep_time, ram_unit, ...); options on the command
    /// line override them. Keywords without a meaning here are named on stderr
    #[arg(long = "tconfig", value_name = "FILE", display_order = 2, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Write the run over time to FILE, a row for each interval. FILE ends in .csv or .sqlite (forms of gpu_tracker's tracking
    /// file), .jsonl, or .pftrace (for ui.perfetto.dev). Its name has the patterns of --output. Give it again for a further file
    #[arg(long = "tf", visible_alias = "tracking-file", value_name = "FILE", display_order = 3,
          action = ArgAction::Append, value_hint = ValueHint::FilePath)]
    pub(crate) tracking_files: Vec<PathBuf>,

    /// Log the GPUs to FILE ("-": stdout) in the CSV form of nvidia-smi: a line for each GPU and TIME [default: 1s]. A and B are
    /// fields of nvidia-smi --query-gpu; an unknown one is refused with the list of those that are read
    #[arg(long = "trace-gpu", value_name = "FILE[,every=TIME][,fields=A,B][,noheader][,nounits]", display_order = 4,
          value_hint = ValueHint::FilePath, allow_hyphen_values = true,
          value_parser = OsStringValueParser::new().try_map(|given| asked(&given)))]
    pub(crate) gpu_trace: Option<AskedTrace>,

    /// The file of `--events`
    #[arg(skip)]
    pub(crate) events: Option<PathBuf>,

    /// The command of `--on-alert`
    #[arg(skip)]
    pub(crate) on_alert: Option<OsString>,

    /// Replace the files of --tf, --trace-gpu and --events that exist
    #[arg(long, display_order = 6)]
    pub(crate) overwrite: bool,

    /// With "auto", track other nodes, too: where srun, blaunch, flux run or mpirun starts something in a batch job, and where Open MPI,
    /// MPICH or Intel MPI do over ssh. Over ssh, without this option, COMMAND has to be mpirun or mpiexec. "all" adds what ssh itself starts, as for pdsh and GNU
    /// parallel. Behind srun or Open MPI's mpirun, one report of all ranks is made. With -o FILE, the reports of the nodes or ranks are
    /// in FILE.d, which the nodes have to share [default: GPU_TRACK_NODES, or auto]
    #[arg(long, value_name = "WHEN", display_order = 9,
          value_parser = one_of(&NodesWhen::ALL, NodesWhen::name))]
    pub(crate) nodes: Option<NodesWhen>,

    /// Take processes with the same values of the variables NAME as a task of the run, beside the tasks that are known without
    /// this: those of Snakemake, Nextflow, GNU parallel, pytest, Slurm steps and compilers. At most 4 NAMEs
    #[arg(long, value_name = "NAME,NAME", display_order = 10, value_parser = task_variables)]
    pub(crate) by_env: Option<TaskVariables>,

    /// Run COMMAND in a cgroup (v2) of its own, and add the kernel's figures for that cgroup to the report
    #[arg(long, display_order = 11)]
    pub(crate) cgroup: bool,

    /// Count the processes of containers that COMMAND has docker or podman run, as those of the tree: docker's with --rm, through a
    /// proxy of its socket (DOCKER_HOST). Apptainer's containers see the shim
    #[arg(long, display_order = 12)]
    pub(crate) containers: bool,
}

named! {
    /// When other nodes are tracked, too. Its name is the word of the option and of the variable.
    pub enum NodesWhen {
        /// Where a batch system or an MPI launcher starts something there.
        Auto = "auto",
        /// Where ssh does, too.
        All = "all",
        /// Nowhere.
        Off = "off",
    }
}

/// The variable that says when other nodes are tracked, if no option does; "never": not, whatever the options say.
const NODES_VARIABLE: &str = "GPU_TRACK_NODES";

impl Preparations {
    /// Whether other nodes are tracked, too.
    pub(crate) fn tracks_nodes(&self) -> bool {
        env::var_os(NODES_VARIABLE).is_none_or(|variable| variable != "never")
            && self.asked_nodes() != Some(NodesWhen::Off)
    }

    /// Whether they are tracked where ssh starts something there.
    pub(crate) fn tracks_ssh(&self) -> bool {
        self.tracks_nodes() && self.asked_nodes() == Some(NodesWhen::All)
    }

    /// Whether the user has asked for that.
    pub(crate) fn asks_for_nodes(&self) -> bool {
        self.asked_nodes().is_some_and(|when| when != NodesWhen::Off)
    }

    /// Whether `--nodes=auto` or `all` is given, but the environment forbids to track other nodes.
    pub(crate) fn lacks_nodes(&self) -> bool {
        self.gives_nodes() && !self.tracks_nodes()
    }

    /// Whether `--nodes=auto` or `all` is given.
    pub(crate) fn gives_nodes(&self) -> bool {
        self.nodes.is_some_and(|when| when != NodesWhen::Off)
    }

    /// What the option says, or else the variable.
    fn asked_nodes(&self) -> Option<NodesWhen> {
        self.nodes.or_else(|| {
            let variable = env::var_os(NODES_VARIABLE)?;
            NodesWhen::ALL.into_iter().find(|when| variable == when.name())
        })
    }
}

/// Which GPUs are tracked.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "GPUs")]
pub(crate) struct GpuArgs {
    /// GPUs to track: UUIDs of GPUs or MIG instances, prefixes of UUIDs, or PCI addresses [default: all of the machine]
    #[arg(long = "guuids", value_name = "UUID,UUID", value_parser = uuids)]
    uuids: Option<Uuids>,

    /// Track only the GPUs that COMMAND may use (CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)
    #[arg(long = "visible")]
    only_visible: bool,

    /// Track only the GPUs of one vendor
    #[arg(long = "gb", visible_alias = "gpu-brand", value_name = "VENDOR",
          value_parser = one_of(&Vendor::ALL, Vendor::name))]
    vendor: Option<Vendor>,

    /// Path of NVIDIA's management library [default: GPU_TRACK_NVML_LIB, or libnvidia-ml.so.1]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    nvml_lib: Option<PathBuf>,

    /// Enable the driver's accounting mode for the run, to count GPU processes that end between two samples (NVIDIA;
    /// needs root)
    #[arg(long = "gpu-accounting")]
    accounting: bool,

    /// Don't read the performance counters of NVIDIA's GPUs (Hopper and later): DCGM, which profiles by them, and this disturb
    /// each other
    #[arg(long)]
    no_gpm: bool,

    /// Read the /proc, /sys and /dev files of GPUs below DIR
    #[arg(long = "gpu-root", value_name = "DIR", hide = true, default_value = "/")]
    root: PathBuf,
}

/// How processes are found.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Diagnosis")]
pub(super) struct DiscoveryArgs {
    /// Discovery layers to use
    #[arg(long, value_name = "LIST", hide_possible_values = true, value_delimiter = ',', action = ArgAction::Append,
          default_value = "preload,wait,subreaper,scan,connector", value_parser = one_of(&Layer::ALL, Layer::name))]
    layers: Vec<Layer>,

    /// Leave orphans of COMMAND to process 1 (or the subreaper outside): some daemons begin their work only when that is their parent.
    /// Without the kernel's process connector, orphans without the shim can be missing
    #[arg(long)]
    no_subreaper: bool,
}

impl ReportArgs {
    /// The first given option that says how a single report is written. A table takes no such option. `None`: none is given.
    pub(crate) fn of_one_report(&self) -> Option<&'static str> {
        let options = [
            ("--full", self.full),
            ("--hints", self.hints),
            ("--ru", self.ram_unit.is_some()),
            ("--gru", self.gpu_ram_unit.is_some()),
            ("--tu", self.time_unit.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// Whether `--heaviest` asks for another number of processes than a run lists by default.
    pub(crate) fn chooses_heaviest(&self) -> bool {
        self.most_heaviest != ReportConfig::default().most_heaviest
    }
}

impl From<ReportArgs> for ReportConfig {
    fn from(args: ReportArgs) -> Self {
        let ReportArgs { full, quiet, hints, ram_unit, gpu_ram_unit, time_unit, most_heaviest } = args;
        let style = Style { full, quiet, hints, ram_unit, gpu_ram_unit, time_unit, ..Style::default() };
        Self { style, most_heaviest, ..Self::default() }
    }
}

impl From<TrackingArgs> for TrackingConfig {
    fn from(args: TrackingArgs) -> Self {
        Self {
            sampling_interval: args.sleep_time,
            expected_cores: args.expected_cores,
            every: args.every,
            disable_logs: args.disable_logs,
            bundles: args.record,
            ..Self::default()
        }
    }
}

impl From<GpuArgs> for GpuConfig {
    fn from(args: GpuArgs) -> Self {
        let GpuArgs { uuids, only_visible, vendor, nvml_lib, accounting, no_gpm, root } = args;
        Self { uuids, only_visible, vendor, nvml_lib, accounting, gpm: !no_gpm, root, ..Self::default() }
    }
}

impl From<DiscoveryArgs> for DiscoveryConfig {
    fn from(args: DiscoveryArgs) -> Self {
        let DiscoveryArgs { mut layers, no_subreaper } = args;
        layers.retain(|layer| !(no_subreaper && *layer == Layer::Subreaper));
        Self { layers, ..Self::default() }
    }
}
