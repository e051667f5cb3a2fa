//! Ends every process of a run, at a limit.
//!
//! A process of its own does this, the ender, so that the tree is ended even if launcher and collector are killed meanwhile. Every
//! process of the tree gets SIGTERM once, then SIGCONT, because a stopped process handles no SIGTERM. After a while, the processes
//! that are left, and those that they have started, get SIGKILL until nothing is left.
//!
//! - The tree is the launcher's descendants, because the launcher is the subreaper of them all. When it is gone, or is no subreaper
//!   (`--no-subreaper`), orphans are found by the segment, which they map or their environment names.
//! - What a process starts after its SIGTERM is its clean-up, and is left alone until SIGKILL is due.
//! - Launchers and collectors of runs within the run end when their commands have ended. They get SIGKILL only if they don't end.
//! - Where /proc is not that of this pid namespace, only the command's first process can be ended.

mod arguments;
mod members;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub use arguments::{ENDER, TreeToEnd};
pub use members::Member;
use members::Members;
use progress::Progress;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, pidfd_send_signal,
    test_kill_process, waitid, waitpid,
};

use crate::model::run_limit::TreeEnd;
use crate::model::sorting::InOrder;
use crate::store::session_name;
use crate::sys::clock;
use crate::sys::pidfd::as_pid;
use crate::sys::proc_fs::ProcRoot;

/// The tree is looked at this often at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// While SIGTERM works, the pause after a look is this many times as long as the look. So looking takes less than a fifth of a
/// core.
const PAUSE_PER_LOOK: u32 = 5;
/// Launchers and collectors of runs within the run have this time to end after all other processes.
const HELPERS_END_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of processes that are counted as left, so that an ender's exit status is never 101, the status after a panic.
const MAX_LEFT: u32 = 31;

/// The exit status of an ender. Bit 0: SIGKILL was needed. The other bits: how many processes are left.
fn exit_code(end: TreeEnd) -> i32 {
    (end.left.min(MAX_LEFT) << 1 | u32::from(end.is_killed)).cast_signed()
}

/// What came of ending the tree, by the exit status of an ender ([`exit_code`]). `None`: the ender was killed, or has failed.
pub fn of_exit_code(code: Option<i32>) -> Option<TreeEnd> {
    let code = u32::try_from(code?).ok().filter(|code| code >> 1 <= MAX_LEFT)?;
    Some(TreeEnd { is_killed: code & 1 != 0, left: code >> 1 })
}

/// Waits for an ender, and returns what came of it. `None`: it was killed, or has failed. If the ender is stopped, continues it,
/// because the tree must end.
pub(crate) fn wait_for(ender: Pid) -> Option<TreeEnd> {
    loop {
        match waitpid(Some(ender), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => {
                let _ = kill_process(ender, Signal::CONT);
            }
            Ok(Some((_, status))) => return of_exit_code(status.exit_status()),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Runs an ender: ends the tree, and returns the exit status. `None`: these are not the arguments of an ender.
pub fn serve_ender(args: &[std::ffi::OsString]) -> Option<i32> {
    let tree = TreeToEnd::from_args(args)?;
    // If another ender is at work, this one waits until it ends, but not for longer than a working ender takes.
    let most = tree.kill_after + progress::WITHIN;
    let _lock = tree.segment.as_ref().map(|segment| lock(&session_name::state_name(&segment.path), most));
    // Beside a fork bomb there is little CPU time for each process. Only root may take more of it.
    let _ = rustix::process::nice(-20);
    Some(exit_code(tree.end()))
}

/// Waits for a record lock of the state file, so that only one ender acts. `None`: the file is gone, can't be locked, or was locked by
/// another process for the time `most`.
fn lock(state: &Path, most: Duration) -> Option<File> {
    let file = File::options().read(true).write(true).open(state).ok()?;
    let deadline = Instant::now() + most;
    loop {
        match rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(file),
            Err(Errno::AGAIN | Errno::ACCESS | Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(LOOK_INTERVAL);
            }
            Err(_) => return None,
        }
    }
}

impl TreeToEnd {
    /// Ends the tree. Returns when no process is left, or those that are left can't be ended.
    pub fn end(&self) -> TreeEnd {
        let root = ProcRoot::default();
        if root.is_of_this_namespace() { Ending::new(self, &root).run() } else { self.end_main() }
    }

    /// Ends the command's first process alone. Its parent, the launcher or this process, reaps it later, so its pid is no other
    /// process's until then.
    fn end_main(&self) -> TreeEnd {
        // Only other processes can be left then. They can't be found, so one is counted for them.
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
                // What is left does not change: it is this process. So only the time counts.
                let unchanged = [];
                if !progress.is_made(now, &unchanged) {
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
    /// The processes that this ender has asked to end, by SIGTERM.
    asked: BTreeSet<Member>,
    /// When all processes of the first look had got SIGTERM, clock ticks after boot.
    sigterm_ticks: u64,
    /// The processes that the ender has no permission to signal. They are not waited for.
    refused: BTreeSet<Member>,
    /// How long the processes have after SIGTERM.
    kill_after: Duration,
    /// An earlier ender has sent SIGTERM.
    is_told: bool,
    /// SIGKILL was sent to a process.
    is_killed: bool,
    /// Since when only launchers and collectors of runs within the run are left, after the deadline.
    only_helpers_since: Option<Instant>,
}

impl<'a> Ending<'a> {
    fn new(tree: &'a TreeToEnd, root: &'a ProcRoot) -> Self {
        Self {
            root,
            members: Members::new(root, tree),
            asked: BTreeSet::new(),
            sigterm_ticks: 0,
            refused: BTreeSet::new(),
            kill_after: tree.kill_after,
            is_told: tree.is_told,
            is_killed: false,
            only_helpers_since: None,
        }
    }

    /// Signals the processes of the tree, and looks at it again and again, until none is left or SIGKILL makes no progress.
    fn run(&mut self) -> TreeEnd {
        let first = self.members.find_live();
        self.ask_to_end(&first);
        // Set after SIGTERM was sent: on a busy machine it takes a while to find all processes of a large tree.
        let deadline = Instant::now() + self.kill_after;
        let mut progress = Progress::new(deadline);
        loop {
            let began = Instant::now();
            let found = self.members.find_live();
            let left: Vec<Member> =
                found.keys().copied().filter(|member| !self.refused.contains(member)).collect();
            if left.is_empty() || !progress.is_made(began, &left) {
                break;
            }
            if began < deadline {
                self.ask_to_end(&found);
            } else {
                self.kill_left(left, began);
            }
            // Killed processes are gone soon, and what they had time to start has to be killed at once.
            let pause = if self.is_killed { LOOK_INTERVAL } else { began.elapsed() * PAUSE_PER_LOOK };
            // The pause ends when SIGKILL is due, but is at least [`LOOK_INTERVAL`] long.
            let until_deadline = deadline.saturating_duration_since(Instant::now()).max(LOOK_INTERVAL);
            thread::sleep(pause.clamp(LOOK_INTERVAL, until_deadline));
        }
        TreeEnd {
            is_killed: self.is_killed,
            left: u32::try_from(self.members.find_live().len()).unwrap_or(u32::MAX),
        }
    }

    /// Sends SIGTERM and SIGCONT to the processes that have not got them, except for clean-up, launchers and collectors. Notes which
    /// processes got SIGTERM, and which the ender may not signal. At the first look, also notes when that was done. `found`: the live
    /// processes of the tree, each with the pid of its parent.
    fn ask_to_end(&mut self, found: &BTreeMap<Member, u32>) {
        // An earlier ender has sent SIGTERM, so what this one finds has got it, or is clean-up.
        if self.is_told {
            return;
        }
        let is_first = self.asked.is_empty();
        let pids = found.keys().map(|member| member.pid).ordered_set();
        for (member, parent) in found {
            let began_after_sigterm = member.start_ticks > self.sigterm_ticks;
            // A process with a live parent in the tree began after SIGTERM, too: an earlier look would have found it below its
            // parent. Ticks can be too coarse to show that.
            let has_live_parent = pids.contains(parent);
            let is_clean_up = !is_first && (began_after_sigterm || has_live_parent);
            if is_clean_up || self.asked.contains(member) || self.members.is_launcher_or_collector(*member) {
                continue;
            }
            self.asked.insert(*member);
            if send(self.root, *member, Signal::TERM) == Err(Errno::PERM) {
                self.refused.insert(*member);
            }
            let _ = send(self.root, *member, Signal::CONT);
        }
        if is_first {
            self.sigterm_ticks = clock::boot_ticks();
        }
    }

    /// Sends SIGKILL to the processes that are left at `now`. Launchers and collectors of runs within the run get it only if they have
    /// not ended for [`HELPERS_END_WITHIN`] after all others.
    fn kill_left(&mut self, left: Vec<Member>, now: Instant) {
        let (helpers, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|member| self.members.is_launcher_or_collector(*member));
        if !others.is_empty() {
            self.only_helpers_since = None;
            self.kill(&others);
            return;
        }
        let since = *self.only_helpers_since.get_or_insert(now);
        if now >= since + HELPERS_END_WITHIN {
            self.kill(&helpers);
        }
    }

    /// Sends SIGKILL to these processes. Notes those that the ender may not signal: they are not waited for.
    fn kill(&mut self, members: &[Member]) {
        for member in members {
            match send(self.root, *member, Signal::KILL) {
                Ok(()) => self.is_killed = true,
                Err(Errno::PERM) => {
                    self.refused.insert(*member);
                }
                Err(_) => {}
            }
        }
    }
}

/// Sends a signal to this process, and not to a later one of the same pid. The error is `ESRCH` if the process is gone.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

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
        let tree = TreeToEnd { main: Some(child.id()), kill_after: LONG, ..TreeToEnd::default() };
        assert_eq!(tree.end_main(), TreeEnd { is_killed: false, left: 0 });
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "its status is kept");
    }

    // Requirement: LIMIT-6
    #[test]
    fn only_one_ender_of_a_run_acts() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert!(lock(&state, LONG).is_none(), "a run without that file");
        std::fs::write(&state, "").unwrap();
        let first = lock(&state, LONG).unwrap();
        // The lock is of a process: another one asks.
        let script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
        let mut second = std::process::Command::new("python3");
        second.args(["-c", script, state.to_str().unwrap()]).stderr(std::process::Stdio::null());
        assert_eq!(second.status().unwrap().code(), Some(1));
        drop(first);
        // One that is stopped keeps its lock, and does not keep another from its work.
        let script = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); \
                      print(flush=True); input()";
        let mut stopped = std::process::Command::new("python3");
        stopped.args(["-c", script, state.to_str().unwrap()]);
        stopped.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut stopped = stopped.spawn().unwrap();
        std::io::Read::read_exact(stopped.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert!(lock(&state, Duration::from_millis(20)).is_none());
        stopped.kill().unwrap();
        stopped.wait().unwrap();
        assert!(lock(&state, Duration::ZERO).is_some());
    }
}
