//! How processes enter the tree, move between image groups, end, and leave the tree.

use std::sync::Arc;

use super::before::IoBefore;
use super::process::{Ancestry, Ids};
use super::tolerance::Tolerance;
use super::{Image, ImageGroup, Key, Layer, LiveInterval, Parent, Process, ProcessId, Tree};
use crate::model::attached::Attached;

impl Tree {
    /// Adds the command's first process, which the launcher reported by its pid and start (CLOCK_MONOTONIC nanoseconds). If
    /// another source has reported the process before, marks it as the first one. `command`: base name of the program that it
    /// execs.
    pub fn set_main(&mut self, pid: u32, start_ns: u64, command: &str) {
        let key = Key { pid_ns: self.context.pid_ns, pid };
        // A collector that resumes an older state is told of the command again.
        let known = self.main.or_else(|| self.youngest_alive(key));
        let id = known.unwrap_or_else(|| self.insert(key, Parent::Launcher, Layer::Subreaper, start_ns));
        self.main = Some(id);
        // The launcher carries no shim, so no PROGRAM record tells the command's arguments.
        self.announce_command(key, start_ns);
        // Its children and its exec may have been reported before it was.
        self.adopt(key, id);
        self.apply_early_exec(id, key);
        if let Some(process) = self.processes.get_mut(&id) {
            process.ids.is_main = true;
            process.ids.is_proven = true;
            process.lifetime.set_start(start_ns);
            // Before the launcher made it, it used no CPU time.
            process.cpu.counted_at_ns = process.cpu.counted_at_ns.max(start_ns);
            if !process.program.has_record {
                process.name.command = Arc::from(command);
            }
        }
    }

    /// Adds the process that the run attached to. What it used before the attach does not count. `command`: base name of its
    /// program.
    pub(crate) fn attach(&mut self, attached: &Attached, command: &str) {
        let id = self.insert(attached.key, Parent::Unknown, Layer::Scan, attached.before.at_ns);
        self.main = Some(id);
        // Early execs are kept for a command that the launcher starts, and this launcher starts none.
        self.early_execs.clear();
        // From now on, block I/O from before the attach is summed up, to be subtracted from the run's.
        self.io_before = Some(IoBefore::default());
        self.add_io_before(attached.pid, attached.before.blocks);
        if let Some(process) = self.processes.get_mut(&id) {
            process.ids.is_main = true;
            process.ids.host_pid = Some(attached.pid);
            process.ids.pidfd_inode = attached.pidfd_inode;
            process.name.command = Arc::from(command);
            process.before = Some(attached.before);
            // Its parent is not of the run, so its memory is no copy of another process's of the run. It wrote no START.
            process.program.image = Image::Uninstrumented;
            self.groups.note_image_kind();
        }
        if attached.key.pid_ns != self.context.pid_ns {
            self.index_host_pid(id, attached.pid);
        }
        // No event will tell which program it runs.
        self.by_state.unreported.insert(id);
        // The connector may have reported children of it already.
        self.adopt(attached.key, id);
    }

    /// Adds a live process that the tree does not have, in an image group of its own. `start_ns` is CLOCK_MONOTONIC. Returns
    /// its id. If the tree has too many ended processes of that pid by now, the oldest is finalized.
    pub(super) fn insert(&mut self, key: Key, parent: Parent, found_by: Layer, start_ns: u64) -> ProcessId {
        let id = ProcessId(self.next_id);
        self.next_id += 1;
        self.counts.created += 1;
        let group = self.groups.new_id();
        if let Some(parent) = parent.known().and_then(|parent| self.processes.get_mut(&parent)) {
            parent.ancestry.has_children = true;
        }
        let ids = self.ids_of_new(id, key, parent, found_by);
        let ancestry = Ancestry {
            parent,
            parent_pid: 0,
            uninstrumented_ancestor: self.uninstrumented_ancestor(parent),
            was_uninstrumented_ancestor: false,
            found_by,
            has_children: false,
            waits: 0,
            is_watched: false,
        };
        let mut process = Process::new(ids, ancestry, group, start_ns);
        // If it writes no FORK record, no record has the peak of its copy of the parent's memory.
        process.program.had_unread_copy = self.may_fork_without_record(parent);
        self.processes.insert(process);
        self.list_new(&ids, parent, found_by);
        self.finalize_oldest_of_pid(key, start_ns);
        self.by_state.alive.push(id);
        self.groups.add_new(id, group);
        // Its program is not known yet. But what a helper, a process of gpu-track itself, starts is a helper, too.
        let unknown_command = "";
        self.leave_out_helper(id, unknown_command);
        id
    }

    /// Makes the ids of a new process. Its only known pid is that of `key`.
    fn ids_of_new(&self, id: ProcessId, key: Key, parent: Parent, found_by: Layer) -> Ids {
        let task = self.task_of_parent(parent);
        Ids {
            id,
            key,
            host_pid: (key.pid_ns == self.context.pid_ns).then_some(key.pid),
            fork_number: None,
            pidfd_inode: 0,
            clock_skew_ns: 0,
            is_main: false,
            // A record (these two layers) proves nothing: any process of the tree can write one that names this pid.
            is_proven: !matches!(found_by, Layer::Preload | Layer::Wait),
            is_helper: false,
            rank: parent.known().and_then(|parent| self.processes.get(&parent)?.ids.rank),
            task,
            born_in: task,
            ran_before_task: false,
            ran_script: false,
        }
    }

    /// Makes a new process findable by its pid. Also puts it on a list for each thing that is unknown of it: parent, pid in the
    /// collector's namespace, whether it writes records, whether it is of the tree.
    fn list_new(&mut self, ids: &Ids, parent: Parent, found_by: Layer) {
        let &Ids { id, key, host_pid, .. } = ids;
        let by_state = &mut self.by_state;
        if parent == Parent::Unknown {
            by_state.unparented.insert(id);
        }
        if host_pid.is_none() {
            by_state.inner.insert((key.pid_ns, id));
        }
        if found_by == Layer::Connector {
            by_state.known_by_kernel_alone.insert(id);
        }
        // A process that only a REAPED record (`Layer::Wait`) names has ended, so nothing is read under its pid.
        if found_by == Layer::Preload && host_pid.is_some() {
            by_state.unproven.insert(id);
        }
        by_state.by_pid.entry(key).or_default().push(id);
    }

    /// Finalizes the oldest process of a pid, if it has ended and the tree has more than [`Tolerance::MOST_OF_ONE_PID`] processes
    /// of that pid: ended processes that await a REAPED record must not add up without bound. `at_ns`: when the newest process of
    /// that pid started, CLOCK_MONOTONIC nanoseconds.
    fn finalize_oldest_of_pid(&mut self, key: Key, at_ns: u64) {
        let Some(of_pid) = self.by_state.by_pid.get(&key) else { return };
        let oldest = of_pid.first().copied().filter(|_| of_pid.len() > Tolerance::MOST_OF_ONE_PID);
        let has_ended = |id: &ProcessId| self.processes.get(id).is_some_and(|process| !process.is_alive());
        if let Some(oldest) = oldest.filter(has_ended) {
            let replaced = self.finalize_one(oldest, at_ns).into_iter().collect();
            self.replace_uninstrumented_ancestors(&replaced);
        }
    }

    /// Moves a process to another image group: live processes that may share anonymous pages. Does nothing for a helper, a process
    /// of gpu-track itself, which is in no group.
    pub(super) fn join_group(&mut self, id: ProcessId, group: ImageGroup) {
        let process = self.processes.get(&id).filter(|process| !process.ids.is_helper);
        let Some(old) = process.map(|process| process.program.group) else { return };
        self.groups.remove(id, old);
        self.groups.add_from_other_group(id, group);
        if let Some(process) = self.processes.get_mut(&id) {
            process.program.group = group;
        }
    }

    /// Ends a process at `at_ns`, CLOCK_MONOTONIC nanoseconds: it leaves the live processes and its image group. It stays in the
    /// tree until it is finalized. What it used since its last sample is queued for the next sample. A program that has written
    /// no START by then counts as uninstrumented.
    pub(super) fn end(&mut self, id: ProcessId, at_ns: u64) {
        self.confirm_uninstrumented(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        // An end before the known start moves the start, or counts as at the start if that can't be earlier.
        process.note_alive(at_ns);
        let end_ns = at_ns.max(process.lifetime.start_ns);
        process.lifetime.end_ns = Some(end_ns);
        let group = process.program.group;
        self.queue_unsampled_use(id, end_ns);
        self.groups.remove(id, group);
        self.no_longer_alive(id);
        self.by_state.ended.push(id);
    }

    /// Queues what a process that ended at `end_ns` (CLOCK_MONOTONIC nanoseconds) used since its last sample, as intervals for
    /// the next sample: one of the process with its CPU time, the others of its memory. Notes what was queued, so that
    /// records that come later queue only what they add.
    fn queue_unsampled_use(&mut self, id: ProcessId, end_ns: u64) {
        let (tick_us, page_bytes) = (self.context.tick_us, self.context.page);
        let Some(process) = self.processes.get_mut(&id).filter(|process| !process.ids.is_helper) else {
            return;
        };
        // A sample can see a process after its EXIT record. Then the process lived until that sample.
        let until_ns = end_ns.max(process.observed.at_ns);
        let cpu_ns = process.own_usage(tick_us).usage.cpu_us().saturating_mul(1000);
        let unsampled_cpu_ns = cpu_ns.saturating_sub(process.cpu.counted_cpu_ns);
        self.intervals.push(LiveInterval {
            counted_at_ns: process.cpu.counted_at_ns,
            cpu_ns: i64::try_from(unsampled_cpu_ns).unwrap_or(i64::MAX),
            ..process.process_interval(until_ns)
        });
        // Samples may have counted more than its usage has by now. `uncounted_interval` corrects that in the end.
        process.cpu.counted_cpu_ns = process.cpu.counted_cpu_ns.max(cpu_ns);
        let memory = process.contribution_since_sample(page_bytes);
        self.intervals.extend(process.memory_intervals(until_ns, memory));
        process.lifetime.queued_memory = Some(memory);
    }

    /// Ends the live process with this pid, if there is one: a new process has the pid at `at_ns`, CLOCK_MONOTONIC nanoseconds.
    /// The old one ended by then, or earlier if the connector says so, and it is gone from /proc.
    pub(super) fn end_stale(&mut self, key: Key, at_ns: u64) {
        if let Some(old) = self.youngest_alive(key) {
            let exit = self.processes.get(&old).and_then(|process| process.end.kernel_exit);
            self.end(old, exit.map_or(at_ns, |exit| exit.at_ns.min(at_ns)));
            if let Some(process) = self.processes.get_mut(&old) {
                process.lifetime.gone_ns = Some(at_ns);
            }
        }
    }

    /// Takes a process off the list of live processes, and off that of live ones which were found dead.
    pub(super) fn no_longer_alive(&mut self, id: ProcessId) {
        // Ids ascend, and so does the list.
        if let Ok(at) = self.by_state.alive.binary_search(&id) {
            self.by_state.alive.remove(at);
        }
        self.by_state.seen_dead.remove(&id);
    }

    /// Notes that the process wrote a record, so the connector is not the only source that knows it.
    pub(super) fn note_record(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.program.has_record = true;
        }
        self.by_state.known_by_kernel_alone.remove(&id);
    }

    /// Removes a process as if it had never been in the tree. Another process of the tree, or a count, stands for it.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.remove(&id) {
            self.drop_from_lists(&process);
            // If /proc showed it too, it would be added again.
            self.forget_found_ahead(&process);
            self.by_state.ended.retain(|other| *other != id);
            if process.ids.is_helper {
                self.counts.helpers -= 1;
            } else {
                self.counts.created -= 1;
            }
        }
    }

    /// Takes a process that is no longer in the tree off its lists and indices. Lists that are not here may still name
    /// it: their users leave out ids that are not in the tree.
    pub(super) fn drop_from_lists(&mut self, process: &Process) {
        let id = process.ids.id;
        if process.ancestry.parent == Parent::Unknown {
            self.by_state.unparented.remove(&id);
        }
        if process.is_alive() {
            self.groups.remove(id, process.program.group);
            self.no_longer_alive(id);
        }
        let by_state = &mut self.by_state;
        by_state.inner.remove(&(process.ids.key.pid_ns, id));
        by_state.known_by_kernel_alone.remove(&id);
        by_state.could_not_exec.remove(&id);
        // With its init, a pid namespace ends. `forks` has none of the collector's namespace.
        if process.ids.key.pid == 1 {
            self.forks.remove(&process.ids.key.pid_ns);
        }
        let host_key = process.ids.host_pid.map(|pid| Key { pid_ns: self.context.pid_ns, pid });
        for key in [Some(process.ids.key), host_key].into_iter().flatten() {
            if let Some(of_pid) = by_state.by_pid.get_mut(&key) {
                of_pid.retain(|other| *other != id);
                if of_pid.is_empty() {
                    by_state.by_pid.remove(&key);
                }
            }
        }
    }
}
