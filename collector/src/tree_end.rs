//! Ends every process of a run, at a limit.
//!
//! A process of its own does it, the ender, so that it is done although launcher and collector may be killed meanwhile. Every process
//! of the tree gets SIGTERM once, and SIGCONT, since a stopped one would not see it. Those that are left after a while get SIGKILL, and
//! what they have started meanwhile, until nothing is left.
//!
//! - The tree is the launcher's descendants: it is the subreaper of them all. When the launcher is gone, orphans are found by the
//!   segment that they map.
//! - What a process starts after its SIGTERM is its clean-up, and is left alone until SIGKILL is due.
//! - Launchers and collectors of runs within the run end as their commands do. They get SIGKILL only if they don't.
//! - Where /proc is not that of this pid namespace, only the command's first process can be ended.

mod arguments;
mod members;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub use arguments::TreeToEnd;
pub use members::Member;
use members::Members;
use progress::Progress;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal,
    test_kill_process, waitid,
};

use crate::model::run_limit::TreeEnd;
use crate::store::stale;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// The tree is looked at this often at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// While SIGTERM works, looking takes at most one part in this many of a core.
const SHARE_OF_LOOKING: u32 = 5;
/// Launchers and collectors within the run have this time to end after all other processes.
const HELPERS_END_WITHIN: Duration = Duration::from_secs(2);
/// So many processes at most are counted as left.
const MOST_LEFT: u32 = 31;

/// Gives what came of it, by the exit status of an ender. `None`: it was killed, or has failed.
#[must_use]
pub fn of_exit_code(code: Option<i32>) -> Option<TreeEnd> {
    let code = u32::try_from(code?).ok().filter(|code| code >> 1 <= MOST_LEFT)?;
    Some(TreeEnd { is_killed: code & 1 != 0, left: code >> 1 })
}

/// Ends the tree and gives the exit status, if these are the arguments of an ender.
#[must_use]
pub fn serve_if_started_as_ender(args: &[std::ffi::OsString]) -> Option<i32> {
    let tree = TreeToEnd::of_ender(args)?;
    // Another one may be at it: it ends before this one begins.
    let _lock = lock(&stale::state_name(&tree.segment));
    // Beside a fork bomb there is little time for each process. Only root may take more of it.
    let _ = rustix::process::nice(-20);
    let end = tree.end();
    i32::try_from(end.left.min(MOST_LEFT) << 1 | u32::from(end.is_killed)).ok()
}

/// Waits for a record lock of the state file, so that only one ender acts. `None`: the run has no such file any more.
fn lock(state: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).open(state).ok()?;
    rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive).ok()?;
    Some(file)
}

impl TreeToEnd {
    /// Ends the tree. Returns when nothing is left, or nothing more can be done.
    #[must_use]
    pub fn end(&self) -> TreeEnd {
        let root = ProcRoot::default();
        if root.is_of_this_namespace() { Ending::new(self, &root).run() } else { self.end_main() }
    }

    /// Ends the command's first process. Its parent may be the launcher, or this process, and reaps it later.
    fn end_main(&self) -> TreeEnd {
        let Some(main) = self.main.and_then(as_pid) else { return TreeEnd { is_killed: false, left: 1 } };
        let deadline = Instant::now() + self.kill_after;
        let mut progress = Progress::new(deadline);
        let mut is_killed = false;
        if !self.is_told {
            let _ = kill_process(main, Signal::TERM);
            let _ = kill_process(main, Signal::CONT);
        }
        while !has_ended(main) {
            let now = Instant::now();
            if now >= deadline {
                is_killed |= kill_process(main, Signal::KILL).is_ok();
                if !progress.is_made(now, &[]) {
                    return TreeEnd { is_killed, left: 1 };
                }
            }
            thread::sleep(LOOK_INTERVAL);
        }
        TreeEnd { is_killed, left: 0 }
    }
}

/// Whether a process has ended. A child of this process counts as ended before it is reaped, and is not reaped here.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let is_zombie = matches!(waitid(WaitId::Pid(process), options), Ok(Some(_)));
    is_zombie || test_kill_process(process) == Err(Errno::SRCH)
}

/// A tree that is being ended.
struct Ending<'a> {
    root: &'a ProcRoot,
    members: Members<'a>,
    /// The processes that got SIGTERM.
    told: BTreeSet<Member>,
    /// When the first of them had got it, clock ticks after boot.
    told_ticks: u64,
    /// The processes that may not be signalled.
    refused: BTreeSet<Member>,
    deadline: Instant,
    is_told: bool,
    is_killed: bool,
}

impl<'a> Ending<'a> {
    fn new(tree: &'a TreeToEnd, root: &'a ProcRoot) -> Self {
        Self {
            root,
            members: Members::new(root, tree),
            told: BTreeSet::new(),
            told_ticks: 0,
            refused: BTreeSet::new(),
            deadline: Instant::now() + tree.kill_after,
            is_told: tree.is_told,
            is_killed: false,
        }
    }

    fn run(&mut self) -> TreeEnd {
        let mut progress = Progress::new(self.deadline);
        let mut without_others: Option<Instant> = None;
        loop {
            let looked = Instant::now();
            let found = self.members.look();
            let left: Vec<Member> =
                found.keys().copied().filter(|member| !self.refused.contains(member)).collect();
            if left.is_empty() || !progress.is_made(looked, &left) {
                break;
            }
            if looked < self.deadline {
                self.ask_to_end(&found);
            } else {
                // Launchers and collectors within the run follow their commands.
                let (helpers, others): (Vec<_>, Vec<_>) =
                    left.into_iter().partition(|member| self.members.is_launcher_or_collector(*member));
                let since = *without_others.get_or_insert(looked);
                if others.is_empty() && looked >= since + HELPERS_END_WITHIN {
                    self.kill(&helpers);
                } else if !others.is_empty() {
                    without_others = None;
                    self.kill(&others);
                }
            }
            // What is killed is gone soon, and what it had time to start has to be killed at once.
            let pause = if self.is_killed { LOOK_INTERVAL } else { looked.elapsed() * SHARE_OF_LOOKING };
            let until_deadline = self.deadline.saturating_duration_since(Instant::now()).max(LOOK_INTERVAL);
            thread::sleep(pause.clamp(LOOK_INTERVAL, until_deadline));
        }
        TreeEnd {
            is_killed: self.is_killed,
            left: u32::try_from(self.members.look().len()).unwrap_or(u32::MAX),
        }
    }

    /// Sends SIGTERM to those that have to get it and have not. `found`: what lives, each with its parent.
    fn ask_to_end(&mut self, found: &BTreeMap<Member, u32>) {
        let is_first = self.told.is_empty() && !self.is_told;
        let pids: BTreeSet<u32> = found.keys().map(|member| member.pid).collect();
        for (member, parent) in found {
            // Before the first SIGTERM, all have begun before it. Later, it is what a process has started that got SIGTERM meanwhile, or
            // an orphan of one that has ended of it.
            let is_clean_up =
                !is_first && (self.is_told || member.start_ticks > self.told_ticks || pids.contains(parent));
            if is_clean_up || self.told.contains(member) || self.members.is_launcher_or_collector(*member) {
                continue;
            }
            self.told.insert(*member);
            if send(self.root, *member, Signal::TERM) == Err(Errno::PERM) {
                self.refused.insert(*member);
            }
            let _ = send(self.root, *member, Signal::CONT);
        }
        if is_first {
            self.told_ticks = clock::boot_ticks();
        }
    }

    fn kill(&mut self, left: &[Member]) {
        for member in left {
            match send(self.root, *member, Signal::KILL) {
                Ok(()) => self.is_killed = true,
                Err(Errno::PERM) => drop(self.refused.insert(*member)),
                Err(_) => {}
            }
        }
    }
}

/// Sends a signal to this very process.
fn send(root: &ProcRoot, member: Member, signal: Signal) -> Result<(), Errno> {
    let pid = as_pid(member.pid).ok_or(Errno::SRCH)?;
    let is_same = || root.stat(member.pid).is_some_and(|stat| stat.start_ticks == member.start_ticks);
    match pidfd_open(pid, PidfdFlags::empty()) {
        // The pid is the member's as long as the descriptor is open.
        Ok(fd) if is_same() => pidfd_send_signal(fd, signal),
        Ok(_) | Err(Errno::SRCH) => Err(Errno::SRCH),
        // An older kernel, or a container's filter of system calls.
        Err(_) if is_same() => kill_process(pid, signal),
        Err(_) => Err(Errno::SRCH),
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_says_what_came_of_it() {
        assert_eq!(of_exit_code(Some(0)), Some(TreeEnd { is_killed: false, left: 0 }));
        assert_eq!(of_exit_code(Some(7)), Some(TreeEnd { is_killed: true, left: 3 }));
        // Killed, and a panic.
        assert_eq!([None, Some(101)].map(of_exit_code), [None, None]);
    }

    /// As where /proc is of another pid namespace.
    #[test]
    fn own_child_has_ended_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let kill_after = std::time::Duration::from_secs(60);
        let tree = TreeToEnd { main: Some(child.id()), kill_after, ..TreeToEnd::default() };
        assert_eq!(tree.end_main(), TreeEnd { is_killed: false, left: 0 });
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "its status is kept");
    }

    // Requirement: LIMIT-6
    #[test]
    fn only_one_ender_of_a_run_acts() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert!(lock(&state).is_none(), "a run without that file");
        std::fs::write(&state, "").unwrap();
        let _first = lock(&state).unwrap();
        // The lock is of a process: another one asks.
        let script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
        let mut second = std::process::Command::new("python3");
        second.args(["-c", script, state.to_str().unwrap()]).stderr(std::process::Stdio::null());
        assert_eq!(second.status().unwrap().code(), Some(1));
    }
}
