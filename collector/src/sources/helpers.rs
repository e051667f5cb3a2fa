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
        runs_own_program(root, pid) && args(root, pid).is_some_and(|args| self.is_named_in(&args))
    }

    /// Whether this child of the launcher is a helper, or may be about to become one, or is gone. Until its exec it is a fork copy of the
    /// launcher, with its arguments. In the middle of the exec, the kernel shows none. The arguments are read once: an exec between two
    /// reads would hide both.
    pub(crate) fn may_be_helper(&self, root: &ProcRoot, pid: u32, launcher_pid: u32) -> bool {
        if !runs_own_program(root, pid) {
            // The kernel shows neither executable nor arguments of a process that has ended, or is just about to be a zombie.
            let has_ended = || root.stat(pid).is_none_or(|stat| stat.is_over() || stat.threads <= 1);
            return root.executable(pid).is_none() && args(root, pid).is_none() && has_ended();
        }
        let is_of_launcher = |own: Vec<u8>| self.is_named_in(&own) || Some(own) == args(root, launcher_pid);
        args(root, pid).is_none_or(is_of_launcher)
    }

    fn is_named_in(&self, args: &[u8]) -> bool {
        args.split(|byte| *byte == 0).any(|arg| arg == self.segment.as_os_str().as_bytes())
    }
}

/// The arguments of a process. `None`: the kernel shows none.
fn args(root: &ProcRoot, pid: u32) -> Option<Vec<u8>> {
    root.read(pid, "cmdline").filter(|args| !args.is_empty())
}

/// Whether a process runs the executable of the calling process, as launchers, collectors and their helpers do.
pub(crate) fn runs_own_program(root: &ProcRoot, pid: u32) -> bool {
    let own = root.executable(std::process::id());
    own.is_some() && root.executable(pid) == own
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    // Requirement: SEE-37
    #[test]
    fn child_that_becomes_a_helper_is_none_of_the_tree_at_any_moment() {
        const LAUNCHER: u32 = 50;
        let proc = tempfile::tempdir().unwrap();
        let has = |pid: u32, state: char, args: &str, program: Option<&str>| {
            let directory = proc.path().join(pid.to_string());
            fs::create_dir_all(&directory).unwrap();
            let stat =
                format!("{pid} (a b) {state} {LAUNCHER} 1 1 0 -1 0 1 0 1 0 1 1 0 0 20 0 1 0 {pid} 1 1\n");
            fs::write(directory.join("stat"), stat).unwrap();
            fs::write(directory.join("cmdline"), args).unwrap();
            let _ = program.map(|program| symlink(program, directory.join("exe")).unwrap());
        };
        let own = Some("/proc/self/exe");
        has(std::process::id(), 'S', "gpu-track-collector\0/s\0", own);
        has(LAUNCHER, 'S', "gpu-track-run\0true\0", own);
        let helpers = Helpers::new(Path::new("/s"));
        let root = ProcRoot::new(proc.path());
        let cases = [
            (51, 'R', "gpu-track-run\0true\0", own, true),
            (52, 'R', "", own, true),
            (53, 'R', "gpu-track-merger\0/s\0", own, true),
            // It has ended since its state was read, and is about to.
            (54, 'Z', "", None, true),
            (59, 'R', "", None, true),
            // A run within the run, a program that names the segment, and one that may not be read.
            (55, 'R', "gpu-track-run\0make\0", own, false),
            (56, 'R', "cat\0/s\0", Some("/bin/sh"), false),
            (57, 'R', "su\0", None, false),
        ];
        for (pid, state, args, program, expected) in cases {
            has(pid, state, args, program);
            assert_eq!(helpers.may_be_helper(&root, pid, LAUNCHER), expected, "{pid}: {args:?}");
        }
        assert!(helpers.may_be_helper(&root, 58, LAUNCHER), "it is gone");
    }
}
