//! Whether the report of a run is kept, and the keeper process that writes it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::kept::directory;
use gpu_track_collector::model::batch::{Variable, system as batch_system};
use gpu_track_collector::model::config::{Keep, SparePlaces};
use gpu_track_collector::report::format;
use gpu_track_collector::safe_path::User;
use rustix::fs::FileType;

use crate::process::before_main::{close_inherited, is_open};
use crate::process::signals;
use crate::trusted;

/// The variable with the number of reports to keep, or 0. If it is set, neither terminal nor batch system matters.
const VARIABLE: &str = "GPU_TRACK_KEEP";
/// How many reports are kept without the variable.
const DEFAULT_MOST: usize = 20;
/// A build server sets one of these, and nobody looks at its terminal.
const BUILD_VARIABLES: [&str; 2] = ["CI", "JENKINS_URL"];

/// Decides where the report of a run in this environment is kept, and how many are. `None`: it is not kept.
///
/// Arguments may hold secrets, and homes have quotas. So without GPU_TRACK_KEEP, only the report of a run that a person looks at is
/// kept. A run inside another one, or one rank of several (`is_rank`), is only a part of what that person looks at. `relay`: the pid
/// of the launcher's relay.
///
/// # Errors
/// If GPU_TRACK_KEEP is no whole number. The error is a line for the user.
pub(crate) fn of_run(
    variable: Variable,
    is_terminal: bool,
    is_rank: bool,
    relay: Option<u32>,
) -> Result<Option<Keep>, String> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is_build_or_inner_run = BUILD_VARIABLES.into_iter().chain([ENV_SESSION]).any(is_set);
    // The keeper ends with the first process of its container.
    let is_init = [Some(std::process::id()), relay].contains(&Some(1));
    let is_unfit = is_rank || is_build_or_inner_run || batch_system(variable).is_some() || is_init;
    let by_default = if is_terminal && !is_unfit { DEFAULT_MOST } else { 0 };
    let most = match variable(VARIABLE).filter(|value| !value.is_empty()) {
        None => by_default,
        Some(given) => given.to_str().and_then(|given| given.parse().ok()).ok_or_else(|| {
            format!(
                "{VARIABLE}: \"{}\" is not allowed: a whole number of reports; none is kept",
                given.display()
            )
        })?,
    };
    Ok(of_user(variable).map(|keep| Keep { most, ..keep }).filter(|keep| keep.most > 0))
}

/// Where this user's reports are kept, with the default number of reports: below XDG_STATE_HOME, or else below HOME (XDG Base
/// Directory). As that specification demands, a variable with a relative path is ignored. `None`: no variable names a directory.
pub(crate) fn of_user(variable: Variable) -> Option<Keep> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Each is a directory that must exist, and the state directory below it: XDG_STATE_HOME itself is made if it is missing, as
    // ~/.local/state is.
    let given = path("XDG_STATE_HOME").and_then(|state| Some((state.parent()?.to_owned(), state)));
    let in_home = || path("HOME").map(|home| (home.clone(), home.join(".local/state")));
    let (home, state) = given.or_else(in_home)?;
    Some(Keep { home, directory: state.join("gpu-track"), most: DEFAULT_MOST })
}

/// Where a report is written that can't be written to its place: a directory in that of the kept reports, or that of temporary
/// files.
pub(crate) fn spare_places(variable: Variable) -> SparePlaces {
    let state = of_user(variable).map(|keep| Keep { directory: keep.directory.join("unwritten"), ..keep });
    let temporary = variable("TMPDIR").and_then(|named| trusted::path(&named, User::this()).ok());
    let temporary = temporary.map(PathBuf::from).filter(|path| path.is_absolute());
    SparePlaces { state, temporary: temporary.unwrap_or_else(|| "/tmp".into()) }
}

/// Does the work of a keeper: writes a report, and returns the exit status. The collector starts a keeper. Its
/// stdin is the report, its stdout the directory of kept reports, its argument how many are kept. `None`: it was not started so.
pub(crate) fn serve(args: &[OsString]) -> Option<i32> {
    let [most] = args else { return None };
    let most = most.to_str()?.parse().ok()?;
    if !(is_open(0, FileType::RegularFile) && is_open(1, FileType::Directory)) {
        return None;
    }
    // SIGALRM ends a keeper whose file system does not answer. The keeper has inherited that this signal is ignored and blocked.
    signals::set_ignored(libc::SIGALRM, false);
    signals::unblock(libc::SIGALRM);
    let life_s = u32::try_from(directory::KEEPER_LIFE.as_secs()).unwrap_or(u32::MAX);
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(life_s) };
    close_inherited();
    // The keeper outlives the run. It keeps no file system in use, and its files are for this user alone.
    rustix::process::chdir("/").ok();
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    // SAFETY: the collector opened these for this process, and nothing else in it uses them.
    let [report, directory] = [0, 1].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let result = directory::write(&mut File::from(report), &directory, format::JSON_NAME, most);
    Some(i32::from(result.is_err()))
}

/// Reads a variable of this process's environment. Tests hand in another function. `None`: the variable is not set.
pub(crate) fn own_variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(variables: &[(&str, &str)], is_terminal: bool, is_rank: bool) -> Result<Option<usize>, String> {
        let home = [("HOME", "/home/me")];
        let all: Vec<_> = home.iter().chain(variables).collect();
        let variable = |name: &str| all.iter().rev().find(|(set, _)| *set == name).map(|(_, to)| to.into());
        of_run(&variable, is_terminal, is_rank, None).map(|keep| keep.map(|keep| keep.most))
    }

    // Requirement: OUT-28
    #[test]
    fn reports_are_kept_where_a_person_looks_or_the_user_says_so() {
        assert_eq!(most(&[], true, false), Ok(Some(20)));
        assert_eq!(most(&[], false, false), Ok(None));
        assert_eq!(most(&[], true, true), Ok(None));
        for name in BUILD_VARIABLES.into_iter().chain([ENV_SESSION, "SLURM_JOB_ID", "_CONDOR_SLOT"]) {
            assert_eq!(most(&[(name, "1")], true, false), Ok(None), "{name}");
            assert_eq!(most(&[(name, "")], true, false), Ok(Some(20)), "{name}");
            assert_eq!(most(&[(name, "1"), (VARIABLE, "3")], false, true), Ok(Some(3)), "{name}");
        }
        assert_eq!(most(&[(VARIABLE, "0")], true, false), Ok(None));
        assert_eq!(most(&[(VARIABLE, "")], true, false), Ok(Some(20)));
        let line = "GPU_TRACK_KEEP: \"many\" is not allowed: a whole number of reports; none is kept";
        assert_eq!(most(&[(VARIABLE, "many")], true, false), Err(line.to_owned()));
        assert_eq!(most(&[("HOME", "")], true, false), Ok(None));
    }

    #[test]
    fn state_directory_is_of_xdg_or_in_the_home() {
        let directory = |variables: &[(&str, &str)]| {
            let variable =
                |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, to)| to.into());
            of_user(&variable).map(|keep| keep.directory)
        };
        let home = ("HOME", "/home/me");
        assert_eq!(directory(&[home]), Some("/home/me/.local/state/gpu-track".into()));
        assert_eq!(directory(&[home, ("XDG_STATE_HOME", "/s")]), Some("/s/gpu-track".into()));
        assert_eq!(directory(&[home, ("XDG_STATE_HOME", "s")]), directory(&[home]));
        assert_eq!(directory(&[]), None);
    }
}
