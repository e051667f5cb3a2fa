//! The tasks of a pipeline that the run was: Snakemake's jobs, a make's compile units, and others.

use gpu_track_abi::task::TaskKind;
use serde::{Deserialize, Serialize};

use super::processes::Exit;
use crate::model::quality::Quality;

/// The name of what belongs to no task.
pub const WORKFLOW: &str = "(workflow)";
/// The name of the tasks without an entry of their own.
pub const OTHER_TASKS: &str = "(others)";
/// Maximum number of tasks with an entry of their own: those with most CPU time, that of the tasks in them included.
pub const MOST_TASKS: usize = 300;

/// What the processes of one task used, without those of the tasks within it. The sums over all entries are those of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskUsage {
    /// Its number in this run. 0 is `(workflow)`: processes in no task. 1 is `(others)`: tasks without an entry.
    pub id: u32,
    /// `slurm_step`, `nextflow`, `parallel`, `env`, `pytest`, `snakemake` or `compile`; `None`: no task.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub kind: Option<TaskKind>,
    /// Shell command, file, test or number, by its kind.
    pub name: String,
    /// Of `(others)`: how many tasks these are; `None`: more than a run tells apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// The number of the task in which it began; `None`: in none.
    pub parent: Option<u32>,
    /// When its first process started, or entered it after another program, seconds after the command's start.
    pub start_s: Option<f64>,
    /// From then to the end of its last process, seconds.
    pub wall_s: Option<f64>,
    /// Its processes.
    pub processes: u64,
    /// Its tries: processes that began it, or scripts of `nextflow`. Above 1, it was tried again. With `pytest` and `env`, each child
    /// begins it. `None`: it is no task.
    pub starts: Option<u64>,
    /// How many of those failed; `None`: they are no tries (`pytest`, `env`), or of several kinds.
    pub failed_starts: Option<u64>,
    /// How many of its processes outlived the run.
    pub still_running: u64,
    /// Its CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// Largest RAM of its processes together, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// How well it is known: `sampled` is a lower bound.
    pub peak_quality: Quality,
    /// Largest memory of its processes on GPUs, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_ram_bytes: Option<u64>,
    /// Its I/O of storage.
    pub io: TaskIo,
    /// How its last try ended; unknown for `pytest` and `env`.
    #[serde(default)]
    pub exit: Exit,
    /// Why it failed; `None`: it succeeded, or nothing tells.
    pub why: Option<String>,
    /// Together with the tasks that began in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_nested: Option<NestedTasks>,
    /// Its node, in a merged report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// I/O of storage of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskIo {
    /// Read from storage, bytes.
    pub read_bytes: Option<u64>,
    /// Written to storage, bytes.
    pub write_bytes: Option<u64>,
}

/// A task and those within it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NestedTasks {
    /// How many tasks are within it.
    pub tasks: u64,
    /// Processes of all.
    pub processes: u64,
    /// CPU time of all, seconds.
    pub cpu_s: Option<f64>,
    /// Largest RAM of all together, bytes.
    pub peak_ram_bytes: Option<u64>,
}

impl TaskUsage {
    /// Whether it is a task, and not the rest.
    pub fn is_task(&self) -> bool {
        self.kind.is_some()
    }

    /// The cores that it used on average, with the tasks within it. `None`: unknown, or it was too short. A process is linked before its
    /// first record, and that CPU time would be most of a short task's.
    pub fn mean_cores(&self) -> Option<f64> {
        const LEAST_WALL_S: f64 = 0.01;
        let cpu_s = self.with_nested.map_or(self.cpu_s, |all| all.cpu_s)?;
        Some(cpu_s / self.wall_s.filter(|wall_s| *wall_s >= LEAST_WALL_S)?)
    }

    /// How many tasks the entry stands for. `None`: that is not known.
    fn count(&self) -> Option<u64> {
        match self.kind {
            Some(_) => Some(1),
            None if self.name == OTHER_TASKS => self.tasks,
            None => Some(0),
        }
    }

    /// What it is called in a text: `parallel 12`. It can have control characters.
    pub fn title(&self) -> String {
        let name = match self.kind {
            Some(kind) => Self::title_of(kind, &self.name),
            None => self.name.clone(),
        };
        match &self.node {
            Some(node) => format!("{node}: {name}"),
            None => name,
        }
    }

    /// What a task of this kind and name is called in a text.
    pub(crate) fn title_of(kind: TaskKind, name: &str) -> String {
        format!("{} {name}", kind_name(kind))
    }

    /// The name of its kind, as in JSON. `None`: it is no task.
    pub fn kind_name(&self) -> Option<&'static str> {
        self.kind.map(kind_name)
    }
}

/// The name of a kind, as in JSON.
fn kind_name(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::SlurmStep => "slurm_step",
        TaskKind::Nextflow => "nextflow",
        TaskKind::Parallel => "parallel",
        TaskKind::Env => "env",
        TaskKind::Pytest => "pytest",
        TaskKind::Snakemake => "snakemake",
        TaskKind::Compile => "compile",
    }
}

/// How many tasks a report's entries stand for. `None`: the run had more than it tells apart.
pub fn task_count(entries: &[TaskUsage]) -> Option<u64> {
    entries.iter().map(TaskUsage::count).try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}
