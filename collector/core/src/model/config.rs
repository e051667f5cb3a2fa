//! What the launcher sends to the collector: first the configuration, then the start and end of the command, and what came of
//! the collector's orders. The configuration has what the user asked for, and what the launcher found.
//!
//! One pipe carries it, one JSON object per line. End of file without [`Message::Ended`] means that the launcher is
//! gone.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::order::{OrderId, OrderResult};
use super::policy::SamplingPolicy;
use super::run_limit::{Excess, RunLimits, TreeEnd};
use crate::model::alert::{AlertCommandFailure, Alerts};
use crate::model::attached::Attached;
use crate::model::cgroup::Cgroups;
use crate::model::gpu::GpuConfig;
use crate::model::gpu_trace::GpuTrace;
use crate::model::io_calls::IoCalls;
use crate::model::report::NodePart;
use crate::model::run_end::CommandExit;
use crate::model::signal::SignalTold;
use crate::model::style::{Console, Output, StreamFile, Style, path_from_bytes, path_to_bytes};
use crate::{named, with_defaults};

/// Time between two samples if the user gives none, nanoseconds. It is a tenth of that of the Python package gpu_tracker, since
/// a sample takes only microseconds.
pub const DEFAULT_INTERVAL_NS: u64 = 100_000_000;

named! {
    /// A discovery layer: a way in which processes are found.
    pub enum Layer {
        /// The shim in every process.
        Preload = "preload",
        /// The shim's records of reaped children.
        Wait = "wait",
        /// The launcher, which inherits orphans as their subreaper. The launcher also reports the command itself.
        Subreaper = "subreaper",
        /// The search in /proc for children of known processes.
        Scan = "scan",
        /// The kernel's process connector.
        Connector = "connector",
    }
}

/// The configuration of a collector; the first line of the pipe.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Config {
    /// The command and its arguments, or those of the attached process at the attach. Bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
    /// The process that the run attached to. `None`: the launcher starts the command, or there is none.
    pub attached: Option<Attached>,
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
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
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
    /// What children of the launcher, and threads beside its first one, had passed by calls by then. The launcher may have been another
    /// program before, as a shell that execs.
    #[serde(default)]
    pub calls_before: IoCalls,
}

impl SessionStart {
    /// The wall-clock time of `at_ns`, CLOCK_MONOTONIC nanoseconds, by what the wall clock showed at the session's start. So it
    /// does not matter if the clock was set during the run.
    pub fn date(&self, at_ns: u64) -> SystemTime {
        let since_ns = at_ns.saturating_sub(self.monotonic_ns);
        UNIX_EPOCH + Duration::from_nanos(self.realtime_ns.saturating_add(since_ns))
    }
}

with_defaults! {
    /// How processes are found.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DiscoveryConfig {
        /// The layers in use.
        pub layers: Vec<Layer> = Layer::ALL.to_vec(),
        /// The directory of the shim, if it is preloaded; a warning names it for sandboxes.
        pub shim_directory: Option<String> = None,
        /// Why there is no process connector.
        pub connector_absent: Option<String> = None,
        /// Why tracking could not begin. Then only what wait4(2) tells the launcher, the command's parent, is known.
        pub untracked: Option<String> = None,
    }
}

impl DiscoveryConfig {
    /// Whether a layer is in use.
    pub fn uses(&self, layer: Layer) -> bool {
        self.layers.contains(&layer)
    }
}

/// How the run is tracked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackingConfig {
    /// Time between two samples, if the user gave one.
    pub sampling_interval: Option<Duration>,
    /// Number of cores that the command should use, for the hardware percentages. `None`: all of the machine.
    pub expected_cores: Option<u32>,
    /// The files of `--tf`, which the launcher made.
    pub tracking_files: Vec<StreamFile>,
    /// The log of `--trace-gpu`.
    pub gpu_trace: Option<GpuTrace>,
    /// Time between two lines about the run on stderr; `None`: there are none.
    pub every: Option<Duration>,
    /// No warnings are written to stderr while the command runs.
    pub disable_logs: bool,
    /// Whether the user is told what `--wait-all` waits for.
    pub tells_waiting: bool,
    /// What the run may not exceed.
    pub limits: RunLimits,
    /// `--record`: where a bundle of evidence is made if something ends the run.
    pub bundles: Option<Bundles>,
    /// What the user is told of while it runs, and where its events go.
    pub alerts: Alerts,
}

impl TrackingConfig {
    /// The time between two samples, nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        let given =
            self.sampling_interval.map(|interval| u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX));
        given.unwrap_or(DEFAULT_INTERVAL_NS)
    }
}

with_defaults! {
    /// What the report has, and where it goes.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ReportConfig {
        /// How it is written to stderr.
        pub style: Style = Style::default(),
        /// How many processes it lists, of those with the most CPU time and of those with the largest peak RSS.
        pub most_heaviest: usize = 10,
        /// Where it is written: at least one place, and none twice.
        pub targets: Vec<ReportTarget> = vec![ReportTarget::default()],
        /// Warnings of the launcher.
        pub warnings: Vec<String> = Vec::new(),
        /// How it is kept, if it is.
        pub keep: Option<Keep> = None,
        /// Where it is written if it can't be written to its place.
        pub spare: SparePlaces = SparePlaces::default(),
        /// Its part in a run over several nodes; `None`: the run is tracked on one node, so far.
        pub node_part: Option<NodePart> = None,
        /// Where this node's report goes as soon as other nodes are tracked, too. `None`: they are not, or this is that
        /// place already.
        pub place_of_part: Option<ReportTarget> = None,
        /// Whether other nodes are tracked as soon as the command starts something there.
        pub other_nodes: OtherNodes = OtherNodes::Off,
        /// The one report of all ranks, or of all nodes where the launcher is gone, which the last of them to end
        /// makes. `None`: there is none.
        pub joint: Option<JointReport> = None,
    }
}

/// Whether other nodes are tracked as soon as the command starts something there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtherNodes {
    /// The user's options or environment say that they are not, or this launcher is an agent or a rank.
    #[default]
    Off,
    /// That is not possible: a line for the user says why.
    Impossible(String),
    /// The user has not asked for them, and the command is no MPI launcher, and in no batch job.
    OnRequest,
    /// By agents.
    ByAgents {
        /// For daemons of MPI launchers: why no agent is started with them, as far as it is known.
        hindrances: Vec<(String, String)>,
        /// With `--nodes=all`, agents would track what ssh starts on other nodes, too.
        offers_ssh: bool,
    },
}

/// The one report of several ranks or nodes. Ranks are processes of an MPI job or Slurm step. Each has a launcher and a report of its
/// own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JointReport {
    /// The directory of the ranks' or nodes' reports.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub directory: PathBuf,
    /// What the names of this run's reports there begin with: the directory can have those of an earlier command of the job.
    pub prefix: String,
    /// Where the report of all is written.
    pub targets: Vec<ReportTarget>,
    /// How it is kept, if it is.
    pub keep: Option<Keep>,
    /// The directory is removed when the report of all is written.
    pub is_temporary: bool,
}

/// How reports are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// A directory that must exist. Missing directories below it are made.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub home: PathBuf,
    /// The directory of the reports, below `home`.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub directory: PathBuf,
    /// How many reports are kept at most.
    pub most: usize,
}

/// Where a report is written that can't be written to its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SparePlaces {
    /// A directory of this user's for such reports. `None`: the environment names none.
    pub state: Option<Keep>,
    /// The directory of temporary files. It is used if `state` is `None` or can't be written.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub temporary: PathBuf,
}

/// Bundles of evidence: what is known of a run that something ended, in a directory of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundles {
    /// The directory of all bundles.
    #[serde(serialize_with = "path_to_bytes", deserialize_with = "path_from_bytes")]
    pub directory: PathBuf,
    /// How many bundles are kept at most.
    pub most: usize,
    /// How large all bundles together are at most, bytes.
    pub most_bytes: u64,
    /// How long before the run's end its samples are kept one by one.
    pub tail: Duration,
}

/// A place that the report is written to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportTarget {
    /// The place.
    pub output: Output,
    /// Name of the report's form at that place.
    pub format: String,
}

impl ReportTarget {
    /// The style of the report at this place. On stderr it is `asked`, the style that the user asked for. Elsewhere, the
    /// report is always in full, never quiet, and not made for a terminal, because it is read later.
    pub fn style_here(&self, asked: Style) -> Style {
        match self.output {
            Output::Stderr => asked,
            _ => Style { full: true, quiet: false, console: Console::default(), ..asked },
        }
    }
}

impl ReportConfig {
    /// The paths of the regular files that the report is written to.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.targets.iter().filter_map(|target| target.output.file())
    }

    /// Makes this the report of one of several nodes. The report of all nodes replaces it in its files, and is the only one for
    /// terminals and pipes, where nothing can be replaced. It is also the only one that is kept. `clock_ahead_s`: as in [`NodePart`].
    /// Does nothing if this was done before.
    pub fn become_part(&mut self, clock_ahead_s: Option<f64>) {
        let Some(place) = self.place_of_part.take() else { return };
        let directory = place.output.file().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
        let path = Some(directory.to_string_lossy().into_owned());
        self.node_part = Some(NodePart { is_agent: false, clock_ahead_s, ready_s: None, directory: path });
        self.targets.retain(|target| target.output.file().is_some());
        let targets = self.targets.clone();
        // It makes the report of all nodes if the launcher is gone.
        self.joint = Some(JointReport { directory, targets, ..JointReport::default() });
        self.targets.push(place);
        self.keep = None;
    }
}

impl Config {
    /// Whether the collector writes a report or the GPU log to stdout.
    pub fn writes_to_stdout(&self) -> bool {
        let joint_targets = self.report.joint.iter().flat_map(|joint| &joint.targets);
        let mut targets = self.report.targets.iter().chain(joint_targets);
        self.tracking.gpu_trace.as_ref().is_some_and(|log| log.file.is_none())
            || targets.any(|target| target.output == Output::Stdout)
    }

    /// Obeys a message, if it is about other nodes.
    pub fn note_nodes(&mut self, message: Message) {
        match message {
            Message::NodesJoin { clock_ahead_s } => self.report.become_part(clock_ahead_s),
            Message::NodesReady { at_ns } => {
                let since_ns = at_ns.saturating_sub(self.start.monotonic_ns);
                if let Some(part) = &mut self.report.node_part {
                    part.ready_s = Some(since_ns as f64 / 1e9);
                }
            }
            Message::NodesStayAway => {
                let why = "the directory of their reports could not be made, as a line on stderr says";
                self.report.other_nodes = OtherNodes::Impossible(why.to_owned());
            }
            _ => {}
        }
    }
}

/// What happens to the command, or to the attached process; the lines after the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The command runs.
    Started {
        /// Pid of the command.
        pid: u32,
        /// CLOCK_MONOTONIC before its fork, nanoseconds.
        monotonic_ns: u64,
    },
    /// A process sent the launcher a signal while the command ran. Only the first signal of each number is told.
    Signalled(SignalTold),
    /// Other nodes are tracked from now on.
    NodesJoin {
        /// See [`NodePart::clock_ahead_s`].
        clock_ahead_s: Option<f64>,
    },
    /// Agents track them, and the first program that reaches them has waited for that.
    NodesReady {
        /// CLOCK_MONOTONIC when that program went on, nanoseconds.
        at_ns: u64,
    },
    /// A program reached other nodes, and they can't be tracked.
    NodesStayAway,
    /// The command could not be executed.
    Cancelled,
    /// The command has ended, and the launcher waits for its tree (`--wait-all`).
    WaitingForTree {
        /// CLOCK_MONOTONIC when the launcher saw the command's end, nanoseconds.
        since_ns: u64,
    },
    /// The launcher has obeyed this order. It obeys each id once, so an earlier collector of the run may have given the order.
    OrderAnswered {
        /// The order.
        id: OrderId,
        /// What came of it.
        result: OrderResult,
        /// If a limit gave the order: by how much it was exceeded then. A collector that resumes an older state may not know it.
        /// `None`: no limit gave the order.
        excess: Option<Excess>,
    },
    /// All processes of the tree were ended at a limit, as far as they could be.
    TreeEnded(TreeEnd),
    /// The command of `--on-alert` failed.
    AlertCommandFailed {
        /// Which of the run's alerts it ran for, by place on the command line.
        alert: u32,
        /// The number of the order that ran it, as in `OrderId::epoch`.
        epoch: u32,
        /// CLOCK_MONOTONIC when the launcher saw it, nanoseconds.
        at_ns: u64,
        /// What failed.
        failure: AlertCommandFailure,
    },
    /// The command (with `--wait-all`: the whole tree) ended.
    Ended(CommandExit),
}

#[cfg(any(test, feature = "test-support"))]
impl Config {
    /// The configuration of a made-up run.
    pub fn of_test() -> Self {
        Self {
            command: vec!["prog".into()],
            start: SessionStart {
                launcher_pid: 100,
                pid_ns: 1,
                monotonic_ns: 1,
                realtime_ns: 1_000_000_001,
                ..SessionStart::default()
            },
            gpu: GpuConfig { root: PathBuf::from("/nonexistent"), ..GpuConfig::default() },
            ..Self::default()
        }
    }
}
