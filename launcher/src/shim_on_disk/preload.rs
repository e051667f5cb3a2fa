//! The command's environment: LD_PRELOAD with the shim, and the list of sessions.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use gpu_track_abi::preload::shim_in;
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_SESSIONS};

use crate::process::spawn::Environment;
use crate::shim_on_disk::old_shims::Upkeep;
use crate::shim_on_disk::shim_file::{self, Installed, ShimFileError};

/// The LD_PRELOAD that the command gets.
pub(crate) struct Preload {
    value: OsString,
    /// The shim, unless an outer run has written it.
    installed: Option<Installed>,
}

impl Preload {
    /// Makes the command's LD_PRELOAD: the shim, then the launcher's own value. If that has a shim already, an outer run has written
    /// it, and the value stays. Else the shim is written to disk.
    pub(crate) fn new() -> Result<Self, ShimFileError> {
        let value = env::var_os(ENV_PRELOAD).unwrap_or_default();
        if shim_in(value.as_bytes()).is_some() {
            return Ok(Self { value, installed: None });
        }
        let installed = shim_file::install()?;
        Ok(Self { value: joined(installed.link.as_os_str(), &value), installed: Some(installed) })
    }

    /// What keeps the shim's file from being removed while the run lasts. `None`: an outer run does that, or nothing removes it.
    pub(crate) fn upkeep(&self) -> Option<Upkeep> {
        let installed = self.installed.as_ref()?;
        Some(Upkeep::new(installed.link.clone(), installed.is_first_today?))
    }

    /// The shim's file.
    pub(crate) fn shim(&self) -> Option<&Path> {
        Some(Path::new(OsStr::from_bytes(shim_in(self.value.as_bytes())?)))
    }

    /// The shim's directory, for the warning about sandboxes that can't see it.
    pub(crate) fn directory(&self) -> Option<String> {
        Some(self.shim()?.parent()?.to_string_lossy().into_owned())
    }

    /// The variables by which a program that is no child of the launcher reports to this session. LD_PRELOAD has the shim alone:
    /// what else the launcher's own value has is not for that program.
    pub(crate) fn variables(&self, segment: &Path) -> Vec<(&'static str, OsString)> {
        let shim = shim_in(self.value.as_bytes()).map(|shim| OsStr::from_bytes(shim).to_owned());
        let preload = shim.map(|shim| (ENV_PRELOAD, shim));
        preload.into_iter().chain([(ENV_SESSION, sessions(segment))]).collect()
    }

    /// The command's environment: the launcher's, with the shim and this session's segment.
    pub(crate) fn environment(&self, segment: &Path) -> Environment {
        env::vars_os()
            .filter(|(name, _)| name != ENV_SESSION && name != ENV_PRELOAD)
            .chain([(ENV_SESSION.into(), sessions(segment)), (ENV_PRELOAD.into(), self.value.clone())])
            .collect()
    }
}

/// The value of GPU_TRACK_SESSION for processes of this session.
fn sessions(segment: &Path) -> OsString {
    joined(&outer_sessions(), segment.as_os_str())
}

/// Whether [`MAX_SESSIONS`] or more runs are around this one. Then its processes do not map its segment.
pub(crate) fn is_nested_too_deep() -> bool {
    let outer = outer_sessions();
    outer.as_bytes().split(|b| *b == b':').filter(|path| !path.is_empty()).count() >= MAX_SESSIONS
}

/// The segments of the runs around this one, as a list for GPU_TRACK_SESSION. A program that tracks itself keeps the variables of
/// runs that are over. The segments of those are gone, and are left out.
fn outer_sessions() -> OsString {
    living(&env::var_os(ENV_SESSION).unwrap_or_default())
}

/// Removes from a list the paths that do not exist. A path that can't be checked stays.
fn living(sessions: &OsStr) -> OsString {
    let is_there = |path: &&[u8]| !matches!(Path::new(OsStr::from_bytes(path)).try_exists(), Ok(false));
    let there: Vec<_> = sessions.as_bytes().split(|b| *b == b':').filter(is_there).collect();
    OsString::from_vec(there.join(&b':'))
}

/// Joins two lists to `a:b`, without empty parts.
fn joined(a: &OsStr, b: &OsStr) -> OsString {
    let parts: Vec<_> = [a, b].into_iter().map(OsStr::as_bytes).filter(|part| !part.is_empty()).collect();
    OsString::from_vec(parts.join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ATTACH-6
    #[test]
    fn sessions_of_runs_that_are_over_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).into_os_string();
        let (first, over, second) = (path("first"), path("over"), path("second"));
        for segment in [&first, &second] {
            std::fs::write(segment, []).unwrap();
        }
        let all = joined(&joined(&first, &over), &second);
        assert_eq!(living(&all), joined(&first, &second));
        assert_eq!(living(OsStr::new("")), "");
    }
}
