//! Membership: does a pid that a record names belong to the tree?
//!
//! Any process can write any pid into a record. Without a check, a forged record would add an unrelated process and
//! all its descendants to the report.

use std::os::unix::ffi::OsStrExt;

use gpu_track_abi::ENV_SESSION;

use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::named::{FileId, KnownFile};

/// How many ancestors are followed. Only fork bombs make deeper trees. There, only whether the process maps the segment decides.
const MAX_DEPTH: usize = 1024;

/// Pid of kthreadd, the parent of all other kernel threads.
const KTHREADD: u32 = 2;

/// Reads /proc for ancestors, and for the segment that processes map or name.
#[derive(Debug, Clone)]
pub(crate) struct Membership {
    root: ProcRoot,
    /// `None`: the run has no segment.
    segment: Option<KnownFile>,
    launcher: u32,
    collector: u32,
    /// The real user of the run's own processes.
    uid: u32,
}

impl Membership {
    /// Makes the check for the session of this segment.
    pub(crate) fn new(root: ProcRoot, segment: Option<KnownFile>, launcher_pid: u32) -> Self {
        let uid = rustix::process::getuid().as_raw();
        Self { root, segment, launcher: launcher_pid, collector: std::process::id(), uid }
    }

    /// Whether the process with this pid belongs to the tree.
    ///
    /// It does if it has an ancestor that `is_known`, or if it carries the session (a process that joined).
    /// The launcher is a subreaper, so the chain of parents does not break at orphans. The launcher, the collector and
    /// the collector's children (drivers run programs) are never members.
    ///
    /// `None`: unknown, because the process or an ancestor is ending, because the process just becomes another program, or because it
    /// may not be read.
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
        self.carries_session(pid).or(is_of_kernel.then_some(false))
    }

    /// Whether the process maps the segment, or was started with the variable that names it. Between an exec and the shim's start, only
    /// the variable shows it. `None`: the process has no memory, is in the middle of an exec, or may not be read.
    fn carries_session(&self, pid: u32) -> Option<bool> {
        // The maps come first: an exec can unmap the segment between the two.
        if self.maps_segment(pid)? || self.names_segment(pid) {
            return Some(true);
        }
        // In the middle of an exec, the process has its new memory, but arguments and environment are still empty. So neither says
        // anything.
        let has = |file| self.root.read(pid, file).is_some_and(|text| !text.is_empty());
        (has("cmdline") || has("environ")).then_some(false)
    }

    /// Whether a process has joined the run, whatever its ancestors are: it maps the segment, or its environment names it. Static
    /// programs inherit the environment, too.
    pub(crate) fn has_joined(&self, pid: u32) -> bool {
        self.maps_segment(pid) == Some(true) || self.names_segment(pid)
    }

    /// Whether the process maps the segment: the file itself, since anyone can make another file of that name. `None`: the process
    /// has no memory, or its maps may not be read.
    fn maps_segment(&self, pid: u32) -> Option<bool> {
        let maps = self.root.read(pid, "maps").filter(|maps| !maps.is_empty())?;
        let segment = self.segment.as_ref().map(|segment| segment.id);
        Some(segment.is_some() && maps.split(|byte| *byte == b'\n').any(|line| mapped_file(line) == segment))
    }

    /// Whether the environment of a process names the segment. Processes of other users don't count: the user who starts a setuid program
    /// chooses its environment.
    fn names_segment(&self, pid: u32) -> bool {
        let Some(segment) = &self.segment else { return false };
        let path = segment.path.as_os_str().as_bytes();
        let names_it = |entry: &[u8]| {
            let sessions =
                entry.strip_prefix(ENV_SESSION.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            sessions
                .is_some_and(|sessions| sessions.split(|byte| *byte == b':').any(|session| session == path))
        };
        self.root.real_uid(pid) == Some(self.uid)
            && self.root.environ(pid).is_some_and(|environ| environ.split(|byte| *byte == 0).any(names_it))
    }
}

/// The file of a line of /proc/PID/maps: `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`. `None`: it is no such line.
fn mapped_file(line: &[u8]) -> Option<FileId> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let (major, minor) = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let inode = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some(FileId { device: (number(major)?, number(minor)?), inode })
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
            let id = FileId { device: (0, 0x1a), inode: 7 };
            let segment = KnownFile { path: "/dev/shm/gpu-track-x-1".into(), id };
            let membership = Membership::new(ProcRoot::new(proc.path()), Some(segment), LAUNCHER);
            Self { proc, membership }
        }

        fn has(&self, pid: u32, ppid: u32, maps: &str) -> &Self {
            let dir = self.proc.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            let stat = format!("{pid} (a) S {ppid} 1 1 0 -1 0 1 0 1 0 1 1 0 0 20 0 1 0 100 1 1\n");
            std::fs::write(dir.join("stat"), stat).unwrap();
            std::fs::write(dir.join("maps"), maps).unwrap();
            std::fs::write(dir.join("cmdline"), "a\0").unwrap();
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

    // Requirement: FAULT-12
    #[test]
    fn process_that_maps_the_segment_is_a_member_and_one_that_maps_its_name_is_not() {
        let machine = Machine::new();
        let maps = |file: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 {file}\n");
        machine.has(1, 0, "");
        let files = [
            "00:1a 7                          /dev/shm/gpu-track-x-1",
            "00:1a 7                          /dev/shm/gpu-track-x-1 (deleted)",
            // In a container, or bound to another name.
            "00:1a 7                          /other/name",
            "00:1a 8                          /dev/shm/gpu-track-x-1",
            "fe:01 7                          /dev/shm/gpu-track-x-1",
            "00:1a 70                         /dev/shm/gpu-track-x-1.live",
            "00:00 0 ",
        ];
        let members = (60..).zip(files).map(|(pid, file)| machine.has(pid, 1, &maps(file)).is_member(pid));
        assert!(members.eq([true, true, true, false, false, false, false].map(Some)));
    }

    // Requirement: SEE-70, LIMIT-6
    #[test]
    fn process_of_this_user_whose_environment_names_the_segment_has_joined() {
        let machine = Machine::new();
        let own = rustix::process::getuid().as_raw();
        let belongs = |pid: u32, uid: u32, environ: &str| {
            let dir = machine.has(pid, 1, "x").proc.path().join(pid.to_string());
            std::fs::write(dir.join("status"), format!("Name:\tx\nUid:\t{uid}\t0\t0\t0\n")).unwrap();
            std::fs::write(dir.join("environ"), environ).unwrap();
            let has_joined = machine.membership.has_joined(pid);
            // Between an exec and the shim's start, too.
            assert_eq!(machine.is_member(pid), Some(has_joined));
            has_joined
        };
        let name = "/dev/shm/gpu-track-x-1";
        assert!(belongs(60, own, &format!("A=b\0GPU_TRACK_SESSION={name}\0")));
        assert!(belongs(61, own, &format!("GPU_TRACK_SESSION=/dev/shm/outer:{name}\0A=b\0")));
        assert!(!belongs(62, own + 1, &format!("GPU_TRACK_SESSION={name}\0")), "another user's program");
        for other in
            [format!("GPU_TRACK_SESSION={name}2"), format!("X=GPU_TRACK_SESSION={name}"), String::new()]
        {
            assert!(!belongs(63, own, &other), "{other}");
        }
    }

    // Requirement: SEE-70
    #[test]
    fn process_in_the_middle_of_an_exec_is_unknown() {
        let machine = Machine::new();
        let directory = machine.has(60, 1, "x").proc.path().join("60");
        std::fs::write(directory.join("cmdline"), "").unwrap();
        assert_eq!(machine.is_member(60), None);
        std::fs::write(directory.join("environ"), "A=b\0").unwrap();
        assert_eq!(machine.is_member(60), Some(false), "a program without arguments");
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
