//! What Slurm tells a job by environment variables.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::{Job, node_list};

/// Slurm sets it in each job.
pub const JOB_ID: &str = "SLURM_JOB_ID";
const NODE_COUNT: &str = "SLURM_JOB_NUM_NODES";
const NODES: &str = "SLURM_JOB_NODELIST";
const STEP_NODES: &str = "SLURM_STEP_NODELIST";
const THIS_NODE: &str = "SLURMD_NODENAME";
const START: &str = "SLURM_JOB_START_TIME";
const END: &str = "SLURM_JOB_END_TIME";
const CPUS_HERE: &str = "SLURM_CPUS_ON_NODE";
const GPUS_HERE: &str = "SLURM_GPUS_ON_NODE";
const MEMORY_HERE: &str = "SLURM_MEM_PER_NODE";
const MEMORY_OF_CPU: &str = "SLURM_MEM_PER_CPU";
const MEMORY_OF_GPU: &str = "SLURM_MEM_PER_GPU";
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

/// Bytes of what Slurm calls a megabyte.
const MEGABYTE: u64 = 1 << 20;

/// Reads the variables that describe an allocation. `variable` looks one up.
pub fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> BTreeMap<String, String> {
    let text = |name: &str| Some((name.to_owned(), variable(name)?.into_string().ok()?));
    VARIABLES.into_iter().filter_map(text).collect()
}

/// A job, by its variables.
#[derive(Debug, Clone, Copy)]
pub struct Slurm<'a>(pub &'a BTreeMap<String, String>);

impl<'a> Slurm<'a> {
    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn names(self, list: &str, most: usize) -> Vec<String> {
        self.text(list).map(|list| node_list::expanded(list, most)).unwrap_or_default()
    }
}

impl Job for Slurm<'_> {
    fn id(&self) -> Option<&str> {
        self.text(JOB_ID)
    }

    fn node_count(&self) -> Option<u64> {
        self.number(NODE_COUNT)
    }

    fn nodes(&self, most: usize) -> Vec<String> {
        self.names(NODES, most)
    }

    fn step_nodes(&self, most: usize) -> Vec<String> {
        self.names(STEP_NODES, most)
    }

    fn this_node(&self) -> Option<&str> {
        self.text(THIS_NODE)
    }

    fn start_s(&self) -> Option<u64> {
        self.number(START).filter(|start| *start > 0)
    }

    fn end_s(&self) -> Option<u64> {
        self.number(END)
    }

    fn cpus_here(&self) -> Option<u64> {
        self.number(CPUS_HERE)
    }

    /// Slurm sets one of three variables: memory of the node, of each CPU, or of each GPU. 0 stands for all that the node has.
    fn memory_here_bytes(&self) -> Option<u64> {
        let of_all = |memory_of_one, count: Option<u64>| self.number(memory_of_one)?.checked_mul(count?);
        let megabytes = self
            .number(MEMORY_HERE)
            .or_else(|| of_all(MEMORY_OF_CPU, self.cpus_here()))
            .or_else(|| of_all(MEMORY_OF_GPU, self.number(GPUS_HERE)));
        megabytes?.checked_mul(MEGABYTE).filter(|bytes| *bytes > 0)
    }
}
