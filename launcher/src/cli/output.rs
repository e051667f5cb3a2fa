//! `-o FILE`: the values of its patterns, and whether a report can be written there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, io, process};

use gpu_track_abi::rank;
use gpu_track_collector::model::batch;
use gpu_track_collector::model::style::Output;
use gpu_track_collector::output_at;
use rustix::system::uname;
use thiserror::Error;

/// Variables with a task's rank. Those of Open MPI, PMIx and PMI (MPICH, Intel MPI) come first: a task that mpirun starts
/// also has the batch script's Slurm variables.
const RANK_VARIABLES: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID"];

/// What the patterns of `-o` are replaced by.
#[derive(Clone)]
pub(crate) struct PatternValues {
    pub(crate) job: OsString,
    pub(crate) rank: OsString,
    pub(crate) host: OsString,
    pub(crate) pid: u32,
    pub(crate) time: SystemTime,
    /// The number of this rank, if this is one of several tasks with the same command line. Names without %r or %p get it.
    pub(crate) rank_number: Option<u32>,
    /// What names the job of these tasks. `None`: this is no such task, or no variable tells its job from others.
    pub(crate) job_of_ranks: Option<OsString>,
}

impl PatternValues {
    /// The values for this process, now.
    pub(crate) fn here() -> Self {
        Self::from_environment(|name| env::var_os(name))
    }

    /// The values for this process. `variable` reads an environment variable.
    fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let values = rank::VARIABLES.map(&variable);
        let values = values.each_ref().map(|value| value.as_ref().map(|value| value.as_bytes()));
        // One entry for each way to start ranks. The first rank counts: a task can have inherited the variables of another way.
        let ranks = rank::ranks(&values);
        let way = ranks.iter().position(Option::is_some);
        Self {
            job: batch::job_ids().find_map(given).unwrap_or_else(|| "nojob".into()),
            rank: RANK_VARIABLES
                .into_iter()
                .find_map(given)
                .or_else(|| Some(ranks[rank::TORCH]?.rank.to_string().into()))
                .unwrap_or_else(|| "norank".into()),
            host: OsString::from_vec(uname().nodename().to_bytes().to_vec()),
            pid: process::id(),
            time: SystemTime::now(),
            rank_number: ranks.into_iter().flatten().next().map(|rank| rank.rank),
            job_of_ranks: way.filter(|way| *way != rank::TORCH).and_then(|way| {
                // The PMI of Flux gives ranks, but no name of their job.
                let number = |way: usize| ranks[way].map(|rank| (rank.rank, rank.count));
                let by_flux =
                    || job_of_ranks(rank::FLUX, &variable).filter(|_| number(way) == number(rank::FLUX));
                job_of_ranks(way, &variable).or_else(by_flux)
            }),
        }
    }
}

/// Slurm gives a job that it starts anew the same ids, but another number of restarts.
const RESTARTS: &str = "SLURM_RESTART_COUNT";

/// The ids of the job that this rank belongs to, joined by dots. `way`: the way in which the ranks were started, as an index of what
/// [`rank::ranks`] returns. `None`: one id is not set.
fn job_of_ranks(way: usize, variable: &impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let ids = rank::job_variables(way).map(|name| variable(name).filter(|id| !id.is_empty()));
    let restarts = variable(RESTARTS).unwrap_or_default();
    Some(ids.chain([Some(restarts)]).collect::<Option<Vec<_>>>()?.join(OsStr::new(".")))
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

/// Finds the output that `given` names: its patterns are replaced, and it gets the rank's number if no pattern differs between ranks.
///
/// # Errors
/// If no output of this name can be written.
pub(super) fn output(given: &Path, values: &PatternValues) -> Result<Output, OutputError> {
    // The names stand for descriptors of this process. If one is a socket, its name can't be opened.
    match given.as_os_str().as_bytes() {
        b"-" | b"/dev/stdout" => return Ok(Output::Stdout),
        b"/dev/stderr" => return Ok(Output::Stderr),
        _ => {}
    }
    let mut path = expand(given, values)?;
    if let Some(number) = values.rank_number.filter(|_| !tells_ranks_apart(given)) {
        insert_number(&mut path, number);
    }
    if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(OutputError::Directory);
    }
    output_at(&path).map_err(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, Some(parent)) if !parent.is_dir() => {
            OutputError::NoParent(parent.to_owned())
        }
        _ => error.into(),
    })
}

/// Whether the patterns in a name make it differ from rank to rank.
fn tells_ranks_apart(given: &Path) -> bool {
    has_pattern(given, &["%r", "%p"])
}

/// Whether the patterns in a name can make it differ between ranks of a host. With %t they can, because ranks can start in different
/// seconds.
pub(super) fn can_differ_between_ranks(given: &Path) -> bool {
    has_pattern(given, &["%r", "%p", "%t"])
}

/// Whether a name has one of these patterns.
fn has_pattern(given: &Path, patterns: &[&str]) -> bool {
    let name = given.as_os_str().as_bytes();
    let name = String::from_utf8_lossy(name).replace("%%", "");
    patterns.iter().any(|pattern| name.contains(pattern))
}

/// Inserts a number before the extension: `usage.json` becomes `usage.3.json`.
pub(super) fn insert_number(path: &mut PathBuf, number: u32) {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.set_file_name(name);
}

/// Replaces the patterns in a name by their values.
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

/// Writes a path as `-o` takes it: percent signs are doubled, because a single one begins a pattern there.
pub(crate) fn without_patterns(path: &OsStr) -> OsString {
    let bytes = path.as_bytes().split(|byte| *byte == b'%').collect::<Vec<_>>();
    OsString::from_vec(bytes.join(&b"%%"[..]))
}

/// Appends a value to a name. A job id or host name can contain any bytes. A slash would lead into another directory.
fn push_name(path: &mut Vec<u8>, name: &OsString) {
    path.extend(name.as_bytes().iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }));
}

/// Writes a time as `20260131T235959`, in UTC.
pub(crate) fn compact(time: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(time).to_string();
    time.chars().filter(|c| !"-:Z".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that `-o GIVEN` names in a process with these variables.
    fn file(given: &str, variables: &[(&str, &str)]) -> String {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        let directory = tempfile::tempdir().unwrap();
        match output(&directory.path().join(given), &PatternValues::from_environment(variable)).unwrap() {
            Output::File(path) => path.file_name().unwrap().to_string_lossy().into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn percent_sign_in_a_path_is_no_pattern() {
        assert_eq!(without_patterns(OsStr::new("50%/a%j.json")), "50%%/a%%j.json");
    }

    // Requirement: OUT-12
    #[test]
    fn ranks_of_one_job_number_their_reports() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4"), ("SLURM_PROCID", "0")];
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "8")];
        assert_eq!(file("x.json", &open_mpi), "x.3.json");
        assert_eq!(file("x.json", &pmi), "x.1.json");
        assert_eq!(file("a.b.json", &slurm), "a.b.5.json");
        assert_eq!(file("report", &slurm), "report.5");
        assert_eq!(file(".report", &slurm), ".report.5");
        assert_eq!(file("x.%r.json", &slurm), "x.5.json");
        assert_eq!(file("x.%%p.json", &slurm), "x.%p.5.json");
        assert_eq!(file("x.%j.json", &slurm), "x.nojob.5.json");
        let flux = [("FLUX_TASK_RANK", "2"), ("FLUX_JOB_SIZE", "4"), ("FLUX_JOB_ID", "ƒ3E")];
        assert_eq!(file("x.json", &flux), "x.2.json");
        assert_eq!(file("x.%j.%r.json", &flux), "x.ƒ3E.2.json");
        // One task, and a batch script.
        assert_eq!(file("x.json", &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), "x.json");
        assert_eq!(file("x.json", &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), "x.json");
        assert_eq!(file("x.json", &[("PMI_RANK", "odd"), ("PMI_SIZE", "2")]), "x.json");
        assert_eq!(file("x.json", &[]), "x.json");
        let torch = [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("MASTER_PORT", "29500")];
        assert_eq!((file("x.json", &torch), file("%r.json", &torch)), ("x.5.json".into(), "5.json".into()));
        let values = PatternValues::from_environment(|name| {
            torch.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
        });
        assert_eq!(values.job_of_ranks, None, "a later job can have the same port");
    }

    #[test]
    fn ranks_of_flux_name_their_job_though_its_pmi_does_not() {
        let job = |variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
            PatternValues::from_environment(variable).job_of_ranks
        };
        let [rank, size] = [("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "2")];
        let [id, pmi_rank, pmi_size] = [("FLUX_JOB_ID", "ƒ3E"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        for named in [&[rank, size, id][..], &[rank, size, id, pmi_rank, pmi_size]] {
            assert_eq!(job(named), Some("ƒ3E.".into()), "{named:?}");
        }
        // mpirun in a task of Flux started this rank.
        for unnamed in [&[rank, size, id, ("PMI_RANK", "0"), pmi_size][..], &[rank, id, pmi_rank, pmi_size]] {
            assert_eq!(job(unnamed), None, "{unnamed:?}");
        }
    }
}
