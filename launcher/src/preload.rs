//! The command's environment: LD_PRELOAD with the shim, and the list of sessions.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use gpu_track_abi::preload::{for_elf32, shim_in};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_SESSIONS};

use crate::elf32;
use crate::shim_file::{self, ShimFileError};
use crate::spawn::Environment;

/// The command's LD_PRELOAD.
pub(crate) struct Preload {
    value: OsString,
    /// A library for 32-bit programs lies beside the shim.
    pub(crate) has_elf32: bool,
}

impl Preload {
    /// The launcher's own LD_PRELOAD with the shim in it. The shim is written to disk, unless an outer run has done so.
    pub(crate) fn new() -> Result<Self, ShimFileError> {
        let value = env::var_os(ENV_PRELOAD).unwrap_or_default();
        let value = match shim_in(value.as_bytes()) {
            Some(_) => value,
            None => joined(shim_file::install()?.as_os_str(), &value),
        };
        let shim = shim_in(value.as_bytes()).map(|path| Path::new(OsStr::from_bytes(path)));
        let has_elf32 = elf32::is_supported() && shim.is_some_and(elf32::is_installed);
        Ok(Self { value, has_elf32 })
    }

    /// The shim's directory.
    pub(crate) fn directory(&self) -> Option<String> {
        let shim = Path::new(OsStr::from_bytes(shim_in(self.value.as_bytes())?));
        Some(shim.parent()?.to_string_lossy().into_owned())
    }

    /// The environment in which to start `program`: the launcher's, with the shim and this session's segment.
    pub(crate) fn environment(&self, program: Option<&OsString>, segment: &Path) -> Environment {
        let is_elf32 = self.has_elf32 && program.is_some_and(|program| elf32::is_elf32(program));
        let preload = match for_elf32(self.value.as_bytes()).filter(|_| is_elf32) {
            Some(parts) => OsString::from_vec(parts.concat()),
            None => self.value.clone(),
        };
        let sessions = joined(&outer_sessions(), segment.as_os_str());
        env::vars_os()
            .filter(|(name, _)| name != ENV_SESSION && name != ENV_PRELOAD)
            .chain([(ENV_SESSION.into(), sessions), (ENV_PRELOAD.into(), preload)])
            .collect()
    }
}

/// Whether so many runs are outside this one that processes do not map its segment.
pub(crate) fn is_nested_too_deep() -> bool {
    let outer = outer_sessions();
    outer.as_bytes().split(|b| *b == b':').filter(|path| !path.is_empty()).count() >= MAX_SESSIONS
}

fn outer_sessions() -> OsString {
    env::var_os(ENV_SESSION).unwrap_or_default()
}

/// `a:b`, without empty parts.
fn joined(a: &OsStr, b: &OsStr) -> OsString {
    let parts: Vec<_> = [a, b].into_iter().map(OsStr::as_bytes).filter(|part| !part.is_empty()).collect();
    OsString::from_vec(parts.join(&b':'))
}
