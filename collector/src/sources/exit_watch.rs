//! The pidfd layer: the end of those whom nobody waits for who would say so (children of static programs, say), where
//! the kernel's events are not to be had.
//!
//! A thread sleeps until one of them ends, and looks at what is left of it, if its parent has not reaped it by then (a
//! parent that waits already is faster as a rule). Which process ended is certain in any case, whoever has its pid next.

use crate::model::finding::Remains;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{JoinHandle, Thread};

use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::run::tree::{ProcessId, Tree};
use crate::sys::proc_fs::ProcRoot;
use crate::sys::{clock, pidfd, priority};

/// Ends of processes that are watched.
#[derive(Debug, Default)]
pub struct Ends {
    watched: HashMap<ProcessId, OwnedFd>,
    /// Those that ended, until the kernel tells how: that is after their reaping.
    ended: HashMap<ProcessId, OwnedFd>,
    /// There only if there ever was somebody to watch.
    watcher: Option<Watcher>,
    has_failed: bool,
}

/// What the thread saw.
#[derive(Debug)]
struct End {
    id: ProcessId,
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
    /// Unless it was reaped already.
    remains: Option<Remains>,
}

impl Ends {
    /// Watch those of whose end nobody would tell, from now on; `main` is unparked when one comes.
    pub fn watch(&mut self, tree: &Tree, root: &ProcRoot, main: &Thread) {
        for process in tree.unawaited() {
            let Some(pid) = process.host_pid else { continue };
            if self.has_failed || self.watched.contains_key(&process.id) {
                continue;
            }
            let Some(fd) = pidfd::open(pid)
                .filter(|fd| process.pidfd_inode == 0 || pidfd::inode_of(fd) == Some(process.pidfd_inode))
            else {
                continue;
            };
            let watching = match &mut self.watcher {
                Some(watcher) => watcher.watch(&fd, process.id, pid),
                none => Watcher::start(root.clone(), main.clone()).and_then(|watcher| {
                    let watching = watcher.watch(&fd, process.id, pid);
                    *none = Some(watcher);
                    watching
                }),
            };
            match watching {
                Ok(()) => drop(self.watched.insert(process.id, fd)),
                // No room for more: samples still tell of ends.
                Err(_) => self.has_failed = true,
            }
        }
    }

    /// Tell the tree who ended.
    pub fn tell(&mut self, tree: &mut Tree) {
        let Some(watcher) = &self.watcher else { return };
        for end in watcher.ends.try_iter() {
            if let Some(fd) = self.watched.remove(&end.id) {
                self.ended.insert(end.id, fd);
            }
            if tree.get(end.id).is_none_or(|process| !process.is_alive()) {
                continue;
            }
            if let Some(remains) = &end.remains {
                tree.note_remains(end.id, remains);
            }
            tree.observe_end(end.id, end.at_ns, end.remains.is_none().then_some(end.at_ns));
        }
        self.watched.retain(|id, _| tree.get(*id).is_some());
        self.ended.retain(|id, fd| {
            let status = pidfd::exit_status(fd);
            if let Some(status) = status {
                tree.note_status(*id, status);
            }
            status.is_none() && tree.get(*id).is_some()
        });
    }
}

/// The thread.
#[derive(Debug)]
struct Watcher {
    epoll: Arc<OwnedFd>,
    ends: Receiver<End>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// What comes with an event: the kernel has no more pids than that.
const PID_BITS: u32 = 22;
/// Stands for the descriptor that ends the thread.
const STOP: u64 = u64::MAX;

impl Watcher {
    fn start(root: ProcRoot, main: Thread) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let (sender, ends) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&epoll);
        let thread = std::thread::Builder::new()
            .name("gpu-track-ends".into())
            .stack_size(64 * 1024)
            .spawn(move || tell_ends(&of_thread, &root, &sender, &main))?;
        Ok(Self { epoll, ends, stop, thread: Some(thread) })
    }

    fn watch(&self, fd: &OwnedFd, id: ProcessId, pid: u32) -> io::Result<()> {
        let data = epoll::EventData::new_u64(id.0 << PID_BITS | u64::from(pid));
        // Once: a dead process stays readable.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // The counter is nowhere near its end.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It can't have panicked with anything that is still of use.
            let _ = thread.join();
        }
    }
}

fn tell_ends(epoll: &OwnedFd, root: &ProcRoot, ends: &Sender<End>, main: &Thread) {
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
            // First, since its parent is woken, too.
            let remains = root.remains(pid);
            // The collector outlives this thread.
            let _ = ends.send(End { id: ProcessId(data >> PID_BITS), at_ns: clock::monotonic_ns(), remains });
        }
        main.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::run::tree::{FoundInProc, Frame, Key};

    #[test]
    fn the_end_of_a_static_programs_child_is_told_before_and_after_its_reaping() {
        let root = ProcRoot::default();
        let own = std::process::id();
        let pid_ns = root.pid_ns(own).unwrap();
        let mut tree = Tree::new(Frame {
            launcher_pid: std::os::unix::process::parent_id(),
            pid_ns,
            session_monotonic_ns: 0,
            session_realtime_ns: 0,
            page: 4096,
            tick_us: 10_000,
        });
        // This process stands for the program that says nothing.
        tree.set_main(own, clock::monotonic_ns(), "tests");
        let parent = tree.open_instance(Key { pid_ns, pid: own }).unwrap();
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; read x; exit 7";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let found = FoundInProc {
            key: Key { pid_ns, pid: child.id() },
            host_pid: child.id(),
            parent,
            start_ns: clock::monotonic_ns(),
            pidfd_inode: pidfd::inode(child.id()).unwrap_or(0),
        };
        let id = tree.found_in_proc(&found);
        let mut ends = Ends::default();
        ends.watch(&tree, &root, &std::thread::current());
        assert!(ends.watched.contains_key(&id));
        drop(child.stdin.take());
        while tree.get(id).unwrap().seen_dead_ns.is_none() {
            std::thread::park_timeout(Duration::from_millis(10));
            ends.tell(&mut tree);
        }
        let process = tree.get(id).unwrap();
        assert_eq!((process.gone_ns, process.kept_status), (None, None));
        let clock_ns = pidfd::cpu_clock_ns(child.id());
        assert!(clock_ns.unwrap() > 0);
        assert_eq!((process.observed.cpu_ns, process.is_clock_final), (clock_ns, true));
        child.wait().unwrap();
        ends.tell(&mut tree);
        // The kernel tells it from Linux 6.15 on.
        if let Some(status) = tree.get(id).unwrap().kept_status {
            assert_eq!(status, 7 << 8);
            assert!(ends.ended.is_empty());
        }
    }
}
