//! Watches, by pidfds, processes whose parent will not report their exit (children of static programs, for example). Used where there
//! is no process connector. From Linux 6.15 on it has their exit status, too.
//!
//! A thread sleeps until a watched process ends, and reads its zombie. A parent that already waits usually reaps it first. A
//! pidfd never refers to a later process of the same pid, so it is certain which process ended.

use crate::model::exit_account::Remains;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{JoinHandle, Thread};

use rustc_hash::FxHashMap;

use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::model::ids::{ProcessId, Target};
use crate::model::observation::Observation;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::{clock, pidfd, priority};

/// Ends of processes that are watched.
#[derive(Debug, Default)]
pub struct ExitWatch {
    /// Watched processes whose end was not seen yet, each with its pidfd.
    watched: FxHashMap<ProcessId, OwnedFd>,
    /// Ended processes whose wait status is not known yet: the kernel gives it after they were reaped.
    ended: FxHashMap<ProcessId, OwnedFd>,
    /// Started with the first process to watch.
    watcher: Option<Watcher>,
    /// A process could not be watched, so no further ones are.
    has_failed: bool,
}

/// The end of a process, as the thread saw it.
#[derive(Debug)]
struct Exit {
    id: ProcessId,
    /// When the thread saw it, CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// What the zombie showed; `None`: the process was reaped already.
    remains: Option<Remains>,
}

impl ExitWatch {
    /// Watches these processes from now on, except those that are watched or gone. `main` is unparked when one of them ends. If a
    /// process can't be watched, because a limit is reached, none is from then on.
    pub fn watch(&mut self, targets: impl Iterator<Item = Target>, root: &ProcRoot, main: &Thread) {
        for target in targets {
            if self.has_failed || self.watched.contains_key(&target.id) {
                continue;
            }
            let Some(fd) = open(&target) else { continue };
            let watching = self.watcher(root, main).and_then(|watcher| watcher.watch(&fd, &target));
            match watching {
                Ok(()) => {
                    self.watched.insert(target.id, fd);
                }
                // A limit is reached. Samples still find that processes ended.
                Err(_) => self.has_failed = true,
            }
        }
    }

    /// The watcher, which is started at the first call.
    fn watcher(&mut self, root: &ProcRoot, main: &Thread) -> io::Result<&Watcher> {
        match &mut self.watcher {
            Some(watcher) => Ok(watcher),
            none => Ok(none.insert(Watcher::start(root.clone(), main.clone())?)),
        }
    }

    /// Takes the ends of watched processes since the last call, with the wait status as far as the kernel tells it. `is_open`
    /// tells whether the figures of a process can still change. A process whose figures are final is not watched any more.
    pub fn take(&mut self, is_open: impl Fn(ProcessId) -> bool) -> Vec<Observation> {
        let Some(watcher) = &self.watcher else { return Vec::new() };
        let mut seen = Vec::new();
        for Exit { id, at_ns, remains } in watcher.exits.try_iter() {
            if let Some(fd) = self.watched.remove(&id) {
                self.ended.insert(id, fd);
            }
            // An ended process without remains was reaped by then.
            let gone_ns = remains.is_none().then_some(at_ns);
            seen.push(Observation::Ended { id, at_ns, gone_ns, remains });
        }
        self.watched.retain(|id, _| is_open(*id));
        self.ended.retain(|id, fd| {
            let status = pidfd::exit_status(fd);
            seen.extend(status.map(|status| Observation::WaitStatus { id: *id, status }));
            status.is_none() && is_open(*id)
        });
        seen
    }
}

/// Opens the pidfd of a process. `None`: it is gone, or another process has its pid by now.
fn open(target: &Target) -> Option<OwnedFd> {
    // 0: the kernel gave no inode.
    let inode = target.identity.pidfd_inode;
    pidfd::open(target.pid).filter(|fd| inode == 0 || pidfd::inode_of(fd) == Some(inode))
}

/// The thread that waits for ends.
#[derive(Debug)]
struct Watcher {
    epoll: Arc<OwnedFd>,
    exits: Receiver<Exit>,
    /// An eventfd: once it is readable, the thread ends.
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// Bits of a pid (the kernel's PID_MAX_LIMIT is 2^22). The data of an epoll event has the pid in these bits, and the process's id in
/// the bits above.
const PID_BITS: u32 = 22;
/// The data of the event that ends the thread.
const STOP: u64 = u64::MAX;

impl Watcher {
    /// Starts the thread that waits for ends.
    fn start(root: ProcRoot, main: Thread) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let (sender, exits) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&epoll);
        let thread = std::thread::Builder::new()
            .name("gpu-track-ends".into())
            .stack_size(64 * 1024)
            .spawn(move || report_exits(&of_thread, &root, &sender, &main))?;
        Ok(Self { epoll, exits, stop, thread: Some(thread) })
    }

    /// Makes the thread wait for the end of this process, too.
    fn watch(&self, fd: &OwnedFd, target: &Target) -> io::Result<()> {
        let data = epoll::EventData::new_u64(target.id.0 << PID_BITS | u64::from(target.pid));
        // Without ONESHOT an ended process would wake the thread again and again: its pidfd stays readable.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // This fails only if the counter is near its maximum of 2^64.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, nothing that it had is needed any more.
            let _ = thread.join();
        }
    }
}

/// Waits for ends. Reads what is left of each ended process, sends that to `ends`, and wakes `main`. Returns when it is told to
/// stop, or if epoll fails.
fn report_exits(epoll: &OwnedFd, root: &ProcRoot, ends: &Sender<Exit>, main: &Thread) {
    priority::prefer_at_once();
    let mut events = Vec::with_capacity(64);
    loop {
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        for event in events.drain(..) {
            let data = event.data.u64();
            if data == STOP {
                return;
            }
            let pid = (data & ((1 << PID_BITS) - 1)) as u32;
            // This comes first: the parent is woken at the same time, and may reap the process.
            let remains = root.remains(pid);
            // The collector outlives this thread.
            let _ =
                ends.send(Exit { id: ProcessId(data >> PID_BITS), at_ns: clock::monotonic_ns(), remains });
        }
        main.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::model::ids::Identity;

    // Requirement: SEE-56
    #[test]
    fn exit_is_seen_before_and_after_reaping() {
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; read x; exit 7";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let (id, pid) = (ProcessId(3), child.id());
        let identity = Identity {
            pidfd_inode: pidfd::inode(pid).unwrap_or(0),
            latest_start_ns: u64::MAX,
            is_start_rough: false,
            is_pid_held: false,
        };
        let mut watch = ExitWatch::default();
        let target = Target { id, pid, identity };
        watch.watch([target].into_iter(), &ProcRoot::default(), &std::thread::current());
        assert!(watch.watched.contains_key(&id));
        drop(child.stdin.take());
        let mut seen = Vec::new();
        while seen.is_empty() {
            std::thread::park_timeout(Duration::from_millis(10));
            seen = watch.take(|_| true);
        }
        let [Observation::Ended { id: ended, gone_ns: None, remains: Some(remains), .. }] = seen.as_slice()
        else {
            panic!("{seen:?}")
        };
        assert_eq!((*ended, Some(remains.cpu_ns)), (id, pidfd::cpu_clock_ns(pid)));
        assert!(remains.cpu_ns > 0);
        child.wait().unwrap();
        // The kernel keeps the status from Linux 6.15 on.
        if let [Observation::WaitStatus { id: ended, status }] = watch.take(|_| true).as_slice() {
            assert_eq!((*ended, *status), (id, 7 << 8));
            assert!(watch.ended.is_empty());
        }
    }
}
