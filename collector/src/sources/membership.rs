//! The proof that a pid which a record names is that of a process of the tree. A record is a claim, and a pid may be
//! anybody's: without it a forged record would have us measure strangers, and all that they start.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys::proc_fs::ProcRoot;

/// Deeper trees exist in fork bombs only; who is deeper in one proves itself by what it maps.
const DEEPEST: usize = 1024;

const KTHREADD: u32 = 2;

/// Looks for it in /proc.
#[derive(Debug, Clone)]
pub struct Membership {
    root: ProcRoot,
    /// Name of the segment's file.
    segment: OsString,
    launcher: u32,
    collector: u32,
}

impl Membership {
    /// For the session with this segment.
    #[must_use]
    pub fn new(root: ProcRoot, segment: &Path, launcher_pid: u32) -> Self {
        let segment = segment.file_name().unwrap_or_default().to_owned();
        Self { root, segment, launcher: launcher_pid, collector: std::process::id() }
    }

    /// Whether this pid is that of a process of the tree: it descends from one that `is_known` (the launcher reaps
    /// orphans, so the chain of parents does not break), or, where another brought it into the session, it maps the
    /// segment. Launcher and collector are not, whatever a record says, nor are programs that a driver starts in the
    /// collector. `None`: that can't be told now, since it, or one that it descends from, is about to end.
    #[must_use]
    pub fn is_member(&self, pid: u32, is_known: impl Fn(u32) -> bool) -> Option<bool> {
        let parent = |pid| self.root.stat(pid).map(|stat| stat.ppid);
        let (mut topmost, mut ancestor) = (pid, parent(pid)?);
        if pid == self.launcher {
            return Some(false);
        }
        for _ in 0..DEEPEST {
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
        // A kernel thread never has memory: all descend from kthreadd, which nobody made.
        let is_of_kernel = topmost == KTHREADD && ancestor == 0;
        self.maps_segment(pid).or(is_of_kernel.then_some(false))
    }

    /// `None`: it has no memory of its own (any more), or it may not be read.
    fn maps_segment(&self, pid: u32) -> Option<bool> {
        let name = self.segment.as_bytes();
        let maps = self.root.read(pid, "maps").filter(|maps| !maps.is_empty())?;
        Some(!name.is_empty() && maps.windows(name.len()).any(|part| part == name))
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

    #[test]
    fn who_descends_from_the_tree_is_of_it_and_nobody_else() {
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
    fn who_maps_the_segment_is_of_the_tree_whoever_started_it() {
        let machine = Machine::new();
        let maps = |name: &str| format!("7f0000000000-7f0000001000 rw-s 00000000 00:1a 7  /dev/shm/{name}\n");
        machine.has(1, 0, "").has(60, 1, &maps("gpu-track-x-1")).has(61, 1, &maps("gpu-track-x-2"));
        assert_eq!((machine.is_member(60), machine.is_member(61)), (Some(true), Some(false)));
    }

    #[test]
    fn parents_in_a_circle_are_followed_for_a_while_only() {
        let machine = Machine::new();
        machine.has(70, 71, "x").has(71, 70, "x");
        assert_eq!(machine.is_member(70), Some(false));
    }

    #[test]
    fn who_is_about_to_end_or_has_lost_its_parent_meanwhile_is_not_judged() {
        let machine = Machine::new();
        machine.has(1, 0, "x").has(61, 60, "x").has(62, 1, "");
        assert_eq!((machine.is_member(61), machine.is_member(62)), (None, None));
    }
}
