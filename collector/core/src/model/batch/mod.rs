//! Batch systems: what the environment of a job tells of it.

mod job;
pub mod node_list;
pub mod other_systems;
pub mod slurm;

use std::ffi::{OsStr, OsString};

pub use job::Job;

/// Looks up an environment variable by its name. `None`: it is not set.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reads a file of hosts that a variable names. An error is a text that follows "the file".
pub type HostFile<'a> = &'a dyn Fn(&OsStr) -> Result<String, String>;

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

/// The name of the batch system whose job has this environment. An empty variable counts as unset.
/// `None`: the environment is that of no job.
pub fn system(variable: Variable) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    SYSTEMS.into_iter().find(|(name, _)| is_set(name)).map(|(_, system)| system)
}
