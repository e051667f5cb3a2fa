//! What Slurm tells a job by environment variables.

use std::collections::BTreeMap;

use super::Variable;
use crate::model::sorting::InOrder;

/// Slurm sets it in each job.
pub const JOB_ID: &str = "SLURM_JOB_ID";
pub(super) const NODE_COUNT: &str = "SLURM_JOB_NUM_NODES";
pub(super) const NODES: &str = "SLURM_JOB_NODELIST";
pub(super) const STEP_NODES: &str = "SLURM_STEP_NODELIST";
pub(super) const THIS_NODE: &str = "SLURMD_NODENAME";
pub(super) const START: &str = "SLURM_JOB_START_TIME";
pub(super) const END: &str = "SLURM_JOB_END_TIME";
pub(super) const CPUS_HERE: &str = "SLURM_CPUS_ON_NODE";
pub(super) const GPUS_HERE: &str = "SLURM_GPUS_ON_NODE";
pub(super) const MEMORY_HERE: &str = "SLURM_MEM_PER_NODE";
pub(super) const MEMORY_OF_CPU: &str = "SLURM_MEM_PER_CPU";
pub(super) const MEMORY_OF_GPU: &str = "SLURM_MEM_PER_GPU";
/// The numbers of a step's GPUs, and of a job's.
pub const GPUS: [&str; 2] = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];

/// The variables that describe an allocation, which reports have.
const VARIABLES: [&str; 22] = [
    JOB_ID,
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_JOB_PARTITION",
    START,
    END,
    NODE_COUNT,
    NODES,
    STEP_NODES,
    THIS_NODE,
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    CPUS_HERE,
    "SLURM_JOB_CPUS_PER_NODE",
    MEMORY_HERE,
    MEMORY_OF_CPU,
    MEMORY_OF_GPU,
    GPUS_HERE,
    GPUS[1],
    GPUS[0],
];

/// Reads the variables that describe an allocation.
pub fn read(variable: Variable) -> BTreeMap<String, String> {
    let text = |name: &str| Some((name.to_owned(), variable(name)?.into_string().ok()?));
    VARIABLES.into_iter().filter_map(text).ordered_map()
}
