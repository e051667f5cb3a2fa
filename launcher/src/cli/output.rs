//! `-o FILE`: the values of its patterns, and whether a report can be written there.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, io, process};

use gpu_track_collector::{Output, write};
use rustix::system::uname;
use thiserror::Error;

/// Variables with the job's id under Slurm, PBS and LSF.
const JOB_VARIABLES: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// Variables with a task's rank. Those of Open MPI, PMIx and PMI (MPICH, Intel MPI) come first: a task that mpirun starts
/// also has the batch script's Slurm variables.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// What the patterns of `-o` are replaced by.
pub(crate) struct PatternValues {
    pub(crate) job: OsString,
    pub(crate) rank: OsString,
    pub(crate) host: OsString,
    pub(crate) pid: u32,
    pub(crate) time: SystemTime,
}

impl PatternValues {
    /// The values for this process, now.
    pub(crate) fn here() -> Self {
        let first_of = |names: &[&str]| {
            names.iter().find_map(|name| env::var_os(name).filter(|value| !value.is_empty()))
        };
        Self {
            job: first_of(&JOB_VARIABLES).unwrap_or_else(|| "nojob".into()),
            rank: first_of(&RANK_VARIABLES).unwrap_or_else(|| "norank".into()),
            host: OsString::from_vec(uname().nodename().to_bytes().to_vec()),
            pid: process::id(),
            time: SystemTime::now(),
        }
    }
}

/// Why no report can be written to a file.
#[derive(Debug, Error)]
pub(super) enum OutputError {
    #[error("has an unknown pattern \"{0}\": one of %j, %r, %h, %p, %t, %%")]
    UnknownPattern(String),
    #[error("is a directory: name a file in it")]
    Directory,
    #[error("needs the directory \"{0}\", which does not exist: create it first")]
    NoParent(PathBuf),
    #[error("cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// The output that `given` names.
pub(super) fn output(given: &Path, values: &PatternValues) -> Result<Output, OutputError> {
    // These name our own descriptors, which can be sockets, and a socket cannot be opened by name.
    match given.as_os_str().as_bytes() {
        b"-" | b"/dev/stdout" => return Ok(Output::Stdout),
        b"/dev/stderr" => return Ok(Output::Stderr),
        _ => {}
    }
    let path = expand(given, values)?;
    if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(OutputError::Directory);
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            Err(OutputError::NoParent(parent.to_owned()))
        }
        _ => Ok(write::output_at(&path)?),
    }
}

fn expand(given: &Path, values: &PatternValues) -> Result<PathBuf, OutputError> {
    let mut path = Vec::new();
    let mut bytes = given.as_os_str().as_bytes().iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            path.push(*byte);
            continue;
        }
        match bytes.next() {
            Some(b'j') => push_name(&mut path, &values.job),
            Some(b'r') => push_name(&mut path, &values.rank),
            Some(b'h') => push_name(&mut path, &values.host),
            Some(b'p') => path.extend(values.pid.to_string().bytes()),
            Some(b't') => path.extend(compact(values.time).bytes()),
            Some(b'%') => path.push(b'%'),
            other => {
                let pattern: Vec<u8> = b"%".iter().chain(other).copied().collect();
                return Err(OutputError::UnknownPattern(String::from_utf8_lossy(&pattern).into_owned()));
            }
        }
    }
    Ok(OsString::from_vec(path).into())
}

/// A job id or host name can contain any bytes. A slash would lead into another directory.
fn push_name(path: &mut Vec<u8>, name: &OsString) {
    path.extend(name.as_bytes().iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }));
}

/// `20260131T235959`, in UTC.
fn compact(time: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(time).to_string();
    time.chars().filter(|c| !"-:Z".contains(*c)).collect()
}
