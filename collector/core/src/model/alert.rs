//! Alerts that the user sets for a run (`--alert`), and what happens in a run (`--events`).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::kernel_errors::without_numbers;
use super::rule::{Quantity, Rule, Unit};
use super::signal::signal_name;
use super::style::StreamFile;
use crate::named;

/// The alerts of a run, and where its events go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Alerts {
    /// In the order of the command line.
    pub list: Vec<Rule>,
    /// The file of `--events`, which the launcher made.
    pub events_file: Option<StreamFile>,
    /// A command runs when an alert goes on or off (`--on-alert`). Only the launcher knows the command, because it can hold secrets.
    pub run_a_command: bool,
}

impl Alerts {
    /// Whether the run keeps a log of its events: for its alerts, or for the file of `--events`.
    pub fn are_asked_for(&self) -> bool {
        !self.list.is_empty() || self.events_file.is_some()
    }
}

named! {
    /// What an event of a run is.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum EventKind {
        /// The command started.
        #[default]
        Start = "start",
        /// The run ended.
        Stop = "stop",
        /// The tree held most RAM.
        Peak = "peak",
        /// An alert went on.
        Warning = "warning",
        /// An alert of `ram` or `gpu_ram` at 95% or more went on.
        Critical = "critical",
        /// An alert is over.
        Recovered = "recovered",
        /// That alert went on.
        Growth = "growth",
        /// That alert went on.
        GpuIdle = "gpu_idle",
        /// A limit was exceeded.
        Limit = "limit",
        /// RAM, or memory on a GPU, rose by at least 10% of what may be used.
        Jump = "jump",
        /// A process's memory on a GPU rose by at least 64 MiB and 1% of the GPU's.
        Allocation = "allocation",
        /// It fell by as much.
        Deallocation = "deallocation",
        /// `--on-alert` failed.
        Error = "error",
    }
}

/// An event of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunEvent {
    /// When, seconds after the command's start.
    pub at_s: f64,
    /// What happened.
    pub kind: EventKind,
    /// The alert or limit; `error`: the alert whose command failed.
    pub rule: Option<String>,
    /// What it is about.
    pub quantity: Option<Quantity>,
    /// Unit of the next three.
    pub unit: Option<Unit>,
    /// How much there was; `disk`: free; a step: after it.
    pub amount: Option<f64>,
    /// How much there was before a step.
    pub from: Option<f64>,
    /// The threshold; of growth and jumps, what may be used.
    pub allowed: Option<f64>,
    /// Since when, seconds after the command's start. `recovered`: when the alert went on; a step: when `from` was read.
    pub since_s: Option<f64>,
    /// How fast memory rises, bytes a second; `None` if not all the time.
    pub rate_bytes_per_s: Option<f64>,
    /// Time until what may be used is reached, seconds.
    pub left_s: Option<f64>,
    /// The process that allocated or freed.
    pub pid: Option<u32>,
    /// The process that allocated or freed.
    pub command: Option<String>,
    /// The GPU, as `gpus[].id`.
    pub device: Option<String>,
    /// `error`: what failed, and why.
    pub message: Option<String>,
}

impl RunEvent {
    /// Makes an event of which nothing but its time and kind is known.
    pub fn new(at_s: f64, kind: EventKind) -> Self {
        Self { at_s, kind, ..Self::default() }
    }

    /// How a line for the user about an alert begins: the user's words for it, and what happened to it.
    pub fn alert_name(&self) -> String {
        format!("alert {} ({})", self.rule.as_deref().unwrap_or_default(), self.kind.name())
    }
}

/// Why the command of `--on-alert` did not do its work for an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertCommandFailure {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// It was ended after this time, with all that it had started.
    TooLong {
        /// The time, milliseconds.
        after_ms: u64,
        /// How many of its processes could not be ended.
        left: u32,
    },
    /// No process could be made for it: errno.
    NotStarted(i32),
    /// The process that runs it was killed, so its own end is not known.
    RunnerKilled,
    /// It was not run, because this many other alerts waited for it already.
    TooMany(usize),
    /// It was not run, because the run ended before its turn came.
    RunEnded,
}

impl fmt::Display for AlertCommandFailure {
    /// Says what happened to the command, as a sentence whose subject is the command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the command of --on-alert ")?;
        match *self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(signal) => write!(f, "was ended by {}", signal_name(signal)),
            Self::TooLong { after_ms, left } => {
                write!(f, "took more than {} s: it was ended", after_ms as f64 / 1e3)?;
                if left > 0 { write!(f, ", but {left} of its processes could not be") } else { Ok(()) }
            }
            Self::NotStarted(errno) => {
                // Without the "(os error 2)" that Rust puts after the words.
                let error = std::io::Error::from_raw_os_error(errno).to_string();
                write!(f, "could not be started: {}", without_numbers(&error))
            }
            Self::RunnerKilled => write!(f, "may not have ended: the process that ran it was killed"),
            Self::TooMany(waiting) => write!(f, "was not run: {waiting} other alerts waited for it"),
            Self::RunEnded => write!(f, "was not run: the run ended before"),
        }
    }
}

/// The events of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Events {
    /// How many events there were.
    pub count: u64,
    /// How many of each kind.
    pub by_kind: BTreeMap<EventKind, u64>,
    /// By time, at most 10,002; of more the older ones in part.
    pub list: Vec<RunEvent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ALERT-12
    #[test]
    fn failure_of_an_alerts_command_says_what_came_of_it() {
        let after_ms = 30_000;
        let lines = [
            AlertCommandFailure::Exited(5),
            AlertCommandFailure::Killed(9),
            AlertCommandFailure::TooLong { after_ms, left: 0 },
            AlertCommandFailure::TooLong { after_ms, left: 2 },
            AlertCommandFailure::NotStarted(11),
            AlertCommandFailure::RunnerKilled,
            AlertCommandFailure::TooMany(16),
            AlertCommandFailure::RunEnded,
        ]
        .map(|failure| failure.to_string());
        let expected = [
            "exited with status 5",
            "was ended by SIGKILL",
            "took more than 30 s: it was ended",
            "took more than 30 s: it was ended, but 2 of its processes could not be",
            "could not be started: Resource temporarily unavailable",
            "may not have ended: the process that ran it was killed",
            "was not run: 16 other alerts waited for it",
            "was not run: the run ended before",
        ]
        .map(|line| format!("the command of --on-alert {line}"));
        assert_eq!(lines, expected);
    }
}
