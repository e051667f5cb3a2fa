//! What a run does now, for programs that watch it: its live processes, and what is known of those that ended.

use gpu_track_abi::table::ProcessEntry;
use serde::{Deserialize, Serialize};

use super::alert::RunEvent;
use super::groups::Groups;
use super::report::CommandUsage;
use super::time_groups::ByTimeGroup;
use super::tree_sample::RamMaximum;

/// The largest live processes at a sample, by RSS.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveProcesses {
    /// The sample, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The largest first.
    pub listed: Vec<ProcessEntry>,
    /// How many more there were.
    pub others: u64,
}

/// The run so far. docs/FILES.md explains its keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveSummary {
    /// The largest RAM so far.
    pub max_ram: Groups<RamMaximum>,
    /// How the last second was spent, or what was known of it last, nanoseconds; `None`: not known yet.
    pub time_ns: Option<ByTimeGroup<u64>>,
    /// Processes whose figures are final.
    pub ended: Ended,
    /// How their figures are known.
    pub coverage: LiveCoverage,
    /// The alerts that are on, each as an event with the figures of now.
    pub alerts: Vec<RunEvent>,
    /// What happened, the first ones of each kind.
    pub events: Vec<LiveEvent>,
    /// How many events are not in the list.
    pub other_events: u64,
}

/// Processes whose figures are final.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ended {
    /// How many.
    pub count: u64,
    /// By command name, most processes first.
    pub by_command: Vec<CommandUsage>,
    /// How many commands are not in the list.
    pub other_commands: u64,
}

/// How the figures of ended processes are known. The names and meanings are those of [`Coverage`](super::report::Coverage).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveCoverage {
    /// Ended processes whose CPU time is exact.
    pub exact: u64,
    /// Ended processes whose CPU time is from their last sample.
    pub sampled: u64,
    /// Ended processes whose CPU time is unknown.
    pub unknown: u64,
    /// Processes that ended without an EXIT record.
    pub uninstrumented: u64,
    /// Joined the run: they carried its session in their environment, but no known process is their parent.
    pub joined: u64,
    /// Children of posix_spawn that could not exec; they are in none of the counts above.
    pub failed_spawns: u64,
    /// Why the process connector is not used. `None`: it is.
    pub connector_absent: Option<String>,
    /// How often the connector's socket overflowed.
    pub connector_overruns: u64,
    /// Why event records are no longer trusted. `None`: all are.
    pub records_untrusted: Option<String>,
    /// Time in which no collector sampled, seconds.
    pub unsampled_s: f64,
}

/// Something that happened to the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LiveEvent {
    /// The launcher passed a signal on to the command.
    Signal {
        /// When, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// Its name.
        signal: String,
        /// The sender's name; `None`: it was gone.
        sender: Option<String>,
    },
    /// Processes crashed.
    Crash {
        /// The signal that ended them.
        signal: String,
        /// Their command name.
        command: Option<String>,
        /// How many.
        count: u64,
    },
    /// An output of the run failed, or misses something.
    Output {
        /// Its name.
        output: String,
        /// Why it was closed. `None`: it goes on.
        failed: Option<String>,
        /// Lines that it lost.
        #[serde(default)]
        lost: u64,
    },
}
