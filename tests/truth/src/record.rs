//! One run: subscribes, starts the command, waits until all of its tree has ended, and sums up.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cgroup::Cgroup;
use crate::enter::Entrance;
use crate::listener::{Listener, wait};
use crate::tree::{KernelProcess, Tree};

/// The word before the part of the command that is counted. Without it the whole command is counted.
const MARK: &str = "@";
/// How long killed processes may take to end.
const KILLED_GRACE: Duration = Duration::from_secs(30);

/// The kernel's figures of a run.
#[derive(Debug, Serialize)]
pub struct Record {
    /// Wait status of the whole command, the part before the mark included.
    pub status: i32,
    /// Wall time of the whole command.
    pub wall_s: f64,
    /// CPU time of the counted tree when the whole command had ended.
    pub cpu_at_end_s: f64,
    /// CPU time of the counted tree when all of the tree had ended.
    pub cpu_s: f64,
    /// The number of processes of the tree that outlived the whole command.
    pub left_at_end: usize,
    /// Processes of the tree that also outlived the grace time and were killed.
    pub killed: Vec<u32>,
    /// The peak RSS of the root before its exec of the command, as our own executable. gpu-track sees that image, too.
    pub entrance_rss_bytes: u64,
    /// The tree in the order of the processes' start; the first one is the root.
    pub processes: Vec<KernelProcess>,
}

/// The whole command while it runs; killed when dropped.
struct Running {
    child: Child,
    pidfd: OwnedFd,
    start: Instant,
    ended: Option<(ExitStatus, Duration)>,
}

impl Running {
    fn start(words: &[OsString]) -> Result<Self, String> {
        let (program, args) = words.split_first().ok_or("no command")?;
        let start = Instant::now();
        let child = Command::new(program).args(args).spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        // SAFETY: a plain system call. The pid is that of our child, which is not reaped yet.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        if pidfd < 0 {
            return Err(format!("pidfd_open: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as RawFd) };
        Ok(Self { child, pidfd, start, ended: None })
    }

    /// Whether the command has ended; true only at the first call after its end.
    fn has_just_ended(&mut self) -> Result<bool, String> {
        if self.ended.is_some() {
            return Ok(false);
        }
        let status = self.child.try_wait().map_err(|error| error.to_string())?;
        self.ended = status.map(|status| (status, self.start.elapsed()));
        Ok(self.ended.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Runs the command and records the tree after the mark.
///
/// # Errors
/// Anything that makes the record doubtful: lost messages, a process without an exit event, a tree that never began.
pub fn record(command: &[OsString], grace: Duration) -> Result<Record, String> {
    let entrance = Entrance::open()?;
    // The subscription fails in another pid namespace. It comes first, because there the cgroups of living recorders
    // would be removed as stale.
    let mut listener = Listener::subscribe()?;
    let cgroup = Cgroup::create()?;
    let mut running = Running::start(&with_entrance(command, entrance.words()?))?;
    let mut before = None;
    let mut at_end = None;
    let mut killed = Vec::new();
    loop {
        listener.drain()?;
        if running.has_just_ended()? {
            listener.drain()?;
            at_end = Some((cgroup.cpu_s()?, left(&cgroup, &listener.tree).len()));
        }
        if let Some((_, ended_after)) = running.ended {
            let waited = running.start.elapsed().saturating_sub(ended_after);
            if listener.tree.members_alive() == 0 {
                break;
            }
            if waited > grace && killed.is_empty() {
                killed = end_all(&cgroup, &listener.tree);
            }
            if waited > grace + KILLED_GRACE {
                return Err(format!("processes that do not end: {:?}", listener.tree.living_members()));
            }
        }
        // Neither the command's end nor the connection of the tree's root is waited for a second time.
        let [connector, taskstats] = listener.descriptors();
        let descriptors = [
            connector,
            taskstats,
            running.ended.is_none().then(|| running.pidfd.as_raw_fd()),
            before.is_none().then(|| entrance.as_fd().as_raw_fd()),
        ];
        if wait(descriptors)? && before.is_none() {
            let waiting = entrance.accept()?;
            listener.drain()?;
            if !listener.tree.set_root(waiting.pid) {
                return Err("process connector: no fork event of the command".into());
            }
            before = Some((waiting.cpu_s()?, waiting.peak_rss_bytes()?));
            cgroup.add(waiting.pid)?;
            waiting.release()?;
        }
    }
    listener.drain()?;
    let (used_before_s, entrance_rss_bytes) =
        before.ok_or("the command ended before the counted part of it began")?;
    let (status, wall) = running.ended.ok_or("the command has no end")?;
    let (cpu_at_end_s, left_at_end) = at_end.ok_or("the command has no end")?;
    Ok(Record {
        status: status.into_raw(),
        wall_s: wall.as_secs_f64(),
        cpu_at_end_s: cpu_at_end_s + used_before_s,
        cpu_s: cgroup.cpu_s()? + used_before_s,
        left_at_end,
        killed,
        entrance_rss_bytes,
        processes: listener.processes()?,
    })
}

fn with_entrance(command: &[OsString], entrance: [OsString; 3]) -> Vec<OsString> {
    let (before, counted) = match command.iter().position(|word| word == MARK) {
        Some(at) => (&command[..at], &command[at + 1..]),
        None => (&command[..0], command),
    };
    before.iter().cloned().chain(entrance).chain(counted.iter().cloned()).collect()
}

/// The processes of the tree that are still in the run's cgroup. (Exit events alone come too late to tell.)
fn left(cgroup: &Cgroup, tree: &Tree) -> Vec<u32> {
    let members = tree.living_members();
    cgroup.processes().into_iter().filter(|pid| members.contains(pid)).collect()
}

/// Kills the remaining processes of the tree.
fn end_all(cgroup: &Cgroup, tree: &Tree) -> Vec<u32> {
    let left = left(cgroup, tree);
    for pid in &left {
        // SAFETY: a plain system call.
        unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn entrance_is_put_before_the_counted_part() {
        let entrance = || [OsString::from("us"), "enter".into(), "address".into()];
        assert_eq!(
            with_entrance(&words("run -o x -- @ make @"), entrance()),
            words("run -o x -- us enter address make @")
        );
        assert_eq!(with_entrance(&words("make all"), entrance()), words("us enter address make all"));
    }
}
