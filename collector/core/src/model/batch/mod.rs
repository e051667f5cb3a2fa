//! Batch systems: what the environment of a job tells of it. A system is a file here that implements [`Job`].

pub mod node_list;
pub mod other_systems;
pub mod slurm;

use std::collections::BTreeMap;
use std::ffi::OsString;

use other_systems::OtherJob;
use slurm::Slurm;

/// A job, as its batch system describes it in the environment of the job's processes. `None`: it does not say, or there is no job.
pub trait Job {
    /// The job's id.
    fn id(&self) -> Option<&str>;

    /// How many nodes it has.
    fn node_count(&self) -> Option<u64>;

    /// Names of its first `most` nodes; empty if they are not known.
    fn nodes(&self, most: usize) -> Vec<String>;

    /// Names of the first `most` nodes of the part of the job (Slurm: step) that this process belongs to; empty if they are not known.
    fn step_nodes(&self, _most: usize) -> Vec<String> {
        Vec::new()
    }

    /// How many nodes that part has, if its nodes have no names.
    fn step_node_count(&self) -> Option<u64> {
        None
    }

    /// The name of this node in those lists.
    fn this_node(&self) -> Option<&str> {
        None
    }

    /// Its start, seconds since the epoch.
    fn start_s(&self) -> Option<u64> {
        None
    }

    /// Its latest end, seconds since the epoch.
    fn end_s(&self) -> Option<u64> {
        None
    }

    /// Its time limit, seconds.
    fn limit_s(&self) -> Option<u64> {
        self.end_s()?.checked_sub(self.start_s()?)
    }

    /// Its CPUs on this node.
    fn cpus_here(&self) -> Option<u64>;

    /// Its memory on this node, bytes; also `None` if it may use all that the node has.
    fn memory_here_bytes(&self) -> Option<u64> {
        None
    }
}

/// The job that these variables describe: those of Slurm ([`slurm::read`]), or of other systems ([`other_systems::read`]).
pub fn job<'a>(
    slurm: &'a BTreeMap<String, String>,
    other: &'a BTreeMap<String, String>,
) -> Box<dyn Job + 'a> {
    if other.is_empty() { Box::new(Slurm(slurm)) } else { Box::new(OtherJob(other)) }
}

/// The id of the Flux job whose batch script this is.
const FLUX_SCRIPT: &str = "FLUX_ENCLOSING_ID";

/// Each batch system: a variable that it sets in each of its jobs, and its name.
const SYSTEMS: [(&str, &str); 11] = [
    (slurm::JOB_ID, "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("SGE_TASK_ID", "sge"),
    ("_CONDOR_SLOT", "htcondor"),
    ("FLUX_JOB_ID", "flux"),
    (FLUX_SCRIPT, "flux"),
    ("OAR_JOB_ID", "oar"),
    ("COBALT_JOBID", "cobalt"),
    ("PJM_JOBID", "pjm"),
    ("LOADL_STEP_ID", "loadleveler"),
];

/// The name of the batch system whose job has this environment. `variable` looks up a variable; an empty one counts as unset.
/// `None`: the environment is that of no job.
pub fn system(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    SYSTEMS.into_iter().find(|(name, _)| is_set(name)).map(|(_, system)| system)
}
