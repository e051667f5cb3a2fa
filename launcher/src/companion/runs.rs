//! The runs of this user that go on, by the names of their live files, which have the latest samples.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpu_track_abi::live::SUFFIX;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::run_directory;

use crate::cli::UsageError;
use crate::console;

/// The live file of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Pid of gpu-track-run, as the name of the file has it.
    pub(super) launcher_pid: u32,
}

/// Finds this user's live files in a directory and in those of runs there, in the order of the pids.
pub(super) fn all(directory: &Path, uid: u32) -> Vec<Found> {
    let directories = run_directory::of_sessions(directory, uid);
    let mut all: Vec<Found> = directories.iter().flat_map(|directory| all_in(directory, uid)).collect();
    all.order_by(|a, b| a.launcher_pid.cmp(&b.launcher_pid).then_with(|| a.path.cmp(&b.path)));
    all
}

/// Finds this user's live files in a directory.
fn all_in(directory: &Path, uid: u32) -> Vec<Found> {
    let prefix = format!("gpu-track.{uid}.");
    // The name of a live file: gpu-track.UID.PID.(anything) and the suffix.
    let found = |name: &str| {
        let pid = name.strip_prefix(&prefix)?.strip_suffix(SUFFIX)?.split('.').next()?.parse().ok()?;
        let path = directory.join(name);
        // Anybody can make a file with this user's id in its name, or a link.
        let is_own = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.uid() == uid);
        is_own.then_some(Found { path, launcher_pid: pid })
    };
    let names = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| found(&name)).collect()
}

/// The segment beside a live file. A path that does not end as a live file's does is taken for a segment.
pub(super) fn segment_of(live: &Path) -> PathBuf {
    let name = live.as_os_str().as_bytes();
    let segment = name.strip_suffix(SUFFIX.as_bytes()).unwrap_or(name);
    OsString::from(OsStr::from_bytes(segment)).into()
}

/// The names that the launcher runs by.
const NAMES: [&str; 2] = ["gpu-track-run", "gpu-tracker"];

/// Finds the pids of this user's gpu-track-run processes that are in another mount namespace, so that their live files can't be
/// seen from here. `known`: the live files that can be seen.
pub(super) fn hidden(proc_root: &Path, uid: u32, known: &[Found]) -> Vec<u32> {
    let mount_namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let Some(ours) = mount_namespace(&proc_root.join("self")) else { return Vec::new() };
    let hidden = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let process = entry.path();
        let is_own = entry.metadata().is_ok_and(|process| process.uid() == uid);
        let has_name = || {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            NAMES.contains(&name.trim_end())
        };
        // The collector is the same program, and has a first word of its own.
        let is_launcher = || {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
            NAMES.iter().any(|name| first.ends_with(name.as_bytes()))
        };
        let is_elsewhere = || mount_namespace(&process).is_some_and(|theirs| theirs != ours);
        let is_known = known.iter().any(|found| found.launcher_pid == pid);
        (is_own && has_name() && !is_known && is_launcher() && is_elsewhere()).then_some(pid)
    };
    let mut pids: Vec<u32> =
        fs::read_dir(proc_root).into_iter().flatten().flatten().filter_map(hidden).collect();
    pids.sort_unstable();
    pids
}

/// Makes the line that says which runs can't be seen. `None`: there is no such run.
pub(super) fn hidden_line(pids: &[u32]) -> Option<String> {
    let first = pids.first()?;
    let more = if pids.len() > 1 { format!(" and {} more", pids.len() - 1) } else { String::new() };
    Some(format!(
        "gpu-track-run of pid {first}{more} has a /dev/shm of its own, which can't be seen from here: look inside its container or job"
    ))
}

/// Says on stderr which runs can't be seen, if there are any.
pub(super) fn tell_hidden(pids: &[u32]) {
    hidden_line(pids).iter().for_each(console::message);
}

/// Makes the error that no run can be seen. `hidden`: the pids of runs that can't be seen.
pub(super) fn no_run(session_dir: &Path, hidden: &[u32]) -> UsageError {
    UsageError::new(hidden_line(hidden).unwrap_or_else(|| {
        format!(
            "no run of this user has a file in {}: start one with gpu-track-run, or look where it runs (a container, another machine)",
            session_dir.display()
        )
    }))
}

/// Finds the live file of the run that the user names by a pid or a path. A path is returned as it is. `all`: the live files that can
/// be seen. `find_hidden`: finds the pids of runs that can't be seen.
///
/// # Errors
/// If no run has the pid, or its live file can't be seen.
pub(super) fn named(
    run: &Path,
    all: &[Found],
    find_hidden: &dyn Fn() -> Vec<u32>,
) -> Result<PathBuf, UsageError> {
    let Some(pid) = run.to_str().and_then(|text| text.parse::<u32>().ok()) else {
        return Ok(run.to_path_buf());
    };
    if let Some(found) = all.iter().find(|found| found.launcher_pid == pid) {
        return Ok(found.path.clone());
    }
    let hidden: Vec<u32> = find_hidden().into_iter().filter(|hidden| *hidden == pid).collect();
    Err(UsageError::new(hidden_line(&hidden).unwrap_or_else(|| {
        format!("no run of this user has the pid {pid}: gpu-track watch --list shows them")
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WATCH-1
    #[test]
    fn own_files_are_listed_and_links_directories_and_other_names_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let uid = fs::metadata(directory.path()).unwrap().uid();
        let path = |name: String| directory.path().join(name);
        for name in ["70.a.live", "9.b.live", "8.c", "x.d.live", "8.e.state"] {
            fs::write(path(format!("gpu-track.{uid}.{name}")), "").unwrap();
        }
        fs::write(path(format!("gpu-track.{}.5.a.live", uid + 1)), "").unwrap();
        fs::create_dir(path(format!("gpu-track.{uid}.6.a.live"))).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path(format!("gpu-track.{uid}.7.a.live"))).unwrap();
        let pids: Vec<u32> = all(directory.path(), uid).iter().map(|found| found.launcher_pid).collect();
        assert_eq!(pids, [9, 70]);
    }

    // Requirement: WATCH-1
    #[test]
    fn run_among_hundreds_is_found_by_its_pid() {
        let directory = tempfile::tempdir().unwrap();
        let uid = fs::metadata(directory.path()).unwrap().uid();
        for pid in 100..400 {
            fs::write(directory.path().join(format!("gpu-track.{uid}.{pid}.a.live")), "").unwrap();
        }
        let all = all(directory.path(), uid);
        let path = named(Path::new("399"), &all, &Vec::new).unwrap();
        assert!(path.ends_with(format!("gpu-track.{uid}.399.a.live")), "{}", path.display());
    }

    #[test]
    fn hidden_runs_are_said_in_one_line() {
        assert_eq!(hidden_line(&[]), None);
        assert!(hidden_line(&[5]).unwrap().starts_with("gpu-track-run of pid 5 has a /dev/shm of its own"));
        assert!(hidden_line(&[5, 6, 7]).unwrap().starts_with("gpu-track-run of pid 5 and 2 more has"));
    }
}
