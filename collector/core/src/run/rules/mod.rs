//! The rules that the user sets for a run: limits (`--limit`, `--signal-at`) and alerts (`--alert`).
//!
//! All compare figures of one complete sample ([`figures`]). What they do about them differs: a limit acts once ([`limits`]), an alert
//! goes on and off again ([`alerts`]).

pub(crate) mod alerts;
mod figures;
mod growth;
mod hysteresis;
mod idle;
mod last_memory;
pub(crate) mod limits;
mod watch;

use serde::{Deserialize, Serialize};

use crate::model::alert::{Alerts, RunEvent};
use crate::model::rule::Rule;
use crate::model::run_limit::{LargestProcesses, TreeEnd};
use crate::model::tree_sample::TreeSample;
use crate::run::orders::Orders;
use alerts::Alert;
use growth::Growth;
use idle::Idle;
use last_memory::LastMemory;
use limits::Limit;

/// What the run may use.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Usable {
    /// Memory, bytes; `None`: not known.
    pub ram_bytes: Option<u64>,
    /// Number of cores.
    pub cores: f64,
}

/// A complete sample, and what else the rules need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    /// Start of the command, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// All live processes are stopped (Ctrl-Z).
    pub are_all_stopped: bool,
    /// The sample.
    pub sample: &'a TreeSample,
}

/// The rules of a run, and what came of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rules {
    limits: Vec<Limit>,
    /// In the order of the command line.
    pub(crate) alerts: Vec<Alert>,
    usable: Usable,
    /// The time between two samples, nanoseconds.
    pub(super) interval_ns: u64,
    idle: Idle,
    ram_growth: Growth,
    /// Growth of the memory in use on the fullest GPU.
    gpu_growth: Growth,
    /// The memory in use on each GPU.
    #[serde(default)]
    gpu_memory: LastMemory,
    /// The first sample, CLOCK_MONOTONIC nanoseconds. `None`: there was none.
    sampled_ns: Option<u64>,
    /// The first sample with a reading of a GPU, CLOCK_MONOTONIC nanoseconds. `None`: there was none.
    gpu_read_ns: Option<u64>,
    /// The processes that held most at the last sample.
    pub(crate) largest: LargestProcesses,
    /// What came of ending the tree at a limit.
    pub(crate) tree_end: Option<TreeEnd>,
    /// How often an alert went on or off. This numbers (`epoch`) the orders of the next time, so that their ids are unique.
    next_epoch: u32,
    /// `--on-alert`: a command of the user runs when an alert goes on or off.
    runs_a_command: bool,
}

impl Rules {
    /// Makes the rules. `interval_ns`: the time between two samples.
    pub(super) fn new(limits: &[Rule], alerts: &Alerts, usable: Usable, interval_ns: u64) -> Self {
        Self {
            limits: limits.iter().cloned().map(Limit::new).collect(),
            alerts: alerts.list.iter().cloned().map(Alert::new).collect(),
            usable,
            interval_ns,
            runs_a_command: alerts.run_a_command,
            ..Self::default()
        }
    }

    /// Whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.alerts.is_empty()
    }

    /// Whether an action of a rule may tell which process holds most, so that `largest` is needed.
    pub(super) fn tells_the_largest(&self) -> bool {
        !self.limits.is_empty() || self.runs_a_command
    }

    /// Applies the rules to a complete sample: orders their actions. Returns the events of the alerts that went on or off.
    pub(super) fn decide(&mut self, moment: &Moment, orders: &mut Orders) -> Vec<RunEvent> {
        let Moment { start_ns, are_all_stopped, sample } = *moment;
        self.idle.note_activity(sample, self.interval_ns, are_all_stopped);
        self.decide_limits(moment, orders);
        // Only alerts need growth.
        if self.alerts.is_empty() {
            return Vec::new();
        }
        self.ram_growth.add(start_ns, sample.at_ns, sample.footprint_bytes.combined.end);
        self.gpu_memory.add(&sample.gpu, sample.at_ns);
        if let Some((used_bytes, _)) = self.gpu_memory.fullest(&sample.gpu) {
            self.gpu_growth.add(start_ns, sample.at_ns, used_bytes);
        }
        self.decide_alerts(moment, orders)
    }
}
