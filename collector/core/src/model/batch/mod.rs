//! Batch systems: what the environment of a job tells of it. A system is a file here that implements [`Job`].

pub mod node_list;
pub mod slurm;

use std::ffi::OsString;

/// A job, as its batch system describes it in the environment of the job's processes. `None`: it does not say, or there is no job.
pub trait Job {
    /// The job's id.
    fn id(&self) -> Option<&str>;

    /// How many nodes it has.
    fn node_count(&self) -> Option<u64>;

    /// Names of its first `most` nodes; empty if they are not known.
    fn nodes(&self, most: usize) -> Vec<String>;

    /// Names of the first `most` nodes of the part of the job (Slurm: step) that this process belongs to; empty if they are not known.
    fn step_nodes(&self, most: usize) -> Vec<String>;

    /// The name of this node in those lists.
    fn this_node(&self) -> Option<&str>;

    /// Its start, seconds since the epoch.
    fn start_s(&self) -> Option<u64>;

    /// Its latest end, seconds since the epoch.
    fn end_s(&self) -> Option<u64>;

    /// Its CPUs on this node.
    fn cpus_here(&self) -> Option<u64>;

    /// Its memory on this node, bytes; also `None` if it may use all that the node has.
    fn memory_here_bytes(&self) -> Option<u64>;
}

/// Each batch system: a variable that it sets in each of its jobs, and its name.
const SYSTEMS: [(&str, &str); 6] = [
    (slurm::JOB_ID, "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("SGE_TASK_ID", "sge"),
    ("_CONDOR_SLOT", "htcondor"),
    ("FLUX_JOB_ID", "flux"),
];

/// The name of the batch system whose job has this environment. `variable` looks up a variable; an empty one counts as unset.
/// `None`: the environment is that of no job.
pub fn system(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    SYSTEMS.into_iter().find(|(name, _)| is_set(name)).map(|(_, system)| system)
}
