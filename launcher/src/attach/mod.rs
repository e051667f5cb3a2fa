//! `--attach`: the process that a run attaches to, in place of a command. The launcher reads its /proc files and waits for its
//! end. It sends it no signal, and becomes neither its parent nor its tracer (ptrace(2)).

pub(crate) mod ready_fd;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use gpu_track_collector::model::attached::{Attached, UsedBefore};
use gpu_track_collector::model::ids::Key;
use gpu_track_collector::{CommandLine, ProcRoot, clock, pidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use thiserror::Error;

use crate::process::end_watch;

/// Where there is no pidfd (before Linux 5.3, or a seccomp filter), /proc is read this often until the process has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of bytes that are read of the process's arguments.
const MOST_ARGS_BYTES: u64 = 64 << 10;

/// Why a process can't be attached to.
#[derive(Debug, Error)]
pub(crate) enum NotAttached {
    #[error("no process has the pid {0}: pgrep -a NAME lists those of a program")]
    NoProcess(u32),
    #[error("process {0} is hidden: /proc is mounted with hidepid, so only its user and root can track it")]
    Hidden(u32),
    #[error("process {0} has ended")]
    Ended(u32),
    #[error("{thread} is a thread of process {process}: use --attach {process}")]
    Thread { thread: u32, process: u32 },
    #[error("process {0} is a thread of the kernel, which has no memory of its own")]
    OfKernel(u32),
    #[error("process {0} is gpu-track-run itself")]
    Itself(u32),
}

/// A process to attach to.
#[derive(Debug)]
pub(crate) struct Attachment {
    pid: u32,
    key: Key,
    start_ticks: u64,
    start_ns: u64,
    /// The arguments of the process. If it has none, its name.
    pub(crate) args: Vec<String>,
    pidfd: Option<OwnedFd>,
    root: ProcRoot,
}

impl Attachment {
    /// Finds the process that has this pid now.
    ///
    /// # Errors
    /// If no process has the pid, or the process can't be tracked.
    pub(crate) fn to(pid: u32) -> Result<Self, NotAttached> {
        if pid == std::process::id() {
            return Err(NotAttached::Itself(pid));
        }
        let root = ProcRoot::default();
        // Opened first: if the pidfd's process still lives after the reads below, they are about that process.
        let pidfd = pidfd::open(pid);
        let missing =
            || if pidfd::is_gone(pid) { NotAttached::NoProcess(pid) } else { NotAttached::Hidden(pid) };
        let stat = root.stat(pid).ok_or_else(missing)?;
        let status = root.status(pid).ok_or_else(missing)?;
        if let Some(process) = status.tgid.filter(|process| *process != pid) {
            return Err(NotAttached::Thread { thread: pid, process });
        }
        if stat.is_of_kernel() {
            return Err(NotAttached::OfKernel(pid));
        }
        // After the end of the pidfd's process, another one can have got the pid.
        let now = Timespec::default();
        if stat.is_over() || pidfd.as_ref().is_some_and(|pidfd| wait_for_end(pidfd, Some(&now))) {
            return Err(NotAttached::Ended(pid));
        }
        // In a nested pid namespace, the process knows itself by its pid there, and its records have that one.
        let own_ns = root.pid_ns(std::process::id()).unwrap_or(0);
        let key = match status.ns_pids.as_slice() {
            [_, .., inner] => Key { pid_ns: root.pid_ns(pid).unwrap_or(own_ns), pid: *inner },
            _ => Key { pid_ns: own_ns, pid },
        };
        let args = match root.args(pid, MOST_ARGS_BYTES) {
            Some(CommandLine::Args(args)) => args,
            Some(CommandLine::Title { program, .. }) => vec![program],
            None => root.comm(pid).into_iter().collect(),
        };
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let start_ns = stat.start_ns(tick_us);
        Ok(Self { pid, key, start_ticks: stat.start_ticks, start_ns, args, pidfd, root })
    }

    /// Reads what the process has used so far. The run counts only what it uses from now on.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn begin(&self) -> Result<Attached, NotAttached> {
        let read = || {
            let stat = self.root.stat(self.pid)?;
            let before = self.root.used_so_far(self.pid, &stat)?;
            // While this process lives, no other one has its pid: the figures are its own.
            self.is_alive().then_some(before)
        };
        let before = read().ok_or(NotAttached::Ended(self.pid))?;
        Ok(Attached { pidfd_inode: pidfd::inode(self.pid).unwrap_or(0), before, ..self.named() })
    }

    /// Names the process, for the report of a run that could not attach to it. What the process has used is not read.
    pub(crate) fn named(&self) -> Attached {
        Attached {
            pid: self.pid,
            key: self.key,
            pidfd_inode: 0,
            start_ns: self.start_ns,
            before: UsedBefore { at_ns: clock::monotonic_ns(), ..UsedBefore::default() },
        }
    }

    /// A warning that names the figures which the kernel refuses to this user. `None`: it refuses none.
    pub(crate) fn refused_figures(&self) -> Option<String> {
        let path = |name: &str| self.root.path(self.pid, name);
        // /proc/PID/io is refused when it is read, the others when they are opened.
        let errors = [
            ("its block I/O", fs::read(path("io")).err()),
            ("its environment", File::open(path("environ")).err()),
            ("which of its memory is shared", File::open(path("smaps_rollup")).err()),
        ];
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let refused = errors.into_iter().filter(|(_, error)| error.as_ref().is_some_and(is_refused));
        let figures: Vec<_> = refused.map(|(figure, _)| figure).collect();
        if figures.is_empty() {
            return None;
        }
        let cure = if rustix::process::geteuid().is_root() {
            "gpu-track-run is root, but lacks CAP_SYS_PTRACE here, or a security module forbids it"
        } else {
            "it is another user's, or not dumpable (PR_SET_DUMPABLE). Root can read it"
        };
        Some(format!(
            "Of process {} this is unknown: {}. It may not be read: {cure}.",
            self.pid,
            figures.join(", ")
        ))
    }

    /// Whether the process lives. Another process that has got its pid has another start time.
    fn is_alive(&self) -> bool {
        let stat = self.root.stat(self.pid);
        stat.is_some_and(|stat| stat.start_ticks == self.start_ticks && !stat.is_over())
    }

    /// Starts a thread that waits for the end of the process. Returns a flag that becomes true then; a SIGCHLD wakes the launcher,
    /// which looks at it.
    ///
    /// # Errors
    /// If there is no room for a thread.
    pub(crate) fn watch(self) -> io::Result<Arc<AtomicBool>> {
        end_watch::start(move || match &self.pidfd {
            Some(pidfd) => {
                wait_for_end(pidfd, None);
            }
            None => {
                while self.is_alive() {
                    thread::sleep(LOOK_INTERVAL);
                }
            }
        })
    }
}

/// Waits until the process of a pidfd has ended, at most for `timeout`. Returns whether it has ended.
fn wait_for_end(pidfd: &OwnedFd, timeout: Option<&Timespec>) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    while poll(&mut fds, timeout) == Err(Errno::INTR) {}
    fds[0].revents().contains(PollFlags::IN)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn refusal(pid: u32) -> String {
        Attachment::to(pid).map(|found| found.pid).unwrap_err().to_string()
    }

    // Requirement: ATTACH-4
    #[test]
    fn what_is_no_living_process_of_a_user_is_refused() {
        // Above the kernel's largest pid (PID_MAX_LIMIT).
        assert!(refusal(5_000_001).starts_with("no process has the pid 5000001"));
        let own = std::process::id();
        assert_eq!(refusal(own), format!("process {own} is gpu-track-run itself"));
        let thread = std::thread::spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            refusal(thread)
        });
        assert!(
            thread.join().unwrap().ends_with(&format!("is a thread of process {own}: use --attach {own}"))
        );
        let mut child = Command::new("true").spawn().unwrap();
        let pidfd = pidfd::open(child.id()).unwrap();
        wait_for_end(&pidfd, None);
        assert_eq!(refusal(child.id()), format!("process {} has ended", child.id()));
        child.wait().unwrap();
    }

    // Requirement: ATTACH-1
    #[test]
    fn end_of_the_process_is_seen_and_what_it_used_is_of_no_later_one() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let found = Attachment::to(child.id()).unwrap();
        assert_eq!((found.args.as_slice(), found.key.pid), (["cat".to_owned()].as_slice(), child.id()));
        assert_eq!(found.begin().unwrap().pid, child.id());
        drop(child.stdin.take());
        wait_for_end(found.pidfd.as_ref().unwrap(), None);
        assert!(found.begin().is_err() && !found.is_alive());
        child.wait().unwrap();
    }
}
