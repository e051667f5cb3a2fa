//! The run's own helpers among the launcher's children: collectors, the process that [ends the tree](crate::tree_end) at a limit, and
//! those that run the command of `--on-alert`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys::proc_fs::ProcRoot;

/// Knows the helpers of a run. The calling process must be one of them.
#[derive(Debug)]
pub struct Helpers {
    /// The segment, which their arguments name.
    segment: PathBuf,
}

impl Helpers {
    /// Makes the check for the run of this segment, whose path is among the arguments of its helpers.
    pub fn new(segment: &Path) -> Self {
        Self { segment: segment.to_owned() }
    }

    /// Whether this child of the launcher is a helper: it runs the executable of the calling process, and names the segment.
    pub(crate) fn is_helper(&self, root: &ProcRoot, pid: u32) -> bool {
        let segment = self.segment.as_os_str().as_bytes();
        let names_segment = |args: Vec<u8>| args.split(|byte| *byte == 0).any(|arg| arg == segment);
        runs_own_program(root, pid) && root.read(pid, "cmdline").is_some_and(names_segment)
    }

    /// Whether this child of the launcher may be about to become a helper. It is then still a fork copy of the launcher,
    /// with its arguments, or in the middle of an exec, where the kernel shows none.
    pub(crate) fn may_become_helper(root: &ProcRoot, pid: u32, launcher_pid: u32) -> bool {
        let args = |pid| root.read(pid, "cmdline").filter(|args| !args.is_empty());
        runs_own_program(root, pid) && args(pid).is_none_or(|own| Some(own) == args(launcher_pid))
    }
}

/// Whether a process runs the executable of the calling process, as launchers, collectors and their helpers do.
pub(crate) fn runs_own_program(root: &ProcRoot, pid: u32) -> bool {
    let own = root.executable(std::process::id());
    own.is_some() && root.executable(pid) == own
}
