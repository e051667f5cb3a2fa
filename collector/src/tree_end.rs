//! Ends every process of a run, at a limit.
//!
//! A process of its own does it, the ender, so that it is done although launcher and collector may be killed meanwhile. Every process
//! of the tree gets SIGTERM once, and SIGCONT, since a stopped one would not see it. Those that are left after a while get SIGKILL, and
//! what they have started meanwhile, until nothing is left.
//!
//! The tree is the launcher's descendants: it is the subreaper of them all. When the launcher is gone, orphans are found by the
//! segment that they map.

mod members;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use members::{Member, Members};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::model::run_limit::TreeEnd;
use crate::store::stale;
use crate::sys::proc_fs::ProcRoot;

/// argv\[0\] of an ender. Its arguments are those of [`TreeToEnd`].
pub const ENDER: &str = "gpu-track-ender";
/// Processes that SIGKILL has not ended by then are left: they are in a system call that does not return.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Processes that start faster than they are killed are left after this time.
const KILLED_AT_ALL_WITHIN: Duration = Duration::from_secs(120);
/// The tree is looked at this often at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Looking takes at most one part in this many of a core.
const SHARE_OF_LOOKING: u32 = 5;
/// So many processes at most are counted as left.
const MOST_LEFT: u32 = 63;

/// What is to be ended, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeToEnd {
    /// The launcher, whose descendants all processes are. `None`: it is gone.
    pub launcher: Option<u32>,
    /// The segment's path.
    pub segment: PathBuf,
    /// From SIGTERM to SIGKILL.
    pub kill_after: Duration,
    /// Processes of the tree that are known besides, pids in this process's namespace.
    pub known: Vec<u32>,
}

impl TreeToEnd {
    /// Starts the ender, in a session of its own: no signal to the command's process group reaches it.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn start(&self) -> io::Result<Child> {
        let mut ender = Command::new("/proc/self/exe");
        ender.arg0(ENDER).env_clear().args(self.to_args());
        ender.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid(2) is async-signal-safe.
        unsafe {
            ender.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        ender.spawn()
    }

    fn to_args(&self) -> Vec<OsString> {
        let number = |n: u32| OsString::from(n.to_string());
        let launcher = self.launcher.map_or_else(|| "-".into(), number);
        let kill_after = self.kill_after.as_millis().to_string().into();
        let fixed = [launcher, self.segment.clone().into_os_string(), kill_after];
        fixed.into_iter().chain(self.known.iter().copied().map(number)).collect()
    }

    fn from_args(args: &[OsString]) -> Option<Self> {
        let [launcher, segment, kill_after, known @ ..] = args else { return None };
        let number = |arg: &OsString| arg.to_str()?.parse().ok();
        Some(Self {
            launcher: number(launcher),
            segment: segment.into(),
            kill_after: Duration::from_millis(kill_after.to_str()?.parse().ok()?),
            known: known.iter().map(number).collect::<Option<_>>()?,
        })
    }
}

/// Gives what came of it, by the exit status of an ender. `None`: it was killed.
#[must_use]
pub fn of_exit_code(code: Option<i32>) -> Option<TreeEnd> {
    let code = u32::try_from(code?).ok()?;
    Some(TreeEnd { is_killed: code & 1 != 0, left: code >> 1 })
}

/// Ends the tree and gives the exit status, if these are the arguments of an ender.
#[must_use]
pub fn serve_if_started_as_ender(args: &[OsString]) -> Option<i32> {
    let (program, args) = args.split_first()?;
    let tree = TreeToEnd::from_args(args).filter(|_| program == OsStr::new(ENDER))?;
    let _lock = match lock(&stale::state_name(&tree.segment)) {
        Ok(lock) => lock,
        // Another ender is at it.
        Err(Errno::AGAIN | Errno::ACCESS) => return Some(0),
        Err(_) => None,
    };
    // Beside a fork bomb there is little time for each process. Only root may take more of it.
    let _ = rustix::process::nice(-20);
    let end = end(&tree, &ProcRoot::default());
    let left = end.left.min(MOST_LEFT) << 1 | u32::from(end.is_killed);
    Some(i32::try_from(left).unwrap_or(0))
}

/// Takes a record lock of the state file, so that only one ender acts. `None`: the run has no such file any more.
fn lock(state: &Path) -> Result<Option<File>, Errno> {
    let Ok(file) = File::options().read(true).write(true).open(state) else { return Ok(None) };
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Some(file))
}

/// Ends the tree.
fn end(tree: &TreeToEnd, root: &ProcRoot) -> TreeEnd {
    let mut members = Members::new(root, tree);
    let mut refused = BTreeSet::new();
    // Those that are started later belong to the clean-up of those that got SIGTERM.
    let first = members.look();
    let youngest = first.iter().map(|member| member.start_ticks).max();
    let mut told = BTreeSet::new();
    let mut found = first;
    loop {
        let new: Vec<_> = found
            .into_iter()
            .filter(|member| Some(member.start_ticks) <= youngest && told.insert(*member))
            .collect();
        if new.is_empty() {
            break;
        }
        for member in new {
            if send(root, member, Signal::TERM) == Err(Errno::PERM) {
                refused.insert(member);
            }
            let _ = send(root, member, Signal::CONT);
        }
        found = members.look();
    }
    let deadline = Instant::now() + tree.kill_after;
    let (mut is_killed, mut progress) = (false, Progress::new(deadline));
    loop {
        let looked = Instant::now();
        let mut left = members.look();
        left.retain(|member| !refused.contains(member));
        if left.is_empty() || !progress.is_made(looked, &left) {
            break;
        }
        if looked >= deadline {
            for member in left {
                match send(root, member, Signal::KILL) {
                    Ok(()) => is_killed = true,
                    Err(Errno::PERM) => drop(refused.insert(member)),
                    Err(_) => {}
                }
            }
        }
        // What is killed is gone soon, and what it had time to start has to be killed at once.
        let pause =
            if is_killed { LOOK_INTERVAL } else { LOOK_INTERVAL.max(looked.elapsed() * SHARE_OF_LOOKING) };
        thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now()).max(LOOK_INTERVAL)));
    }
    let left = members.look().len();
    TreeEnd { is_killed, left: u32::try_from(left).unwrap_or(u32::MAX) }
}

/// Whether SIGKILL still ends processes, or finds others.
struct Progress {
    since: Instant,
    until: Instant,
    left: Vec<Member>,
}

impl Progress {
    fn new(deadline: Instant) -> Self {
        Self { since: deadline, until: deadline + KILLED_AT_ALL_WITHIN, left: Vec::new() }
    }

    /// Takes in what is left now. False: nothing has changed for [`KILLED_WITHIN`], or it has taken too long in all.
    fn is_made(&mut self, now: Instant, left: &[Member]) -> bool {
        if self.left != left {
            self.left = left.to_vec();
            self.since = self.since.max(now);
        }
        now < self.since + KILLED_WITHIN && now < self.until
    }
}

/// Sends a signal to this very process.
fn send(root: &ProcRoot, member: Member, signal: Signal) -> Result<(), Errno> {
    let pid = i32::try_from(member.pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let is_same = || root.stat(member.pid).is_some_and(|stat| stat.start_ticks == member.start_ticks);
    match pidfd_open(pid, PidfdFlags::empty()) {
        // The pid is the member's as long as the descriptor is open.
        Ok(fd) if is_same() => pidfd_send_signal(fd, signal),
        Ok(_) => Err(Errno::SRCH),
        Err(Errno::NOSYS) if is_same() => rustix::process::kill_process(pid, signal),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_were_written() {
        for (launcher, known) in [(Some(7), vec![]), (None, vec![8, 9])] {
            let segment = PathBuf::from("/dev/shm/gpu-track.0.7.1");
            let tree = TreeToEnd { launcher, segment, kill_after: Duration::from_millis(1500), known };
            assert_eq!(TreeToEnd::from_args(&tree.to_args()), Some(tree));
        }
        for wrong in [&["-", "x"][..], &["-", "x", "y"], &["-", "x", "1", "z"]] {
            let args: Vec<OsString> = wrong.iter().map(OsString::from).collect();
            assert_eq!(TreeToEnd::from_args(&args), None, "{wrong:?}");
        }
    }

    #[test]
    fn exit_code_says_what_came_of_it() {
        assert_eq!(of_exit_code(Some(0)), Some(TreeEnd { is_killed: false, left: 0 }));
        assert_eq!(of_exit_code(Some(7)), Some(TreeEnd { is_killed: true, left: 3 }));
        assert_eq!(of_exit_code(None), None);
    }

    // Requirement: LIMIT-6
    #[test]
    fn second_ender_of_a_run_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert!(lock(&state).unwrap().is_none(), "a run without that file");
        std::fs::write(&state, "").unwrap();
        let _first = lock(&state).unwrap().unwrap();
        // The lock is of a process: another one asks.
        let path = state.to_str().unwrap();
        let script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
        let second =
            Command::new("python3").args(["-c", script, path]).stderr(Stdio::null()).status().unwrap();
        assert_eq!(second.code(), Some(1));
    }
}
