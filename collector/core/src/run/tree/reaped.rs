//! What REAPED records do to the tree.

use gpu_track_abi::record::{FLAG_TRACER, Origin};

use super::namespaces::{MatchEvidence, MatchQuery};
use super::records::ReapRecord;
use super::tolerance::Tolerance;
use super::{Key, Layer, Parent, Process, ProcessId, Tree};

/// The writer of a REAPED record: the reaper.
#[derive(Clone, Copy)]
struct Reaper {
    /// Its pid, in its own pid namespace.
    key: Key,
    /// Its id; `None`: it is the launcher, or a process that the tree does not have.
    id: Option<ProcessId>,
    is_launcher: bool,
    /// It traces other processes (strace, gdb), so the process that it waited for need not be its child.
    is_tracer: bool,
}

impl Tree {
    /// Applies a REAPED record, which says that its writer has reaped `child`, a pid in the writer's pid
    /// namespace. Finds the child in the tree, or adds it. Notes the record with the child, and the usage with its reaper. The
    /// child ends, if nothing has ended it before.
    ///
    /// The record is left out if the child is finalized or had ended before the run. So is the record of a tracer or of an
    /// unknown process about a child that the tree does not have. `now_ns` is CLOCK_MONOTONIC nanoseconds.
    pub(super) fn reaped(&mut self, origin: &Origin, child: u32, record: ReapRecord, now_ns: u64) {
        let reaper_key = Key { pid_ns: origin.pid_ns, pid: origin.pid };
        let is_launcher = reaper_key == (Key { pid_ns: self.context.pid_ns, pid: self.context.launcher_pid });
        let reaper = Reaper {
            key: reaper_key,
            id: if is_launcher { None } else { self.youngest_alive(reaper_key) },
            is_launcher,
            is_tracer: origin.flags & FLAG_TRACER != 0,
        };
        let at_ns = self.time_of(reaper.id, origin, now_ns);
        let child_key = Key { pid_ns: reaper_key.pid_ns, pid: child };
        let mut found = self.reaped_instance(child_key, reaper, &record);
        // A child in another pid namespace may be known only by its pid in the collector's, which the connector has reported.
        if found.is_none() && reaper.id.is_some() && !reaper.is_tracer {
            let evidence = MatchEvidence::Reaped(record.status);
            let query = MatchQuery { key: child_key, parent: reaper_key, pidfd_inode: 0, at_ns, evidence };
            found = self.match_in_namespace(&query);
        }
        // A tracer also sees the ends of others' children. A late record is about a process that is finalized.
        if found.is_none() && (reaper.is_tracer || self.take_awaited_reaping(child_key, now_ns)) {
            return;
        }
        // The child had ended before the run began, so none of the record is the run's.
        if found.is_none() && self.forget_over_before(child_key) {
            self.note_wait(reaper.id);
            return;
        }
        let Some(id) = found.or_else(|| self.insert_reaped(child_key, reaper, at_ns)) else { return };
        // What the child used before the run, if it is from before, does not count.
        let before = self.processes.get(&id).and_then(|process| process.before);
        let record = before.map_or(record, |before| record.since(&before));
        // A helper is a process of gpu-track itself. Its RSS in the reaper's sums must not be taken for that of a process of the run.
        // A child that waited for a helper hands the helper's RSS on: the kernel passes the maximum of RUSAGE_CHILDREN on to the
        // reaper (kernel/exit.c, wait_task_zombie).
        let helper_max_rss_bytes = self.processes.get(&id).map_or(0, |child| match child.ids.is_helper {
            true => record.usage.max_rss_bytes(),
            false => child.cpu.helpers_max_rss_bytes,
        });
        if let Some(reaper) = reaper.id.and_then(|reaper| self.processes.get_mut(&reaper)) {
            reaper.cpu.reaped_children = reaper.cpu.reaped_children.plus(&record.usage);
            reaper.cpu.helpers_max_rss_bytes = reaper.cpu.helpers_max_rss_bytes.max(helper_max_rss_bytes);
        }
        self.note_wait(reaper.id);
        if let Some(child) = self.processes.get_mut(&id) {
            child.lifetime.reaped_ns = Some(at_ns);
        }
        self.set_reaped(id, reaper, child, record);
        self.end_reaped(id, at_ns);
    }

    /// Notes that a process has waited for a child, or may have.
    pub(super) fn note_wait(&mut self, reaper: Option<ProcessId>) {
        if let Some(reaper) = reaper.and_then(|reaper| self.processes.get_mut(&reaper)) {
            reaper.ancestry.waits += 1;
        }
    }

    /// Ends a process that was reaped by `at_ns`, CLOCK_MONOTONIC nanoseconds, if nothing has ended it before. If it is the init
    /// of another pid namespace, ends all processes there.
    fn end_reaped(&mut self, id: ProcessId, at_ns: u64) {
        let Some(process) = self.processes.get(&id) else { return };
        let key = process.ids.key;
        let is_inner_init = key.pid == 1 && key.pid_ns != self.context.pid_ns;
        if process.is_alive() {
            // Its reaper may have waited long after its end, so an earlier time is looked for. The connector reports the exit of
            // the first thread. That is the process's end only if a signal caused it, which ends all threads at once.
            // Otherwise a sample may have seen the process dead.
            let killed = process.end.kernel_exit.filter(|exit| libc::WIFSIGNALED(exit.status));
            let dead_ns = killed.map(|exit| exit.at_ns).or(process.lifetime.seen_dead_ns);
            self.end(id, dead_ns.map_or(at_ns, |dead| dead.min(at_ns)));
        }
        if is_inner_init {
            self.end_namespace(key.pid_ns, at_ns);
        }
    }

    /// Adds a process that only its REAPED record reports. `None`: the tree does not have its reaper.
    fn insert_reaped(&mut self, key: Key, reaper: Reaper, at_ns: u64) -> Option<ProcessId> {
        let (parent, found_by) = match reaper.id {
            Some(reaper) => (Parent::Known(reaper), Layer::Wait),
            None if reaper.is_launcher => (Parent::Launcher, Layer::Subreaper),
            None => return None,
        };
        let id = self.insert(key, parent, found_by, at_ns);
        if reaper.is_launcher && self.main.is_none() {
            // This is the command itself, whose end is applied before the launcher's report of its start.
            self.main = Some(id);
            if let Some(process) = self.processes.get_mut(&id) {
                process.ids.is_main = true;
            }
        }
        self.adopt(key, id);
        Some(id)
    }

    /// Stores what the record says of a process: usage, status, clock, and its pid (`child`) where that was unknown. If the
    /// process has ended already, queues the memory that only this record shows for the next sample.
    fn set_reaped(&mut self, id: ProcessId, reaper: Reaper, child: u32, record: ReapRecord) {
        let page = self.context.page;
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_maker = match process.ancestry.parent {
            Parent::Known(parent) => Some(parent) == reaper.id,
            // The launcher made only the command. Its other children are orphans.
            Parent::Launcher => reaper.is_launcher && process.ids.is_main,
            Parent::Unknown => false,
        };
        // A child inherits no more than the peak of the process that made it. The peak of another reaper is no bound for it.
        let maker_max_rss_bytes = if is_maker { record.maker_max_rss_bytes } else { u64::MAX };
        process.end.reaped = Some(ReapRecord { maker_max_rss_bytes, ..record });
        if record.clock_ns.is_some() {
            process.observed.cpu_ns = process.observed.cpu_ns.max(record.clock_ns);
            process.cpu.is_clock_final = true;
        }
        self.intervals.extend(process.take_late_memory(page));
        if process.ids.host_pid.is_none() && reaper.key.pid_ns == self.context.pid_ns {
            process.ids.host_pid = Some(child);
            self.note_maker(id, reaper);
        }
    }

    /// Notes the reaper as the parent of a reaped process that is in another pid namespace, if no source has named a parent. The
    /// reaper made the process, or adopted it from a process that has ended.
    fn note_maker(&mut self, id: ProcessId, reaper: Reaper) {
        let parent = if reaper.is_launcher { Some(Parent::Launcher) } else { reaper.id.map(Parent::Known) };
        let Some(process) = self.processes.get_mut(&id) else { return };
        if let Some(parent) = parent.filter(|_| process.ancestry.parent == Parent::Unknown) {
            process.ancestry.parent = parent;
            self.by_state.unparented.remove(&id);
        }
        if let Some(maker) = reaper.id.and_then(|id| self.processes.get_mut(&id)) {
            maker.ancestry.has_children = true;
        }
    }

    /// Ends all processes of a pid namespace whose init was reaped: the kernel killed them before that (pid_namespaces(7)).
    fn end_namespace(&mut self, pid_ns: u32, at_ns: u64) {
        let all = self.by_state.inner.range((pid_ns, ProcessId(0))..=(pid_ns, ProcessId(u64::MAX)));
        for (_, id) in all.copied().collect::<Vec<_>>() {
            if self.processes.get(&id).is_some_and(Process::is_alive) {
                self.end(id, at_ns);
            }
        }
    }

    /// Finds the process that a REAPED record is about. The first of these rules that finds one decides:
    ///
    /// - the oldest unreaped process of that pid that the reaper may have reaped ([`Self::may_reap`]);
    /// - the youngest unreaped process of that pid, if the reaper is known and no tracer;
    /// - in another pid namespace, the process whose EXIT record fits best, if the reaper is no tracer;
    /// - the reaper's oldest child whose host pid is unknown: one that counts as live, if there is one.
    fn reaped_instance(&self, key: Key, reaper: Reaper, record: &ReapRecord) -> Option<ProcessId> {
        self.reaped_by_pid(key, reaper).or_else(|| self.reaped_inside(key.pid_ns, reaper, record))
    }

    /// Whether the reaper may have reaped the process: it is the parent, or the parent has ended or is unknown. A tracer may only have
    /// reaped its own children, although it also waits for those of others.
    fn may_reap(&self, reaper: Reaper, process: &Process) -> bool {
        match process.ancestry.parent {
            Parent::Known(parent) => {
                let has_ended = || self.processes.get(&parent).is_none_or(|parent| !parent.is_alive());
                Some(parent) == reaper.id || (!reaper.is_tracer && has_ended())
            }
            Parent::Launcher => reaper.is_launcher,
            Parent::Unknown => !reaper.is_tracer,
        }
    }

    /// Finds the reaped process by its pid: by the first two rules of [`Self::reaped_instance`].
    fn reaped_by_pid(&self, key: Key, reaper: Reaper) -> Option<ProcessId> {
        // The oldest first.
        let of_pid = self.by_state.by_pid.get(&key)?.iter().filter_map(|id| self.processes.get(id));
        let mut unreaped = of_pid.filter(|process| process.end.reaped.is_none());
        if let Some(process) = unreaped.clone().find(|process| self.may_reap(reaper, process)) {
            return Some(process.ids.id);
        }
        // The known parent seems to live, and is not the reaper. If the reaper is known and no tracer, it is the parent by now. The
        // earlier parent was killed, and no record has reported that. An unknown reaper can be a tracer.
        let is_known = reaper.is_launcher || reaper.id.is_some();
        let youngest = unreaped.next_back().filter(|_| is_known && !reaper.is_tracer);
        youngest.map(|process| process.ids.id)
    }

    /// Finds the reaped process among those of other pid namespaces than the reaper's (`pid_ns`): by the last two rules of
    /// [`Self::reaped_instance`].
    fn reaped_inside(&self, pid_ns: u32, reaper: Reaper, record: &ReapRecord) -> Option<ProcessId> {
        let inner = self.by_state.inner.iter().filter_map(|(_, id)| self.processes.get(id));
        let unreaped = inner.filter(|process| {
            let has_known_pid = process.ids.host_pid.is_some() || process.ids.key.pid_ns == pid_ns;
            process.end.reaped.is_none() && !has_known_pid
        });
        // A raw clone (bwrap) writes no record that names the parent of a namespace's init, so its EXIT record must tell which
        // one is meant.
        let candidates = unreaped.clone().filter(|process| self.may_reap(reaper, process));
        // The smaller the difference of the CPU times, the better an EXIT record fits.
        let fitting = candidates.filter_map(|process| {
            let difference_us = process.end.exit.as_ref()?.cpu_difference_us(record)?;
            Some((difference_us, process.ids.id))
        });
        if let Some((_, id)) = fitting.min().filter(|_| !reaper.is_tracer) {
            return Some(id);
        }
        let reaper = reaper.id?;
        unreaped
            .filter(|process| process.ancestry.parent == Parent::Known(reaper))
            .min_by_key(|process| (!process.is_alive(), process.ids.id))
            .map(|process| process.ids.id)
    }

    /// Whether a process of this pid was finalized a moment ago and still awaits its REAPED record, which the record at hand then
    /// is. From now on the process awaits none, so that the next record is about another process.
    fn take_awaited_reaping(&mut self, key: Key, now_ns: u64) -> bool {
        let waiting = self.recently_finalized.iter_mut().find(|finalized| {
            finalized.key == key
                && finalized.awaits_reaping
                && now_ns.saturating_sub(finalized.finalized_ns) < Tolerance::REAPED_AFTER_FINALIZED_NS
        });
        if let Some(finalized) = waiting {
            finalized.awaits_reaping = false;
            return true;
        }
        false
    }
}
