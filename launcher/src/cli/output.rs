//! `-o FILE`: what its patterns stand for, and whether a report can be written there.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, process};

use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::write;
use rustix::system::uname;

/// Variables that hold the job's id under Slurm, PBS and LSF.
const JOB_VARIABLES: [&str; 3] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"];

/// Variables that hold a task's rank: those of Open MPI, of PMIx, and of PMI (MPICH, Intel MPI) first, since what an
/// mpirun starts has the batch script's Slurm variables, too.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];

/// What the patterns stand for.
pub struct Place {
    pub job: OsString,
    pub rank: OsString,
    pub host: OsString,
    pub pid: u32,
    pub time: SystemTime,
}

impl Place {
    /// Here and now.
    pub fn here() -> Self {
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

/// The output that `given` names. An error is what stands after `--output: `.
pub fn output(given: &Path, place: &Place) -> Result<Output, String> {
    // The names of our own descriptors are no files: what is behind them may be a socket, which can't be opened.
    match given.as_os_str().as_bytes() {
        b"-" | b"/dev/stdout" => return Ok(Output::Stdout),
        b"/dev/stderr" => return Ok(Output::Stderr),
        _ => {}
    }
    let path = expand(given, place)?;
    let name = path.display();
    if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(format!("\"{name}\" is a directory: name a file in it"));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        let (is, cure) = if parent.exists() {
            ("is not a directory", "name one that is")
        } else {
            ("does not exist", "make it first")
        };
        return Err(format!("\"{name}\": the directory \"{}\" {is}: {cure}", parent.display()));
    }
    write::output_at(&path).map_err(|error| format!("\"{name}\" can't be written: {error}"))
}

fn expand(given: &Path, place: &Place) -> Result<PathBuf, String> {
    let mut path = Vec::new();
    let mut bytes = given.as_os_str().as_bytes().iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            path.push(*byte);
            continue;
        }
        match bytes.next() {
            Some(b'j') => push_name(&mut path, place.job.as_bytes()),
            Some(b'r') => push_name(&mut path, place.rank.as_bytes()),
            Some(b'h') => push_name(&mut path, place.host.as_bytes()),
            Some(b'p') => path.extend(place.pid.to_string().bytes()),
            Some(b't') => path.extend(compact(place.time).bytes()),
            Some(b'%') => path.push(b'%'),
            other => {
                let pattern: Vec<u8> = b"%".iter().chain(other).copied().collect();
                return Err(format!(
                    "\"{}\" has an unknown pattern \"{}\": one of %j, %r, %h, %p, %t, %%",
                    given.display(),
                    String::from_utf8_lossy(&pattern)
                ));
            }
        }
    }
    Ok(OsString::from_vec(path).into())
}

/// A job id or a host can be any bytes; in a file's name it must not lead into another directory.
fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    path.extend(name.iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }));
}

/// `20260131T235959`, in UTC.
fn compact(time: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(time).to_string();
    time.chars().filter(|c| !"-:Z".contains(*c)).collect()
}
