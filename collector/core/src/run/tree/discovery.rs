//! Applies to the tree what /proc and the samples show: processes, pids, programs, ends.

use super::process::{Image, UnreportedExec};
use super::tolerance::Tolerance;
use super::{ChildSeen, Key, Layer, Parent, Process, ProcessId, Program, Tree, UnreportedMemory};
use crate::model::exit_account::{ExitAccount, Remains};
use crate::model::ids::Target;

impl Tree {
    /// Adds a child that /proc shows, below a known process or as an orphan, and that the tree does not have. Returns its id. Notes
    /// what it used before the run, since the run's figures leave that out. Samples are frequent while it is young.
    pub(crate) fn found_in_proc(&mut self, child: &ChildSeen) -> ProcessId {
        let id = self.insert(child.key, child.parent, Layer::Scan, child.start_ns);
        self.by_state.young.insert(id);
        if let Some(before) = child.before {
            self.add_io_before(child.host_pid, before.blocks);
        }
        if let Some(process) = self.processes.get_mut(&id) {
            process.ids.host_pid = Some(child.host_pid);
            process.ids.pidfd_inode = child.pidfd_inode;
            process.before = child.before;
            process.set_earliest_start(child.earliest_start_ns);
        }
        // Until it is known to run something else, it may share its parent's memory.
        let parent = child.parent.known().and_then(|parent| self.processes.get(&parent));
        if let Some(group) = parent.map(|parent| parent.program.group) {
            self.join_group(id, group);
        }
        if child.key.pid_ns != self.context.pid_ns {
            self.index_host_pid(id, child.host_pid);
        }
        // Processes may have named it as their parent before.
        self.adopt(child.key, id);
        id
    }

    /// Keeps a child that /proc shows and the tree does not have. Another source may be about to report it: the connector, or an
    /// orphan's own records, which tell its parent. The child waits until all events up to its sighting are applied. If it were in the
    /// tree before, events about an earlier process of its pid would be taken for its own.
    pub(crate) fn found_ahead(&mut self, child: ChildSeen) {
        self.by_state.found_ahead.push(child);
    }

    /// Adds the children of [`Self::found_ahead`] that were seen by `complete_ns` and are still unknown. All records and events up to
    /// then are applied.
    pub(super) fn add_found_ahead(&mut self, complete_ns: u64) {
        let mut waiting = std::mem::take(&mut self.by_state.found_ahead);
        for child in waiting.extract_if(.., |child| child.seen_ns <= complete_ns) {
            let host_key = Key { pid_ns: self.context.pid_ns, pid: child.host_pid };
            let is_known = |key| self.knows(key, child.pidfd_inode, child.earliest_start_ns);
            // The connector reports it by its pid in the collector's namespace, its own records by the pid in its namespace.
            if !is_known(host_key) && !is_known(child.key) {
                self.found_in_proc(&child);
            }
        }
        self.by_state.found_ahead = waiting;
    }

    /// Forgets the children of [`Self::found_ahead`] that may be this process, which leaves the tree. Otherwise it would be added a
    /// second time.
    pub(super) fn forget_found_ahead(&mut self, process: &Process) {
        let has_its_pid = |child: &ChildSeen| match process.ids.host_pid {
            Some(host_pid) => host_pid == child.host_pid,
            None => process.ids.key == child.key,
        };
        let identity = process.identity();
        self.by_state.found_ahead.retain(|child| {
            !has_its_pid(child) || !identity.can_be(child.pidfd_inode, child.earliest_start_ns)
        });
    }

    /// Sets the pid that a process of another pid namespace has in the collector's, as /proc showed it. That also proves that the
    /// process is of the tree. A pid that is known already stays.
    pub(crate) fn set_host_pid(&mut self, id: ProcessId, host_pid: u32) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.ids.host_pid.is_none() {
            process.ids.host_pid = Some(host_pid);
            process.ids.is_proven = true;
            self.index_host_pid(id, host_pid);
        }
    }

    /// Makes a process findable by its pid in the collector's namespace.
    pub(super) fn index_host_pid(&mut self, id: ProcessId, pid: u32) {
        self.by_state.by_pid.entry(Key { pid_ns: self.context.pid_ns, pid }).or_default().push(id);
    }

    /// Applies what /proc shows at this time (CLOCK_MONOTONIC, nanoseconds) of the memory of a live process whose image has no record.
    /// The memory is its parent's, perhaps a copy of that, or its own. Memory of its own is left out where the connector reports execs:
    /// the exec's event will follow, with the exact time.
    pub(crate) fn set_unreported_image(&mut self, id: ProcessId, memory: UnreportedMemory, at_ns: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_own = memory == UnreportedMemory::Own;
        let was_forked = matches!(process.program.image, Image::Forked { .. });
        // The record of a fork child is about the copy of its parent, and not about a program that it exec'd since.
        let is_reported = process.program.has_record && !was_forked;
        let will_be_reported = process.ancestry.is_watched && is_own;
        if is_reported || will_be_reported {
            return;
        }
        let image = match memory {
            UnreportedMemory::Parents => Image::Borrowed,
            UnreportedMemory::Copy => Image::Unknown,
            UnreportedMemory::Own => Image::Uninstrumented,
        };
        if was_forked && is_own {
            // The exec replaced its copy of its parent's memory. A START record that still follows replaces this image.
            let peak = process.program.exec_peak_bytes;
            process.change_image(Some(&mut self.intervals), image, at_ns, peak);
            process.name.args = None;
        } else {
            process.program.image = image;
            // The next sample estimates anew what the processes of the tree share.
            self.groups.note_image_kind();
        }
        // A program of its own shares no anonymous pages with its parent, so it leaves their image group. A child of the launcher stays:
        // all others of its group are its own fork children.
        let is_launchers_child = process.ancestry.parent == Parent::Launcher;
        let group = process.program.group;
        let has_relatives = self.groups.get(group).is_some_and(|group| group.members.len() > 1);
        if is_own && has_relatives && !is_launchers_child {
            let own = self.groups.new_id();
            self.join_group(id, own);
        }
    }

    /// The new live processes that only records name. A record can claim any pid, also that of a process outside the tree.
    pub fn memberships_to_check(&self) -> impl Iterator<Item = Target> {
        let unproven = self.by_state.unproven.iter().filter_map(|id| self.processes.get(id));
        unproven.filter(|process| process.is_alive() && !process.ids.is_proven).filter_map(Process::target)
    }

    /// Applies whether the pid of a process of [`Self::memberships_to_check`] is that of a process of the tree. If not, the
    /// process ends now, and nothing is read under that pid.
    pub(crate) fn prove(&mut self, id: ProcessId, is_member: bool, now_ns: u64) {
        self.by_state.unproven.remove(&id);
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.is_alive()) else { return };
        if is_member {
            process.ids.is_proven = true;
        } else {
            process.ids.host_pid = None;
            self.end(id, now_ns);
        }
    }

    /// Whether something other than a record shows that the process with this host pid belongs to the tree.
    pub fn is_proven(&self, pid: u32) -> bool {
        let id = self.youngest_alive(Key { pid_ns: self.context.pid_ns, pid });
        id.and_then(|id| self.processes.get(&id)).is_some_and(|process| process.ids.is_proven)
    }

    /// How many live processes of other pid namespaces are known by records only, so that /proc can't be read for them.
    pub(in crate::run) fn unseen(&self) -> usize {
        let inner = self.by_state.inner.iter().filter_map(|(_, id)| self.processes.get(id));
        inner.filter(|process| process.is_alive() && process.ids.host_pid.is_none()).count()
    }

    /// Whether [`Self::unseen`] can be `count` or more. This is cheap, since it does not look at the processes.
    pub(in crate::run) fn may_have_unseen(&self, count: usize) -> bool {
        self.by_state.inner.len() >= count
    }

    /// Notes that a process was dead at `at_ns`: a zombie, or not found. Its records may not all have been applied, so it ends
    /// at a [`Tree::finalize`] that has all records up to this time. `gone_ns` is when it was not found; `None`: it was a
    /// zombie. Times are CLOCK_MONOTONIC nanoseconds. The first of each counts. [`Self::ends_to_read`] no longer lists the process.
    pub(crate) fn observe_end(&mut self, id: ProcessId, at_ns: u64, gone_ns: Option<u64>) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.lifetime.seen_dead_ns.get_or_insert(at_ns);
            self.by_state.seen_dead.insert(id);
            process.lifetime.gone_ns = process.lifetime.gone_ns.or(gone_ns);
            self.by_state.kernel_ends.remove(&id);
        }
    }

    /// Notes that the sample of this time, CLOCK_MONOTONIC nanoseconds, found a process dead. The first such sample counts. At its
    /// time, [`Process::memory_intervals`] divides the process's memory.
    pub(crate) fn observe_missing(&mut self, id: ProcessId, at_ns: u64) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.lifetime.missing_ns.get_or_insert(at_ns);
        }
    }

    /// Notes that a process was no longer in /proc at this time, CLOCK_MONOTONIC nanoseconds. If it counts as live, it ends at a
    /// [`Tree::finalize`] that has all records up to this time.
    pub fn observe_absence(&mut self, id: ProcessId, at_ns: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.lifetime.gone_ns.get_or_insert(at_ns);
        if process.is_alive() {
            process.lifetime.seen_dead_ns.get_or_insert(at_ns);
            self.by_state.seen_dead.insert(id);
        }
    }

    /// Stores the figures of a zombie, less what it had used before the run. They are final: none of its threads can run any more.
    pub(crate) fn note_remains(&mut self, id: ProcessId, remains: &Remains) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.cpu.is_clock_final = true;
        let remains = process.before.map_or(*remains, |before| before.of_remains(remains));
        let observed = &mut process.observed;
        observed.cpu_ns = Some(remains.cpu_ns);
        observed.counts = remains.counts;
    }

    /// Stores the kernel's account of a process's exit (taskstats), without CPU time and peak from before the run. If the process's end was
    /// applied before, queues the memory that only the account shows for the next sample.
    pub(crate) fn note_account(&mut self, id: ProcessId, account: ExitAccount) {
        let tick_us = self.context.tick_us;
        if let Some(process) = self.processes.get_mut(&id) {
            let account = process.before.map_or(account, |before| before.of_account(account, tick_us));
            let peak_rss_bytes = process.peak_of_run(account.peak_rss_bytes);
            process.end.account = Some(ExitAccount { peak_rss_bytes, ..account });
            self.intervals.extend(process.take_late_memory(self.context.page));
        }
    }

    /// Finds the process that the kernel's account of an exit is about, by the pid in the collector's namespace. `start_ns`,
    /// CLOCK_MONOTONIC nanoseconds, is when its last thread started, or somewhat later. The last process of that pid that had
    /// started by then is meant, unless it had ended long before.
    pub fn accounted(&self, pid: u32, start_ns: u64) -> Option<ProcessId> {
        let of_pid = self.by_state.by_pid.get(&Key { pid_ns: self.context.pid_ns, pid })?;
        let mut latest_first = of_pid.iter().rev().filter_map(|id| self.processes.get(id));
        let latest_start_ns = start_ns.saturating_add(Tolerance::START_ROUNDING_NS);
        let process = latest_first.find(|process| process.lifetime.start_ns <= latest_start_ns)?;
        let end_ns = process.lifetime.end_ns.or(process.lifetime.seen_dead_ns).unwrap_or(u64::MAX);
        (start_ns <= end_ns.saturating_add(Tolerance::ACCOUNT_READ_LATE_NS)).then_some(process.ids.id)
    }

    /// Stores the wait status that the kernel kept for a pidfd.
    pub(crate) fn note_status(&mut self, id: ProcessId, status: i32) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.end.kept_status = Some(status);
        }
    }

    /// Notes that a live process has exec'd by this time (CLOCK_MONOTONIC, nanoseconds), and no START record came. Only for runs
    /// in which the connector does not report execs.
    pub(crate) fn observe_exec(&mut self, id: ProcessId, at_ns: u64) {
        if self.processes.get(&id).is_some_and(Process::is_alive) {
            self.note_exec(id, at_ns);
        }
    }

    /// Notes that a process has exec'd at `at_ns`, CLOCK_MONOTONIC nanoseconds. Its program has not reported yet, and is to be
    /// read.
    pub(super) fn note_exec(&mut self, id: ProcessId, at_ns: u64) {
        // If the program before has not reported either, it was uninstrumented.
        self.confirm_uninstrumented(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        // A sample after the exec can have the peak of either program, which then counts for neither.
        let is_new_program_sampled = process.observed.at_ns > at_ns;
        let previous_peak_bytes = process.sampled_peak().filter(|_| !is_new_program_sampled);
        if is_new_program_sampled {
            process.observed.forget_peak();
        }
        process.program.unreported_exec = Some(UnreportedExec { at_ns, program: None, previous_peak_bytes });
        self.by_state.unreported.insert(id);
        self.by_state.young.insert(id);
    }

    /// Stores what /proc shows of the program of a process. A program that has written a START is known by that record, so the reading
    /// is left out. A reading after the program's end is also left out, if another was made while it ran.
    pub(crate) fn set_program(&mut self, id: ProcessId, seen: Program) {
        let Some(process) = self.processes.get(&id) else { return };
        if seen.is_over() && process.was_read_before(&seen) {
            return;
        }
        if let Some(command) = &seen.command {
            // A helper (of gpu-track itself) is in no figure. Its START record, which also shows that, may come after the next sample.
            self.leave_out_helper(id, command);
        }
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.program.other_user = seen.other_user.or(process.program.other_user);
        let is_uninstrumented = process.program.image == Image::Uninstrumented;
        match &mut process.program.unreported_exec {
            // Kept aside: the START record of the program can still come, and counts then.
            Some(exec) => exec.program = Some(seen),
            // No record is of the present program: the process has written none, or its earlier programs alone did.
            None if !process.program.has_record || is_uninstrumented => process.take_seen_program(seen),
            // A START record has named the present program.
            None => {}
        }
    }

    /// The live processes that were made, or exec'd, by `by_ns` (CLOCK_MONOTONIC, nanoseconds), have written no record
    /// since, and were not read since. Later ones still have time to write their record.
    pub fn programs_to_read(&self, by_ns: u64) -> impl Iterator<Item = &Process> {
        let unread = self.by_state.unreported.iter().filter_map(|id| self.processes.get(id));
        unread.filter(move |process| {
            process.is_alive() && process.awaits_record() && process.program_start_ns() <= by_ns
        })
    }

    /// Notes that the program of one of [`Self::programs_to_read`] was read. It still has time to write a START record. If the
    /// process has exec'd, [`Self::overdue_starts`] has it when that time is over.
    pub(in crate::run) fn program_was_read(&mut self, id: ProcessId) {
        if self.by_state.unreported.remove(&id) {
            self.by_state.unconfirmed.insert(id);
        }
    }

    /// The live processes whose time to write a START record is over at `now_ns` (CLOCK_MONOTONIC). Their programs are read
    /// once more before [`Self::tick`] concludes that they are uninstrumented.
    pub fn overdue_starts(&self, now_ns: u64) -> impl Iterator<Item = &Process> {
        let unconfirmed = self.by_state.unconfirmed.iter().filter_map(|id| self.processes.get(id));
        unconfirmed.filter(move |process| {
            let is_awaited = process.is_alive() && process.program.unreported_exec.is_some();
            is_awaited && !process.may_still_report(now_ns)
        })
    }

    /// Does what time alone decides, at `now_ns`, CLOCK_MONOTONIC nanoseconds. A program that should have written its START record
    /// by now is uninstrumented. A process leaves the lists of what is still to be read or proven when that is known, or when it has ended.
    pub fn tick(&mut self, now_ns: u64) {
        self.confirm_overdue(now_ns);
        self.drop_answered(now_ns);
    }

    /// Concludes that programs whose time to write a START record is over at `now_ns` (CLOCK_MONOTONIC) are uninstrumented. Only
    /// programs that may still report stay on the list of unconfirmed ones.
    fn confirm_overdue(&mut self, now_ns: u64) {
        let overdue: Vec<ProcessId> = self.overdue_starts(now_ns).map(|process| process.ids.id).collect();
        overdue.into_iter().for_each(|id| self.confirm_uninstrumented(id));
        let may_still_report =
            |id: &ProcessId| self.processes.get(id).is_some_and(|process| process.may_still_report(now_ns));
        self.by_state.unconfirmed.retain(may_still_report);
    }

    /// Takes processes off the lists of `ByState` whose members are still to be read or reported, once that is done or no longer matters.
    /// `now_ns` is CLOCK_MONOTONIC.
    fn drop_answered(&mut self, now_ns: u64) {
        let processes = &self.processes;
        let is_alive = |id: &ProcessId| processes.get(id).is_some_and(Process::is_alive);
        let awaits_record = |id: &ProcessId| processes.get(id).is_some_and(Process::awaits_record);
        self.by_state.unreported.retain(|id| is_alive(id) && awaits_record(id));
        self.by_state.kernel_ends.retain(is_alive);
        self.by_state.young.retain(|id| {
            processes.get(id).is_some_and(|process| {
                let age_ns = now_ns.saturating_sub(process.program_start_ns());
                process.is_alive() && !process.is_instrumented() && age_ns < Tolerance::YOUNG_NS
            })
        });
        self.by_state.unproven.retain(is_alive);
    }

    /// Whether a live process runs an uninstrumented program.
    pub fn has_uninstrumented(&self) -> bool {
        let mut alive = self.by_state.alive.iter().filter_map(|id| self.processes.get(id));
        alive.any(|process| process.program.image == Image::Uninstrumented)
    }

    /// When the youngest program began that has not reported and is younger than [`Tolerance::YOUNG_NS`]. Programs that began
    /// after `by_ns` are left out. `None`: there is none. Times are CLOCK_MONOTONIC nanoseconds.
    pub fn youngest_unreported_ns(&self, by_ns: u64) -> Option<u64> {
        let young = self.by_state.young.iter().filter_map(|id| self.processes.get(id));
        young.map(Process::program_start_ns).filter(|start_ns| *start_ns <= by_ns).max()
    }

    /// Concludes that the program that a process exec'd is uninstrumented, and counts it: it has written no record, and has ended
    /// or had enough time. Its image and image group begin with the exec. It is named by what /proc showed since the exec. Changes
    /// nothing without an unreported exec.
    pub(super) fn confirm_uninstrumented(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(exec) = process.program.unreported_exec.clone() else { return };
        self.counts.uninstrumented_programs += 1;
        let peak = process.program.exec_peak_bytes.or(exec.previous_peak_bytes);
        process.change_image(Some(&mut self.intervals), Image::Uninstrumented, exec.at_ns, peak);
        process.program.unreported_exec = None;
        // The first program of the command's first process is the command, which the launcher named.
        let is_named =
            process.ids.is_main && !process.program.has_record && !process.program.had_uninstrumented_image;
        if !is_named {
            process.name = super::process::Name::unseen();
        }
        process.take_seen_program(exec.program.unwrap_or_default());
        let group = self.groups.new_id();
        self.join_group(id, group);
    }
}
