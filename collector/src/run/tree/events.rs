//! What each event record does to the tree.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, FLAG_TRACER, Origin, Usage};

use super::inner::{Sign, Sought};
use super::process::{ExitRecord, FILE_PAGES, Process, ReapRecord, fork_share, rss_noise};
use super::usage_math::plus;
use super::{Departed, FoundBy, Image, Key, LiveInterval, Parent, ProcessId, Tree, image_interval};
use crate::model::command::command_of_record;

const KIB: u64 = 1024;

/// How late a REAPED record may come after its process was settled; after that the pid is another one's.
const LATEST_REAPING_NS: u64 = 10_000_000_000;

impl Tree {
    /// Take in one event. `now_ns` is CLOCK_MONOTONIC.
    pub fn apply(&mut self, origin: &Origin, event: &Event, now_ns: u64) {
        let key = Key { pid_ns: origin.pid_ns, pid: origin.pid };
        match *event {
            Event::Start { realtime_ns, pidfd_inode, max_rss_kib, ref names } => {
                let skew = self.clock_skew(origin.monotonic_ns, realtime_ns, now_ns);
                let at = self.clamp_time(origin.monotonic_ns, skew, now_ns);
                self.start(
                    key,
                    origin,
                    pidfd_inode,
                    max_rss_kib.saturating_mul(KIB),
                    &command_of_record(names),
                    skew,
                    at,
                );
            }
            Event::Fork { realtime_ns, pidfd_inode, max_rss_kib, parent_pid_ns } => {
                let skew = self.clock_skew(origin.monotonic_ns, realtime_ns, now_ns);
                let at = self.clamp_time(origin.monotonic_ns, skew, now_ns);
                let parent = Key { pid_ns: parent_pid_ns, pid: origin.parent };
                self.fork(key, parent, pidfd_inode, max_rss_kib.saturating_mul(KIB), skew, at);
            }
            Event::Exec { vm_hwm_kib } => {
                if let Some(process) = self.open_instance(key).and_then(|id| self.processes.get_mut(&id)) {
                    raise(&mut process.told_peak, vm_hwm_kib.saturating_mul(KIB));
                }
            }
            Event::Exit { status, vm_hwm_kib, own, children } => {
                let hwm = (vm_hwm_kib > 0).then_some(vm_hwm_kib.saturating_mul(KIB));
                self.exit(
                    key,
                    origin,
                    ExitRecord { status, hwm, own, children, flags: origin.flags },
                    now_ns,
                );
            }
            Event::Reaped { child, status, reaper_max_rss_kib, usage } => {
                let reaper_peak = reaper_max_rss_kib.saturating_mul(KIB);
                self.reaped(key, origin, child, ReapRecord { status, usage, reaper_peak }, now_ns);
            }
            Event::SpawnFailed { .. } => {
                if let Some(parent) = self.open_instance(key) {
                    self.forget_failed_spawn(parent);
                }
                self.born += 1;
                self.failed_spawns += 1;
            }
        }
    }

    /// The difference of a process's clock to ours: 0 unless its time cannot be ours (a time namespace).
    fn clock_skew(&self, monotonic_ns: u64, realtime_ns: u64, now_ns: u64) -> i64 {
        let frame = &self.context;
        if (frame.session_monotonic_ns..=now_ns).contains(&monotonic_ns) {
            return 0;
        }
        let since = i128::from(realtime_ns) - i128::from(frame.session_realtime_ns);
        let ours = i128::from(frame.session_monotonic_ns) + since;
        i64::try_from(ours - i128::from(monotonic_ns)).unwrap_or(0)
    }

    fn clamp_time(&self, monotonic_ns: u64, skew_ns: i64, now_ns: u64) -> u64 {
        let start = self.context.session_monotonic_ns.min(now_ns);
        monotonic_ns.saturating_add_signed(skew_ns).clamp(start, now_ns)
    }

    fn time_of(&self, id: Option<ProcessId>, origin: &Origin, now_ns: u64) -> u64 {
        let skew = id.and_then(|id| self.processes.get(&id)).map_or(0, |process| process.clock_skew_ns);
        self.clamp_time(origin.monotonic_ns, skew, now_ns)
    }

    /// The parent that a process names by its pid.
    pub(super) fn parent_of(&self, parent: Key) -> Parent {
        if parent == (Key { pid_ns: self.context.pid_ns, pid: self.context.launcher_pid }) {
            return Parent::Launcher;
        }
        if let Some(id) = self.open_instance(parent) {
            return Parent::Known(id);
        }
        // It may have ended before its child could speak (daemon(3)): the last one of that pid is meant.
        let ended = self.index.get(&parent).and_then(|of_pid| of_pid.last().copied());
        ended
            .or_else(|| self.departed(parent).map(|departed| departed.id))
            .map_or(Parent::Unknown, Parent::Known)
    }

    fn departed(&self, key: Key) -> Option<&Departed> {
        self.departed.iter().rev().find(|departed| departed.key == key)
    }

    /// The nearest ancestor, this parent included, that runs a program which says nothing; while that is not known, the one
    /// whose parent it is.
    pub(super) fn silent_ancestor(&mut self, parent: Parent) -> Option<ProcessId> {
        let Parent::Known(id) = parent else { return None };
        let process = self.processes.get_mut(&id)?;
        let is_it = !process.speaks() || process.parent == Parent::Unknown;
        process.was_silent_ancestor |= is_it;
        is_it.then_some(id).or(process.silent_ancestor)
    }

    /// Another one stands for these where they are the nearest silent ancestors.
    pub(super) fn replace_silent_ancestors(&mut self, these: &BTreeSet<ProcessId>, by: Option<ProcessId>) {
        for process in self.processes.values_mut() {
            if process.silent_ancestor.is_some_and(|id| these.contains(&id)) {
                process.silent_ancestor = by;
            }
        }
    }

    /// The command that a child of this parent runs until it execs.
    pub(super) fn command_of_parent(&self, parent: Parent) -> Option<Arc<str>> {
        let Parent::Known(id) = parent else { return None };
        match self.processes.get(&id) {
            Some(process) => Some(process.command.clone()),
            None => self.departed.iter().rev().find(|d| d.id == id).map(|departed| departed.command.clone()),
        }
    }

    /// The live instance that a record with this pid and pidfd inode is about.
    fn same_instance(&self, key: Key, pidfd_inode: u64) -> Option<ProcessId> {
        let id = self.open_instance(key)?;
        let process = self.processes.get(&id)?;
        let known = process.pidfd_inode;
        // The kernel saw its end: whoever speaks now under that pid is another one.
        if process.kernel_exit.is_some() {
            return None;
        }
        (known == 0 || pidfd_inode == 0 || known == pidfd_inode).then_some(id)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one record")]
    fn start(
        &mut self,
        key: Key,
        origin: &Origin,
        pidfd_inode: u64,
        inherited: u64,
        command: &str,
        skew: i64,
        at: u64,
    ) {
        let sought = Sought { key, parent_pid: origin.parent, pidfd_inode, at_ns: at, sign: Sign::Exec };
        let known = self.same_instance(key, pidfd_inode).or_else(|| self.told_by_kernel(&sought));
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at);
            // In a pid namespace of its own the parent outside is 0.
            let parent = self.parent_of(Key { pid_ns: key.pid_ns, pid: origin.parent });
            self.insert(key, parent, FoundBy::Preload, at)
        });
        if self.main.is_none() && self.processes.get(&id).is_some_and(|p| p.parent == Parent::Launcher) {
            self.main = Some(id);
            if let Some(process) = self.processes.get_mut(&id) {
                process.is_main = true;
            }
        }
        let group = self.new_group();
        self.join_group(id, group);
        let Some(process) = self.processes.get_mut(&id) else { return };
        // ru_maxrss survives exec: where it grew since the last image started, that image's own peak made it grow.
        let (before, forked) = match process.image {
            Image::Loaded { inherited } => (inherited, false),
            Image::Forked { rss_at_fork } => (rss_at_fork, true),
            Image::Silent | Image::Unknown | Image::Borrowed => (u64::MAX, false),
        };
        // A fork child's RSS before its exec is its parent's, but for what it grew by.
        // Not so its file pages, which a fork leaves out and the child reads in again.
        let grown = inherited
            > if forked { before.saturating_add(rss_noise(before).max(FILE_PAGES)) } else { before };
        // A silent program's is what was seen of it.
        let seen = process.peak_before_exec().filter(|_| process.image == Image::Silent);
        let peak = if grown { Some(inherited) } else { process.told_peak.or(seen) };
        let lives = known.is_some().then_some(&mut self.intervals);
        // It is the silent program itself, which took its time to speak: the kernel saw no exec since, or it has its name.
        let is_late =
            process.was_looked_at_as(command) || (process.is_watched && process.silent_exec.is_none());
        let has_sampled_past = process.has_sampled_past;
        process.change_image(lives, Image::Loaded { inherited }, at, peak);
        process.has_sampled_past &= has_sampled_past || !is_late;
        process.silent_exec = None;
        process.note_inode(pidfd_inode);
        process.parent_pid = origin.parent;
        process.clock_skew_ns = skew;
        process.static_executable = None;
        process.args = None;
        process.command = Arc::from(command);
        self.hear(id);
    }

    fn fork(&mut self, key: Key, parent: Key, pidfd_inode: u64, rss_at_fork: u64, skew: i64, at: u64) {
        // The only instance that it can be is one that a scan found a moment ago.
        let sought = Sought { key, parent_pid: parent.pid, pidfd_inode, at_ns: at, sign: Sign::Fork };
        let known = self
            .same_instance(key, pidfd_inode)
            .filter(|id| self.processes.get(id).is_some_and(|p| !p.spoke && !p.is_main))
            .or_else(|| self.told_by_kernel(&sought));
        let maker = self.parent_of(parent);
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at);
            self.insert(key, maker, FoundBy::Preload, at)
        });
        let page = self.context.page;
        let command = self.command_of_parent(maker);
        let silent_ancestor = self.silent_ancestor(maker);
        if let Parent::Known(parent) = maker
            && let Some(parent) = self.processes.get_mut(&parent)
        {
            parent.has_children = true;
            let group = parent.group;
            if parent.is_alive() {
                self.join_group(id, group);
            }
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        // The kernel's word on its parent is better: after a raw clone a process does not know its own pid.
        if !process.is_watched || process.parent == Parent::Unknown {
            (process.parent, process.silent_ancestor) = (maker, silent_ancestor);
            process.parent_pid = parent.pid;
        }
        process.start_ns = process.start_ns.min(at);
        process.image_start_ns = at;
        process.silent_exec = None;
        if process.image == Image::Unknown {
            // What a sample saw of it is known for its own only now.
            let seen = &mut process.observed;
            seen.share = fork_share(seen.rss, rss_at_fork, seen.minor_faults.saturating_mul(page));
        }
        process.image = Image::Forked { rss_at_fork };
        process.note_inode(pidfd_inode);
        process.clock_skew_ns = skew;
        if let Some(command) = command {
            process.command = command;
        }
        self.hear(id);
    }

    /// A new process has this pid: whoever had it before is over, whatever was heard of it.
    pub(super) fn end_stale(&mut self, key: Key, at: u64) {
        if let Some(old) = self.open_instance(key) {
            let exit = self.processes.get(&old).and_then(|process| process.kernel_exit);
            self.end(old, exit.map_or(at, |exit| exit.at_ns.min(at)));
            if let Some(process) = self.processes.get_mut(&old) {
                process.gone_ns = Some(at);
            }
        }
    }

    fn exit(&mut self, key: Key, origin: &Origin, record: ExitRecord, now_ns: u64) {
        let borrowed = record.flags & FLAG_BORROWED_MEMORY != 0;
        // A vfork child has written nothing before: an instance that has is another one's.
        let known = self
            .open_instance(key)
            .filter(|id| !borrowed || self.processes.get(id).is_some_and(|process| !process.spoke));
        let at = self.time_of(known, origin, now_ns);
        let sought = Sought { key, parent_pid: origin.parent, pidfd_inode: 0, at_ns: at, sign: Sign::Exit };
        let known = known.or_else(|| self.told_by_kernel(&sought));
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at);
            let parent = self.parent_of(Key { pid_ns: key.pid_ns, pid: origin.parent });
            let id = self.insert(key, parent, FoundBy::Preload, at);
            let command = self.command_of_parent(parent);
            if let (Some(process), Some(command)) = (self.processes.get_mut(&id), command) {
                process.command = command;
            }
            id
        });
        self.hear(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        if borrowed && matches!(process.image, Image::Silent | Image::Unknown) {
            process.image = Image::Borrowed;
        }
        process.exit = Some(record);
        self.note_free_end(id, at);
        self.end(id, at);
    }

    fn reaped(&mut self, reaper_key: Key, origin: &Origin, child: u32, record: ReapRecord, now_ns: u64) {
        let by_launcher = reaper_key == (Key { pid_ns: self.context.pid_ns, pid: self.context.launcher_pid });
        let reaper = if by_launcher { None } else { self.open_instance(reaper_key) };
        let tracer = origin.flags & FLAG_TRACER != 0;
        let at = self.time_of(reaper, origin, now_ns);
        let child_key = Key { pid_ns: reaper_key.pid_ns, pid: child };
        let mut found = self.reaped_instance(child_key, reaper, by_launcher, tracer);
        if found.is_none() && reaper.is_some() && !tracer {
            let sign = Sign::Reaped(record.status);
            let parent_pid = reaper_key.pid;
            found =
                self.told_by_kernel(&Sought { key: child_key, parent_pid, pidfd_inode: 0, at_ns: at, sign });
        }
        let id = match found {
            Some(id) => id,
            // A tracer is told of the ends of others' children too; a late record is of one that is settled.
            None if tracer || self.forget_unreaped(child_key, now_ns) => return,
            None => {
                let (parent, found_by) = match reaper {
                    Some(reaper) => (Parent::Known(reaper), FoundBy::Wait),
                    None if by_launcher => (Parent::Launcher, FoundBy::Subreaper),
                    None => return,
                };
                let id = self.insert(child_key, parent, found_by, at);
                if by_launcher && self.main.is_none() {
                    // The command itself, before the launcher's word on it was read.
                    self.main = Some(id);
                    if let Some(process) = self.processes.get_mut(&id) {
                        process.is_main = true;
                    }
                }
                self.adopt(child_key, id);
                id
            }
        };
        if let Some(reaper) = reaper.and_then(|reaper| self.processes.get_mut(&reaper)) {
            reaper.reaped_children = plus(&reaper.reaped_children, &record.usage);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        let made_it = match process.parent {
            Parent::Known(parent) => Some(parent) == reaper,
            Parent::Launcher => by_launcher && process.is_main,
            Parent::Unknown => false,
        };
        // What a child inherits is bounded by the peak of who made it, not of who reaps an orphan.
        let reaper_peak = if made_it { record.reaper_peak } else { u64::MAX };
        let counted = process.share_since_sample(self.context.page);
        process.reaped = Some(ReapRecord { reaper_peak, ..record });
        // Of who was known to have ended before, its reaper may know of more memory than was counted by then. Only the
        // kernel's word dates the end well enough: who was seen dead has made room for others meanwhile.
        let more = process.share_since_sample(self.context.page).saturating_sub(counted);
        let is_dated = process.kernel_exit.is_some() && process.exit.is_none();
        if let Some(end_ns) = process.end_ns.filter(|_| more > 0 && is_dated) {
            self.intervals.push(LiveInterval { bytes: more, ..image_interval(process, end_ns) });
        }
        if process.host_pid.is_none() && reaper_key.pid_ns == self.context.pid_ns {
            process.host_pid = Some(child);
        }
        let key = process.key;
        if process.is_alive() {
            // It may have been waited for long after its end. A signal ends all threads at once.
            let killed = process.kernel_exit.filter(|exit| libc::WIFSIGNALED(exit.status));
            let dead_ns = killed.map(|exit| exit.at_ns).or(process.seen_dead_ns);
            self.end(id, dead_ns.map_or(at, |dead| dead.min(at)));
        }
        if key.pid == 1 && key.pid_ns != self.context.pid_ns {
            self.end_namespace(key.pid_ns, at);
        }
    }

    /// A pid namespace's init was reaped: before that the kernel killed all others in it (pid_namespaces(7)).
    fn end_namespace(&mut self, pid_ns: u32, at: u64) {
        let all = self.inner.range((pid_ns, ProcessId(0))..=(pid_ns, ProcessId(u64::MAX)));
        for (_, id) in all.copied().collect::<Vec<_>>() {
            if self.processes.get(&id).is_some_and(Process::is_alive) {
                self.end(id, at);
            }
        }
    }

    /// The process that a reaper means: the oldest unreaped one of that pid whose parent it is, or whose parent can
    /// no longer reap it, else the youngest of that pid; in another pid namespace the oldest child of that reaper whose pid here is not known.
    fn reaped_instance(
        &self,
        key: Key,
        reaper: Option<ProcessId>,
        by_launcher: bool,
        tracer: bool,
    ) -> Option<ProcessId> {
        let unreaped = |process: &&Process| process.reaped.is_none();
        let may_be = |process: &&Process| match process.parent {
            Parent::Known(parent) => {
                Some(parent) == reaper
                    || (!tracer && self.processes.get(&parent).is_none_or(|parent| !parent.is_alive()))
            }
            Parent::Launcher => by_launcher,
            Parent::Unknown => !tracer,
        };
        let of_pid = self.index.get(&key).into_iter().flatten().filter_map(|id| self.processes.get(id));
        if let Some(process) = of_pid.clone().filter(unreaped).find(may_be) {
            return Some(process.id);
        }
        // Who reaps and traces nobody is the parent by then: the one before was killed, which nobody told yet.
        if !tracer
            && (by_launcher || reaper.is_some())
            && let Some(process) = of_pid.rev().find(unreaped)
        {
            return Some(process.id);
        }
        let reaper = reaper?;
        self.inner
            .iter()
            .filter_map(|(_, id)| self.processes.get(id))
            .filter(|process| process.parent == Parent::Known(reaper) && process.host_pid.is_none())
            .filter(|process| process.key.pid_ns != key.pid_ns)
            .filter(unreaped)
            .min_by_key(|process| (!process.is_alive(), process.id))
            .map(|process| process.id)
    }

    /// Processes that named a parent which nobody knew: it is known now.
    pub(super) fn adopt(&mut self, parent: Key, id: ProcessId) {
        let mut adopted = BTreeSet::new();
        let silent_ancestor = self.silent_ancestor(Parent::Known(id));
        self.strays.retain(|stray| {
            let Some(process) = self.processes.get_mut(stray) else { return false };
            let is_its = process.parent == Parent::Unknown
                && process.parent_pid == parent.pid
                && process.key.pid_ns == parent.pid_ns
                && process.id != id;
            if is_its {
                (process.parent, process.silent_ancestor) = (Parent::Known(id), silent_ancestor);
                adopted.insert(*stray);
            }
            process.parent == Parent::Unknown
        });
        if adopted.is_empty() {
            return;
        }
        if let Some(process) = self.processes.get_mut(&id) {
            process.has_children = true;
        }
        // One that says nothing itself is still the nearest.
        adopted.retain(|id| self.processes.get(id).is_some_and(Process::speaks));
        self.replace_silent_ancestors(&adopted, silent_ancestor);
    }

    /// Whether this pid was settled without a REAPED record; if so, this is it.
    fn forget_unreaped(&mut self, key: Key, now_ns: u64) -> bool {
        let waiting = self.departed.iter_mut().find(|departed| {
            departed.key == key
                && departed.awaits_reaping
                && now_ns.saturating_sub(departed.settled_ns) < LATEST_REAPING_NS
        });
        waiting.is_some_and(|departed| std::mem::replace(&mut departed.awaits_reaping, false))
    }
}

fn raise(peak: &mut Option<u64>, to: u64) {
    *peak = Some(peak.map_or(to, |peak| peak.max(to)));
}

/// The sum that stands for a child of which nobody recorded the reaping: itself and what it waited for.
pub(super) fn total_of(own: &Usage, process: &Process) -> Usage {
    let waited_for = match &process.exit {
        Some(exit) => exit.children,
        None => plus(&process.reaped_children, &process.unreaped_children),
    };
    plus(own, &waited_for)
}
