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

/// Each batch system whose jobs reports describe: its name, and the variables with a job's id, of which the first that is set counts.
const DESCRIBED: [(&str, &[&str]); 4] = [
    ("slurm", &[slurm::JOB_ID]),
    ("pbs", &["PBS_JOBID"]),
    ("lsf", &["LSB_JOBID"]),
    ("flux", &["FLUX_JOB_ID", FLUX_SCRIPT]),
];
/// Other batch systems: a variable that each sets in its jobs.
const OTHERS: [(&str, &[&str]); 6] = [
    ("sge", &["SGE_TASK_ID"]),
    ("htcondor", &["_CONDOR_SLOT"]),
    ("oar", &["OAR_JOB_ID"]),
    ("cobalt", &["COBALT_JOBID"]),
    ("pjm", &["PJM_JOBID"]),
    ("loadleveler", &["LOADL_STEP_ID"]),
];

/// The name of the batch system whose job has this environment. An empty variable counts as unset.
/// `None`: the environment is that of no job.
pub fn system(variable: Variable) -> Option<&'static str> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let mut all = DESCRIBED.into_iter().chain(OTHERS);
    all.find(|(_, variables)| variables.iter().any(|name| is_set(name))).map(|(system, _)| system)
}

/// The variables with the id of a job that reports describe.
pub fn job_ids() -> impl Iterator<Item = &'static str> {
    DESCRIBED.into_iter().flat_map(|(_, variables)| variables.iter().copied())
}
