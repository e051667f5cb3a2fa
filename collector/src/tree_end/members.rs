//! The processes of a run that is to be ended.

use std::collections::{BTreeMap, BTreeSet};

use super::TreeToEnd;
use crate::model::sorting::InOrder;
use crate::sources::helpers::{Helpers, runs_own_program};
use crate::sources::membership::Membership;
use crate::store::run_directory::RunDirectory;
use crate::sys::proc_fs::{ProcRoot, Stat};

/// A process. The start tells it from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its pid.
    pub pid: u32,
    /// When it started, clock ticks after boot.
    pub start_ticks: u64,
}

impl Member {
    /// Finds the process that has this pid now.
    pub fn read(root: &ProcRoot, pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: root.stat(pid)?.start_ticks })
    }
}

/// Finds the processes of a run.
pub(super) struct Members<'a> {
    root: &'a ProcRoot,
    tree: &'a TreeToEnd,
    /// Finds processes by the segment.
    membership: Membership,
    /// Recognizes the run's own helpers. `None`: the run has no segment.
    helpers: Option<Helpers>,
    /// Processes of containers can report to the session. They are no descendants of the launcher.
    has_containers: bool,
    /// The launcher. `None`: it was gone when the ender started.
    launcher: Option<Member>,
    /// Processes that were found, or named by the starter of the ender, and lived at the last call of [`Self::find_live`].
    known: BTreeSet<Member>,
    /// Pid of the ender.
    own: u32,
}

impl<'a> Members<'a> {
    pub(super) fn new(root: &'a ProcRoot, tree: &'a TreeToEnd) -> Self {
        Self {
            root,
            tree,
            // Only `has_joined` is asked, which does not use the launcher's pid.
            membership: Membership::new(root.clone(), tree.segment.clone(), tree.launcher.unwrap_or(0)),
            launcher: tree.launcher.and_then(|pid| Member::read(root, pid)),
            has_containers: tree
                .segment
                .as_ref()
                .is_some_and(|segment| RunDirectory::of_segment(&segment.path).is_some()),
            helpers: tree.segment.as_ref().map(|segment| Helpers::new(&segment.path)),
            known: tree.known.iter().copied().collect(),
            own: std::process::id(),
        }
    }

    /// Finds the processes of the run that live now, each with the pid of its parent.
    ///
    /// They are the known ones, the launcher's children, and all descendants of these. If the launcher is gone, or inherits no
    /// orphans, processes that have joined the session are found, too. With `--containers`, those in other pid namespaces are. The run's own helpers are left out with what they started. The
    /// launcher itself is left out, too.
    pub(super) fn find_live(&mut self) -> BTreeMap<Member, u32> {
        let all =
            self.root.pids().into_iter().filter_map(|pid| Some((pid, self.root.stat(pid)?))).ordered_map();
        let lives = |member: &Member| {
            all.get(&member.pid).is_some_and(|stat| stat.start_ticks == member.start_ticks && !stat.is_over())
        };
        let launcher = self.launcher.filter(lives);
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, stat) in &all {
            children.entry(stat.ppid).or_default().push(*pid);
        }
        let mut next: Vec<u32> =
            self.known.iter().filter(|known| lives(known)).map(|known| known.pid).collect();
        if let Some(launcher) = launcher {
            next.extend(children.get(&launcher.pid).into_iter().flatten());
        }
        if launcher.is_none() || !self.tree.inherits_orphans {
            next.extend(all.keys().copied().filter(|pid| self.membership.has_joined(*pid)));
        } else if self.has_containers {
            // Programs that look at the run from outside, such as `gpu-track record`, map the segment, too.
            let is_inside = |pid: &u32| self.root.status(*pid).is_some_and(|status| status.ns_pids.len() > 1);
            let inside = all.keys().copied().filter(is_inside);
            next.extend(inside.filter(|pid| self.membership.has_joined(*pid)));
        }
        // Dead processes are searched as well: one that died while /proc was read can still be named as a parent.
        let mut found = BTreeMap::new();
        while let Some(pid) = next.pop() {
            let is_launcher = launcher.is_some_and(|launcher| launcher.pid == pid);
            let Some(stat) = all.get(&pid).filter(|_| !is_launcher) else { continue };
            let member = Member { pid, start_ticks: stat.start_ticks };
            if !self.is_own_helper(pid, stat, launcher) && found.insert(member, stat.ppid).is_none() {
                next.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found.retain(|member, _| lives(member));
        // The next call begins at these: a process whose parent has died is no descendant any more.
        self.known = found.keys().copied().collect();
        found
    }

    /// Whether this process runs the same executable as the ender: it is a launcher or collector of a run within the run.
    pub(super) fn is_launcher_or_collector(&self, member: Member) -> bool {
        runs_own_program(self.root, member.pid)
    }

    /// Whether this is the ender, a collector of the run, or another of its helpers, which are children of the launcher. A `launcher`
    /// of `None` is gone, and then the parent does not count.
    fn is_own_helper(&self, pid: u32, stat: &Stat, launcher: Option<Member>) -> bool {
        if pid == self.own {
            return true;
        }
        launcher.is_none_or(|launcher| stat.ppid == launcher.pid)
            && self.helpers.as_ref().is_some_and(|helpers| helpers.is_helper(self.root, pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::segment::named::{FileId, KnownFile};

    const LAUNCHER: u32 = 50;
    const SEGMENT: &str = "/dev/shm/gpu-track.0.50.1";
    /// A line of /proc/PID/maps about the segment, and one about another file of its name.
    const MAPPED: &str = "7f00-7f10 rw-s 00000000 00:1a 7   /dev/shm/gpu-track.0.50.1";
    const OF_ITS_NAME: &str = "7f00-7f10 rw-s 00000000 00:2b 7   /dev/shm/gpu-track.0.50.1";

    /// A /proc with the processes of a run.
    struct Machine {
        proc: tempfile::TempDir,
        root: ProcRoot,
    }

    impl Machine {
        fn new() -> Self {
            let proc = tempfile::tempdir().unwrap();
            let root = ProcRoot::new(proc.path());
            let machine = Self { proc, root };
            machine.has(1, 0, 'S', "x").has(LAUNCHER, 1, 'S', "x");
            machine
        }

        fn has(&self, pid: u32, ppid: u32, state: char, maps: &str) -> &Self {
            let dir = self.proc.path().join(pid.to_string());
            std::fs::create_dir_all(&dir).unwrap();
            let stat = format!("{pid} (a b) {state} {ppid} 1 1 0 -1 0 1 0 1 0 1 1 0 0 20 0 1 0 {pid} 1 1\n");
            std::fs::write(dir.join("stat"), stat).unwrap();
            std::fs::write(dir.join("maps"), maps).unwrap();
            self
        }

        fn is_gone(&self, pid: u32) -> &Self {
            std::fs::remove_dir_all(self.proc.path().join(pid.to_string())).unwrap();
            self
        }

        /// A process that runs the same program as this one, with these arguments.
        fn is_ours(&self, pid: u32, args: &str) -> &Self {
            for (pid, args) in [(pid, args), (std::process::id(), "gpu-track-ender")] {
                let dir = self.proc.path().join(pid.to_string());
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join("cmdline"), args).unwrap();
                let _ = std::os::unix::fs::symlink("/proc/self/exe", dir.join("exe"));
            }
            self
        }
    }

    fn tree(launcher: Option<u32>, known: &[u32]) -> TreeToEnd {
        // The start of each process of these tests is its pid.
        let known = known.iter().map(|pid| Member { pid: *pid, start_ticks: u64::from(*pid) }).collect();
        let id = FileId { device: (0, 26), inode: 7 };
        let segment = Some(KnownFile { path: SEGMENT.into(), id });
        TreeToEnd { launcher, inherits_orphans: true, segment, known, ..TreeToEnd::default() }
    }

    fn pids(members: &mut Members) -> Vec<u32> {
        members.find_live().into_keys().map(|member| member.pid).collect()
    }

    // Requirement: LIMIT-4
    #[test]
    fn live_descendants_of_the_launcher_are_found_but_not_its_helpers() {
        let machine = Machine::new();
        machine.has(51, LAUNCHER, 'S', "").has(52, 51, 'T', "").has(53, 51, 'Z', "").has(60, 1, 'S', MAPPED);
        machine.has(54, LAUNCHER, 'S', "").is_ours(54, &format!("gpu-track-run\0{SEGMENT}\0"));
        // The launcher of a run within the run, and a program that names the segment.
        machine.has(55, 51, 'S', "").is_ours(55, &format!("gpu-track-run\0{SEGMENT}"));
        machine.has(56, LAUNCHER, 'S', "");
        std::fs::write(machine.proc.path().join("56/cmdline"), format!("cat\0{SEGMENT}")).unwrap();
        let tree = tree(Some(LAUNCHER), &[]);
        let mut members = Members::new(&machine.root, &tree);
        assert_eq!(pids(&mut members), [51, 52, 55, 56]);
    }

    // Requirement: LIMIT-4
    #[test]
    fn processes_of_containers_that_report_to_the_session_are_found() {
        let machine = Machine::new();
        machine.has(51, LAUNCHER, 'S', "");
        for (pid, namespaces, maps) in [(60, "60\t1", MAPPED), (61, "61", MAPPED), (62, "62\t1", OF_ITS_NAME)]
        {
            machine.has(pid, 1, 'S', maps);
            std::fs::write(
                machine.proc.path().join(format!("{pid}/status")),
                format!("Name:\ta\nUid:\t0\t0\t0\t0\nNSpid:\t{namespaces}\nThreads:\t1\n"),
            )
            .unwrap();
        }
        let mut tree = tree(Some(LAUNCHER), &[]);
        assert_eq!(pids(&mut Members::new(&machine.root, &tree)), [51]);
        let name = SEGMENT.rsplit_once('/').unwrap().1;
        tree.segment.as_mut().unwrap().path = format!("{SEGMENT}.d/{name}").into();
        assert_eq!(pids(&mut Members::new(&machine.root, &tree)), [51, 60]);
    }

    // Requirement: LIMIT-6
    #[test]
    fn without_the_launcher_known_processes_and_those_that_map_the_segment_are_found() {
        let machine = Machine::new();
        machine.has(51, LAUNCHER, 'S', "").has(52, 51, 'S', "");
        let tree = tree(Some(LAUNCHER), &[]);
        let mut members = Members::new(&machine.root, &tree);
        assert_eq!(pids(&mut members), [51, 52]);
        machine.is_gone(LAUNCHER).has(51, 1, 'S', "").has(53, 1, 'S', MAPPED).has(54, 53, 'S', "").has(
            60,
            1,
            'S',
            OF_ITS_NAME,
        );
        assert_eq!(pids(&mut members), [51, 52, 53, 54]);
        // A collector that the launcher has left behind, which maps the segment, too.
        machine.has(61, 1, 'S', MAPPED).is_ours(61, &format!("gpu-track-collector\0{SEGMENT}"));
        assert_eq!(pids(&mut members), [51, 52, 53, 54]);
        // Another process has the pid by now: it started later.
        let dir = machine.proc.path().join("51/stat");
        std::fs::write(dir, "51 (a) S 1 1 1 0 -1 0 1 0 1 0 1 1 0 0 20 0 1 0 999 1 1\n").unwrap();
        machine.has(52, 1, 'S', "");
        assert_eq!(pids(&mut members), [52, 53, 54]);
    }

    #[test]
    fn collector_names_the_processes_that_it_knows() {
        let machine = Machine::new();
        machine.has(51, 1, 'S', "").has(52, 51, 'S', "").is_gone(LAUNCHER);
        let tree = tree(None, &[51, 99]);
        assert_eq!(pids(&mut Members::new(&machine.root, &tree)), [51, 52]);
    }
}
