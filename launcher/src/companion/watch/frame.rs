//! What is known of a run at one moment, whether the live file or a tracking file tells it. Unknown is `None`, never 0.
//!
//! Texts are as their source has them. Another program may have written anything there, so the view escapes them.

use std::collections::BTreeMap;

use gpu_track_collector::model::report::Usable;
use gpu_track_collector::model::time_groups::ByTimeGroup;

use super::gpus::Gpu;
use super::history::Point;
use super::peaks::Peaks;

/// What one look at the source of a run finds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// The run as a whole, as far as it is known yet.
    pub(super) run: Run,
    /// The run at the moment of the look.
    pub(super) frame: Frame,
    /// What is new of the history, in the order of time.
    pub(super) points: Vec<Point>,
    /// The largest figures beside those of the moment.
    pub(super) peaks: Peaks,
}

/// A run as a whole. While it goes on, only the number of restarts changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Run {
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// Pid of gpu-track-run. `None`: not known, or the run is over.
    pub(super) launcher_pid: Option<u32>,
    /// Collectors that were killed before this one.
    pub(super) restarts: u32,
    /// What the command may use. `None`: not known yet.
    pub(super) usable: Option<Usable>,
    /// The end of the batch job, seconds after the start of the run. `None`: no limit is known.
    pub(super) job_end_s: Option<f64>,
    /// The length of a finished run, seconds. `None`: it goes on.
    pub(super) length_s: Option<f64>,
}

/// How far a run is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum Stage {
    /// No sample is there yet.
    #[default]
    Starting,
    /// It goes on.
    Running,
    /// It goes on, and there was no sample for so many seconds.
    Silent(f64),
    /// It is over.
    Ended,
    /// Launcher and collector are gone without a report.
    Killed,
    /// A moment of a finished run.
    Replayed,
}

/// A run at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Frame {
    /// The moment, seconds after the start of the run.
    pub(super) at_s: f64,
    pub(super) stage: Stage,
    /// RAM of the tree, shared memory counted once, bytes. Of a finished run it is the most of the sample that contains the
    /// moment, and so are processes and threads.
    pub(super) ram_bytes: Option<u64>,
    /// The largest RAM up to this moment (of a finished run: of all of it), bytes.
    pub(super) max_ram_bytes: Option<u64>,
    /// CPU utilization over about a second, percent of one core.
    pub(super) cpu_percent: Option<f64>,
    /// How the run spent about the last second, percent of the time. `None`: not known.
    pub(super) time_percent: Option<ByTimeGroup<f64>>,
    /// Number of live processes.
    pub(super) processes: Option<u64>,
    /// Number of their threads.
    pub(super) threads: Option<u64>,
    /// The live processes, as far as the source has each by itself.
    pub(super) listed: Vec<Process>,
    /// How many live processes are not in [`Self::listed`].
    pub(super) others: u64,
    /// RAM by command at this moment, bytes, the largest first. `None`: not known.
    pub(super) ram_by_command: Option<Vec<(String, u64)>>,
    pub(super) gpus: Vec<Gpu>,
    /// Processes that ended. `None`: not known yet.
    pub(super) ended: Option<Ended>,
    /// The alerts that are on, a line each.
    pub(super) alerts: Vec<String>,
    /// How figures are known, a part of a sentence each.
    pub(super) coverage: Vec<String>,
    /// What happened in the run, a line each.
    pub(super) events: Vec<String>,
}

/// A live process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Process {
    pub(super) pid: Option<u64>,
    pub(super) parent_pid: Option<u64>,
    /// Its start, CLOCK_MONOTONIC nanoseconds; 0: unknown. It is not shown: with the pid, it tells a process from later ones of
    /// that pid.
    pub(super) start_ns: u64,
    pub(super) command: String,
    /// RSS (of a finished run: the peak of its whole life), bytes.
    pub(super) rss_bytes: Option<u64>,
    /// CPU time so far (of a finished run: that of its whole life), seconds.
    pub(super) cpu_s: Option<f64>,
    /// Its memory on all GPUs, bytes.
    pub(super) gpu_bytes: Option<u64>,
}

/// Processes that ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ended {
    /// Number of all ended processes.
    pub(super) count: u64,
    /// The ended processes of each command name.
    pub(super) by_command: BTreeMap<String, EndedCommand>,
    /// How many commands are not in [`Self::by_command`].
    pub(super) other_commands: u64,
}

/// The ended processes of a command name.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct EndedCommand {
    pub(super) count: u64,
    /// Their CPU time, seconds. `None`: unknown of all.
    pub(super) cpu_s: Option<f64>,
    /// The largest peak RSS of one of them, bytes. `None`: unknown of all.
    pub(super) peak_rss_bytes: Option<u64>,
}
