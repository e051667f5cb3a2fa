//! The names of a session's files in shared memory.

use std::path::{Path, PathBuf};

/// What the name of a state file ends with.
pub(super) const STATE_SUFFIX: &str = ".state";

/// What the names of all files of this user's sessions begin with.
pub(super) fn prefix(uid: u32) -> String {
    format!("gpu-track.{uid}.")
}

/// The path of a new session's segment.
pub fn new_name(dir: &Path, uid: u32, launcher_pid: u32, random: u64) -> PathBuf {
    dir.join(format!("{}{launcher_pid}.{random:016x}", prefix(uid)))
}

/// The path of the state file beside a segment.
pub fn state_name(segment: &Path) -> PathBuf {
    let mut path = segment.as_os_str().to_owned();
    path.push(STATE_SUFFIX);
    path.into()
}
