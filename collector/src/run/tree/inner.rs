//! Processes of other pid namespaces than ours: the kernel tells of them by the pids that they have out here, and they
//! tell of themselves by those inside. Which of the ones is which of the others.

use gpu_track_abi::record::Usage;
use serde::{Deserialize, Serialize};

use super::{Image, Key, Parent, Process, ProcessId, Tree};

/// Where a process is that the kernel told of, while nobody knows its pid there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Inode of the pid namespace.
    pub pid_ns: u32,
    /// Its number among the forks there.
    pub number: u64,
}

/// The forks in a pid namespace.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Forks {
    /// How many the kernel told of.
    count: u64,
    /// The pid inside that became known last, and its number among them.
    known: (u32, u64),
    /// When a process last ended there that was not killed, CLOCK_MONOTONIC nanoseconds.
    last_end_ns: u64,
}

impl Forks {
    /// The pid that a fork of this number has, if no threads had any since the last one that is known.
    fn expected_pid(&self, number: u64) -> i64 {
        let (pid, known) = self.known;
        i64::from(pid) + (number.cast_signed() - known.cast_signed())
    }
}

/// A process of our pid namespace, and the inode of its pidfd. The kernel (pidfs) numbers all pids that it hands out by
/// those, so both count alike until pids begin again.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Numbered {
    pid: u32,
    inode: u64,
}

impl Numbered {
    /// The pid out here of the process whose pidfd has this inode.
    fn pid_of(self, inode: u64) -> Option<u32> {
        let ahead = inode.wrapping_sub(self.inode).cast_signed();
        i64::from(self.pid).checked_add(ahead)?.try_into().ok()
    }
}

/// What a record tells of a process that is known from the kernel alone.
pub(super) struct Sought {
    /// Its pid inside.
    pub key: Key,
    /// Its parent's there.
    pub parent_pid: u32,
    /// Inode of a pidfd of it; 0: not told.
    pub pidfd_inode: u64,
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// What else.
    pub sign: Sign,
}

/// What the kernel must have told of it, too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// It runs a program of its own.
    Exec,
    /// It was just made.
    Fork,
    /// It ends.
    Exit,
    /// It has ended with this wait status.
    Reaped(i32),
}

impl Tree {
    /// The kernel told that this process made another one: where that is, if not in our pid namespace.
    pub(super) fn count_fork(&mut self, maker: ProcessId) -> Option<Inside> {
        let pid_ns = self.namespace_of(self.processes.get(&maker)?)?;
        let forks = self.forks.entry(pid_ns).or_default();
        forks.count += 1;
        Some(Inside { pid_ns, number: forks.count })
    }

    /// Inode of the other pid namespace that a process is in, as far as known.
    pub(super) fn namespace_of(&self, process: &Process) -> Option<u32> {
        let has_own_pid = process.key.pid_ns != self.context.pid_ns;
        has_own_pid.then_some(process.key.pid_ns).or(process.inside.map(|inside| inside.pid_ns))
    }

    /// The init of the other pid namespace that a process is in, if that is another process.
    pub(super) fn init_of(&self, process: &Process) -> Option<ProcessId> {
        let of_pid = self.index.get(&Key { pid_ns: self.namespace_of(process)?, pid: 1 })?;
        of_pid.last().copied().filter(|init| *init != process.id)
    }

    /// A process ended without being killed: if its pid namespace's init ended before, it could not have.
    pub(super) fn note_free_end(&mut self, id: ProcessId, at_ns: u64) {
        let process = self.processes.get(&id).filter(|process| process.key.pid != 1);
        if let Some(forks) = process.and_then(|p| self.namespace_of(p)).and_then(|ns| self.forks.get_mut(&ns))
        {
            forks.last_end_ns = forks.last_end_ns.max(at_ns);
        }
    }

    /// Whether the kernel killed a process, which used so much, because this one, the init of its pid namespace, ended, and
    /// reaped it itself.
    pub(super) fn has_taken_along(&self, init: &Process, process: &Process, used: &Usage) -> bool {
        let is_alive = init.is_alive() && init.kernel_exit.is_none();
        // What it says itself is said before.
        let since_ns = match init.exit {
            Some(_) => init.end_ns,
            None => self.forks.get(&init.key.pid_ns).map(|forks| forks.last_end_ns),
        };
        // Of one that says nothing its reaper's sum tells whether it waited.
        let has_waited = init.exit.is_none() && init.reaped.is_some() && init.says_it_waited_for(used);
        !is_alive && process.end_ns > since_ns && process.was_killed() && !has_waited
    }

    /// A process of our pid namespace has a pidfd of this inode (0: unknown).
    pub fn note_number(&mut self, pid: u32, inode: u64) {
        if inode != 0 {
            self.numbered = Some(Numbered { pid, inode });
        }
    }

    /// The process that a record from another pid namespace is about, if it is one that the kernel told of and that has
    /// not spoken: of the same pidfd, else of the same parent, alive at the time, and of the pid that comes next there.
    /// Without pidfs (Linux 6.9) children of one process that start at once may be taken for one another where threads take
    /// pids between them.
    pub(super) fn told_by_kernel(&mut self, sought: &Sought) -> Option<ProcessId> {
        if sought.key.pid_ns == self.context.pid_ns {
            return None;
        }
        let parent = match self.parent_of(Key { pid: sought.parent_pid, ..sought.key }) {
            Parent::Known(id) => Some(id),
            Parent::Launcher | Parent::Unknown => None,
        };
        let candidates = self.mute.iter().filter_map(|id| self.processes.get(id));
        let id = candidates
            .filter_map(|process| Some((self.likeness(process, sought, parent)?, process.id)))
            .max()?
            .1;
        if let Some(pid) = self.processes.get(&id).and_then(|process| process.host_pid) {
            self.note_number(pid, sought.pidfd_inode);
        }
        self.set_pid_inside(id, sought.key);
        // Its parent's pid, which is told with it, is that of who made it.
        let maker = self.processes.get(&id).map(|process| process.parent);
        if let (None, Some(Parent::Known(maker))) = (parent, maker)
            && sought.parent_pid != 0
            && self.mute.contains(&maker)
            && self.is_only_outside(maker)
        {
            self.set_pid_inside(maker, Key { pid: sought.parent_pid, ..sought.key });
        }
        Some(id)
    }

    /// How well a process fits, best last; `None` if it can't be the one.
    fn likeness(
        &self,
        process: &Process,
        sought: &Sought,
        parent: Option<ProcessId>,
    ) -> Option<impl Ord + use<>> {
        let are_told = process.pidfd_inode != 0 && sought.pidfd_inode != 0;
        let is_same = process.pidfd_inode == sought.pidfd_inode;
        let has_execd = process.silent_exec.is_some() || process.image == Image::Silent;
        let end = process.kernel_exit;
        let (is_possible, is_like) = match sought.sign {
            Sign::Exec => (true, has_execd),
            Sign::Fork => (true, !has_execd),
            Sign::Exit => (true, true),
            Sign::Reaped(status) => (end.is_some_and(|end| end.status == status), true),
        };
        let was_there =
            matches!(sought.sign, Sign::Reaped(_)) || end.is_none_or(|end| end.at_ns >= sought.at_ns);
        if process.key.pid_ns != self.context.pid_ns
            || process.start_ns > sought.at_ns
            || (are_told && !is_same)
            || !is_possible
        {
            return None;
        }
        let inside = process.inside.filter(|inside| inside.pid_ns == sought.key.pid_ns);
        let kinship = match (process.parent, parent) {
            (Parent::Known(maker), Some(parent)) if maker == parent => 3,
            // The child of one that says nothing.
            (Parent::Known(maker), None) if sought.parent_pid != 0 && self.is_only_outside(maker) => 3,
            // An orphan, whose parent is another one by now.
            (Parent::Known(maker), Some(_)) if inside.is_some() && self.is_over_by_kernel(maker) => 2,
            // The first one in its namespace, or one that entered it.
            (_, None) => 1,
            // Its parent was taken for another one. The kernel told of all there are.
            _ if inside.is_some() && !matches!(sought.sign, Sign::Reaped(_)) => 0,
            _ => return None,
        };
        let forks = self.forks.get(&sought.key.pid_ns).copied().unwrap_or_default();
        let ahead = inside.map_or(0, |inside| forks.expected_pid(inside.number) - i64::from(sought.key.pid));
        let numbered = self.numbered.filter(|_| sought.pidfd_inode != 0);
        let is_numbered_so = numbered.is_some_and(|one| one.pid_of(sought.pidfd_inode) == process.host_pid);
        Some((are_told, is_numbered_so, kinship, was_there, is_like, ahead <= 0, -ahead.abs()))
    }

    /// Whether it is alive, and its pid inside is not known, if it has one.
    fn is_only_outside(&self, id: ProcessId) -> bool {
        !self.is_over_by_kernel(id)
            && self.processes.get(&id).is_some_and(|process| process.key.pid_ns == self.context.pid_ns)
    }

    fn is_over_by_kernel(&self, id: ProcessId) -> bool {
        self.processes.get(&id).is_none_or(|process| !process.is_alive() || process.kernel_exit.is_some())
    }

    /// The pid inside of a process that the kernel told of.
    pub(super) fn set_pid_inside(&mut self, id: ProcessId, key: Key) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.key = key;
        let inside = process.inside.take().filter(|inside| inside.pid_ns == key.pid_ns);
        let forks = self.forks.entry(key.pid_ns).or_default();
        forks.known = (key.pid, inside.map_or(forks.count, |inside| inside.number));
        self.index.entry(key).or_default().push(id);
        self.inner.insert((key.pid_ns, id));
        self.adopt(key, id);
    }

    /// /proc told the pid inside of a process that may be known from the kernel alone.
    pub fn found_inside(&mut self, id: ProcessId, key: Key) {
        let Some(process) = self.processes.get(&id).filter(|p| p.key.pid_ns == self.context.pid_ns) else {
            return;
        };
        let host_pid = process.key.pid;
        let known = self.open_instance(key).filter(|known| *known != id);
        let Some(known) = known else { return self.set_pid_inside(id, key) };
        // A record was taken for another one's.
        if self.processes.get(&known).is_none_or(|process| process.host_pid.is_some()) {
            return;
        }
        self.forget(id);
        for process in self.processes.values_mut().filter(|process| process.parent == Parent::Known(id)) {
            process.parent = Parent::Known(known);
        }
        self.set_host_pid(known, host_pid);
    }
}
