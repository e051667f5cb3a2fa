//! Membership: does a pid that a record names belong to the tree?
//!
//! Any process can write any pid into a record. Without a check, a forged record would add an unrelated process and
//! all its descendants to the report.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::proc_fs::ProcRoot;

/// How many ancestors are followed. Deeper trees exist in fork bombs only; there the mapped segment decides.
const MAX_DEPTH: usize = 1024;

/// Pid of kthreadd, the parent of all other kernel threads.
const KTHREADD: u32 = 2;

/// Reads /proc for ancestors and for the mapped segment.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    root: ProcRoot,
    /// File name of the segment.
    segment: OsString,
    launcher: u32,
    collector: u32,
}

impl Membership {
    /// Makes the check for the session of this segment.
    pub(crate) fn new(root: ProcRoot, segment: &Path, launcher_pid: u32) -> Self {
        let segment = segment.file_name().unwrap_or_default().to_owned();
        Self { root, segment, launcher: launcher_pid, collector: std::process::id() }
    }

    /// Whether the process with this pid belongs to the tree.
    ///
    /// It does if it has an ancestor that `is_known`, or if it maps the segment (a process that joined the session).
    /// The launcher is a subreaper, so the chain of parents does not break at orphans. The launcher, the collector and
    /// the collector's children (drivers run programs) are never members.
    ///
    /// `None`: unknown, because the process or an ancestor is ending, or because the process's maps may not be read.
    pub(crate) fn is_member(&self, pid: u32, is_known: impl Fn(u32) -> bool) -> Option<bool> {
        let parent = |pid| self.root.stat(pid).map(|stat| stat.ppid);
        // On the way up: the process that was reached, and its parent.
        let (mut topmost, mut ancestor) = (pid, parent(pid)?);
        if pid == self.launcher {
            return Some(false);
        }
        for _ in 0..MAX_DEPTH {
            if topmost == self.collector || ancestor == self.collector {
                return Some(false);
            }
            if is_known(ancestor) {
                return Some(true);
            }
            if ancestor <= 1 {
                break;
            }
            (topmost, ancestor) = (ancestor, parent(ancestor)?);
        }
        // Kernel threads have no memory, so /proc shows no maps; all descend from kthreadd, whose parent is 0.
        let is_of_kernel = topmost == KTHREADD && ancestor == 0;
        self.maps_segment(pid).or(is_of_kernel.then_some(false))
    }

    /// Whether a line of /proc/PID/maps is about the segment. The whole file name must be equal: readers of the live file map
    /// that, and its name begins with the segment's.
    fn is_segment(&self, line: &[u8]) -> bool {
        let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
        let name = line.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !name.is_empty() && name == self.segment.as_bytes()
    }

    /// Whether the process maps the segment. `None`: the process has no memory, or its maps may not be read.
    pub(crate) fn maps_segment(&self, pid: u32) -> Option<bool> {
        let maps = self.root.read(pid, "maps").filter(|maps| !maps.is_empty())?;
        Some(maps.split(|byte| *byte == b'\n').any(|line| self.is_segment(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCHER: u32 = 50;

    struct Machine {
        proc: tempfile::TempDir,
        membership: Membership,
    }

    impl Machine {
        fn new() -> Self {
            let proc = tempfile::tempdir().unwrap();
            let segment = Path::new("/dev/shm/gpu-track-x-1");
            let membership = Membership::new(ProcRoot::new(proc.path()), segment, LAUNCHER);
            Self { proc, membership }
        }

        fn has(&self, pid: u32, ppid: u32, maps: &str) -> &Self {
            let dir = self.proc.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            let stat = format!("{pid} (a) S {ppid} 1 1 0 -1 0 1 0 1 0 1 1 0 0 20 0 1 0 100 1 1\n");
            std::fs::write(dir.join("stat"), stat).unwrap();
            std::fs::write(dir.join("maps"), maps).unwrap();
            self
        }

        fn is_member(&self, pid: u32) -> Option<bool> {
            self.membership.is_member(pid, |pid| pid == LAUNCHER)
        }
    }

    // Requirement: FAULT-12
    #[test]
    fn descendants_of_a_known_process_are_members() {
        let machine = Machine::new();
        machine.has(1, 0, "x").has(LAUNCHER, 1, "x").has(51, LAUNCHER, "").has(52, 51, "x").has(60, 1, "x");
        assert_eq!(
            [51, 52, 60, 1, 99].map(|pid| machine.is_member(pid)),
            [Some(true), Some(true), Some(false), Some(false), None]
        );
        assert_eq!(machine.is_member(LAUNCHER), Some(false));
        let collector = std::process::id();
        machine.has(collector, LAUNCHER, "x").has(53, collector, "x").has(54, 53, "x");
        assert_eq!([collector, 53, 54].map(|pid| machine.is_member(pid)), [Some(false); 3]);
        machine.has(2, 0, "").has(70, 2, "").has(71, 60, "");
        assert_eq!([2, 70, 71].map(|pid| machine.is_member(pid)), [Some(false), Some(false), None]);
    }

    #[test]
    fn process_that_maps_the_segment_is_a_member() {
        let machine = Machine::new();
        let maps = |name: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 00:1a 7  /dev/shm/{name}\n");
        machine.has(1, 0, "");
        let names = ["gpu-track-x-1", "gpu-track-x-1 (deleted)", "gpu-track-x-2", "gpu-track-x-1.live"];
        let members = (60..).zip(names).map(|(pid, name)| machine.has(pid, 1, &maps(name)).is_member(pid));
        assert!(members.eq([true, true, false, false].map(Some)), "readers of the live file are none");
    }

    #[test]
    fn circle_of_parents_ends_at_the_depth_limit() {
        let machine = Machine::new();
        machine.has(70, 71, "x").has(71, 70, "x");
        assert_eq!(machine.is_member(70), Some(false));
    }

    #[test]
    fn ending_process_or_missing_parent_is_unknown() {
        let machine = Machine::new();
        machine.has(1, 0, "x").has(61, 60, "x").has(62, 1, "");
        assert_eq!((machine.is_member(61), machine.is_member(62)), (None, None));
    }
}
