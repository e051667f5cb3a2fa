//! The report: built from the run state, then written as text or JSON. Only `write` does I/O.

pub(crate) mod build;
mod counts;
mod document;
mod figures;
pub mod format;
mod gpu;
mod gpu_tracker;
mod hints;
pub(crate) mod inputs;
mod json;
pub mod quote;
mod sections;
mod text;
mod timestamp;
mod units;
mod usable;
mod warnings;
pub mod write;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod nulls;

use std::time::SystemTime;

use serde::Serialize;

use crate::model::groups::Groups;
use crate::model::report::{
    Cgroup, ContextSwitches, Coverage, Cpu, CpuTime, Exit, Faults, Gpu, GpuDevice, Hints, Host, Io, Limits,
    MaxGpuRam, MaxProportionalRam, MaxRam, Peak, Processes, RamSpan, Stage, Usable, Warning,
};
use crate::run::cause::Cause;

/// The report of one run. As JSON it has what gpu_tracker has not, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether the run is over.
    #[serde(rename = "finished", serialize_with = "json::is_finished")]
    pub stage: Stage,
    /// The command and its arguments (bytes that aren't UTF-8 replaced).
    pub command: Vec<String>,
    /// Wall-clock time of the command's start.
    #[serde(serialize_with = "json::time")]
    pub started_at: SystemTime,
    /// From the command's start to its end (with `--wait-all`: to the end of the last process), seconds.
    #[serde(skip)]
    pub wall_s: f64,
    /// The machine.
    pub host: Host,
    /// How the command ended.
    #[serde(rename = "exit")]
    pub ending: Ending,
    /// What the command may use: the denominators.
    pub usable: Usable,
    /// What to ask for next time.
    pub hints: Hints,
    /// CPU time of the tree.
    pub cpu_time: CpuTime,
    /// Block I/O of the tree.
    pub io: Io,
    /// Page faults of the tree.
    pub faults: Faults,
    /// Context switches of the tree.
    pub context_switches: ContextSwitches,
    /// Largest RAM over time.
    #[serde(skip)]
    pub max_ram: MaxRam,
    /// Time-weighted mean of the footprint over the run; `None` where `max_ram` has no total.
    #[serde(rename = "mean_ram")]
    pub mean_ram_bytes: Groups<Option<f64>>,
    /// Largest proportional sizes.
    pub max_ram_proportional: MaxProportionalRam,
    /// The largest that `max_ram` can have been, bytes: where processes ended between two samples, the RSS of the others at that
    /// moment is unknown. `None`: the RAM of a process is unknown.
    pub max_ram_at_most: Groups<Option<u64>>,
    /// Largest GPU memory over time.
    #[serde(skip)]
    pub max_gpu_ram: MaxGpuRam,
    /// CPU utilisation and threads.
    #[serde(skip)]
    pub cpu: Cpu,
    /// GPU utilisation.
    #[serde(skip)]
    pub gpu: Gpu,
    /// The processes of the tree.
    pub processes: Processes,
    /// The tracked GPUs.
    pub gpus: Vec<GpuDevice>,
    /// The moment of the tree's largest RAM; `None` if no process was ever seen in memory.
    pub peak: Option<Peak>,
    /// The tree's RAM over the run, in order of time.
    #[serde(skip)]
    pub ram_over_time: Vec<RamSpan>,
    /// The kernel's figures of the cgroup that was made for the command; `None` without `--cgroup`.
    pub cgroup: Option<Cgroup>,
    /// Limits that applied to the command.
    pub limits: Limits,
    /// How the figures are known, and what may be missing.
    pub coverage: Coverage,
    /// What a reader should know to judge the figures, one cause each.
    pub warnings: Vec<Warning>,
}

/// How the command ended, and what ended it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ending {
    /// Both fields are null while it runs, and if its launcher was killed.
    #[serde(flatten)]
    pub exit: Exit,
    /// What ended the command, if it did not succeed and there is evidence.
    pub cause: Option<Cause>,
}
