//! What START, FORK, EXEC, EXIT, SPAWN_FAILED and PROGRAM records do to the tree.

use std::sync::Arc;

use gpu_track_abi::record::{Event, Origin, SAME_USER};
use gpu_track_abi::task::SCRIPT_OF_NEXTFLOW;

use super::contribution::Contribution;
use super::namespaces::{MatchEvidence, MatchQuery};
use super::process::{Image, Name, Process};
use super::program::unshared_after_fork;
use super::records::{ExitRecord, ReapRecord, bytes};
use super::{Key, Layer, LiveInterval, Parent, ProcessId, TaskId, Tree};
use crate::model::command::command_of_record;
use crate::run::elsewhere::recorded_arguments;

/// The writer of a START or FORK record, and the time of the record.
struct Writer {
    /// Its pid.
    key: Key,
    /// Its parent's pid, in the namespace in which the record names it.
    parent: Key,
    /// Inode of a pidfd of it; 0: unknown.
    pidfd_inode: u64,
    /// See [`Tree::clock_skew`].
    clock_skew_ns: i64,
    /// When it wrote the record, by the collector's CLOCK_MONOTONIC.
    at_ns: u64,
}

impl Writer {
    /// Makes the query for the process that wrote the record, by this evidence.
    fn query(&self, evidence: MatchEvidence) -> MatchQuery {
        MatchQuery {
            key: self.key,
            parent: self.parent,
            pidfd_inode: self.pidfd_inode,
            at_ns: self.at_ns,
            evidence,
        }
    }
}

/// A process that was made to execute a program has done so within this, nanoseconds.
const LONGEST_EXEC_NS: u64 = 50_000_000;

impl Tree {
    /// Applies one event record. `origin` names the process that wrote it, and the time. `now_ns` is CLOCK_MONOTONIC.
    pub fn apply(&mut self, origin: &Origin, event: &Event, now_ns: u64) {
        let key = Key { pid_ns: origin.pid_ns, pid: origin.pid };
        match *event {
            Event::Start { realtime_ns, pidfd_inode, max_rss_kib, ref names, rank, ref task } => {
                // START names the parent by its pid in the writer's pid namespace. A parent outside of that has the pid 0 there.
                let writer = self.writer(origin, key.pid_ns, pidfd_inode, realtime_ns, now_ns);
                let command = command_of_record(names);
                let id = self.start(&writer, bytes(max_rss_kib), &command);
                let process = self.processes.get(&id);
                let from = process.map_or(TaskId::WORKFLOW, |process| process.ids.task);
                // A process that was made for the task has its CPU time from its start on: that of the exec, too. A copy of a shell can have
                // done something else before.
                let is_made_for_it = |process: &&Process| {
                    let before_ns = writer.at_ns.saturating_sub(process.lifetime.start_ns);
                    !process.program.follows_another && before_ns <= LONGEST_EXEC_NS
                };
                let made = process.filter(is_made_for_it);
                let begin_ns = made.map_or(writer.at_ns, |process| process.lifetime.start_ns);
                let has_failed = |id| Some(self.processes.get(&id)?.exit_status().is_failure());
                let entered = self.tasks.enter((id, from), task, begin_ns, has_failed);
                if let Some(process) = self.processes.get_mut(&id) {
                    if rank.is_of_several() {
                        process.ids.rank = Some(rank);
                    }
                    let shell = command.strip_suffix(SCRIPT_OF_NEXTFLOW);
                    process.ids.ran_script |= shell.is_some_and(|shell| shell.ends_with(' '));
                    if entered != process.ids.task {
                        process.ids.task = entered;
                        process.ids.ran_before_task = process.program.follows_another;
                    }
                }
            }
            Event::Fork { realtime_ns, pidfd_inode, max_rss_kib, parent_pid_ns } => {
                let writer = self.writer(origin, parent_pid_ns, pidfd_inode, realtime_ns, now_ns);
                self.fork(&writer, bytes(max_rss_kib));
            }
            Event::Exec { vm_hwm_kib } => self.note_exec_peak(key, bytes(vm_hwm_kib)),
            Event::Exit { status, vm_hwm_kib, own, children } => {
                let record = ExitRecord {
                    status,
                    vm_hwm_bytes: (vm_hwm_kib > 0).then_some(bytes(vm_hwm_kib)),
                    own_usage: own,
                    children_usage: children,
                    parent_pid: origin.parent,
                    flags: origin.flags,
                };
                self.exit(key, origin, record, now_ns);
            }
            Event::Reaped { child, status, reaper_max_rss_kib, usage, clock_ns } => {
                // The usage includes the child's own CPU time, so a clock above that is a false claim.
                let most_ns = usage.cpu_us().saturating_mul(1000);
                let clock_ns = Some(clock_ns.min(most_ns)).filter(|_| clock_ns > 0);
                let maker_max_rss_bytes = bytes(reaper_max_rss_kib);
                let record = ReapRecord { status, usage, clock_ns, maker_max_rss_bytes };
                self.reaped(origin, child, record, now_ns);
            }
            Event::SpawnFailed { .. } => {
                let parent = self.youngest_alive(key);
                self.spawn_failed(parent, self.time_of(parent, origin, now_ns));
            }
            Event::Program { child, user, ref arguments } => {
                let pid = if child == 0 { origin.pid } else { child };
                let user = Some(user).filter(|user| *user != SAME_USER);
                let args = recorded_arguments(arguments);
                let at_ns = self.time_of(self.youngest_alive(key), origin, now_ns);
                self.announce(Key { pid_ns: origin.pid_ns, pid }, args, user, at_ns);
            }
        }
    }

    /// Describes a record's writer. `parent_pid_ns`: the pid namespace in which the record names the parent.
    fn writer(
        &self,
        origin: &Origin,
        parent_pid_ns: u32,
        pidfd_inode: u64,
        realtime_ns: u64,
        now_ns: u64,
    ) -> Writer {
        let clock_skew_ns = self.clock_skew(origin.monotonic_ns, realtime_ns, now_ns);
        Writer {
            key: Key { pid_ns: origin.pid_ns, pid: origin.pid },
            parent: Key { pid_ns: parent_pid_ns, pid: origin.parent },
            pidfd_inode,
            clock_skew_ns,
            at_ns: self.clamp_time(origin.monotonic_ns, clock_skew_ns, now_ns),
        }
    }

    /// What must be added to times in a process's records to convert them to the collector's clock, nanoseconds. It is 0, unless
    /// the record's time is impossible by the collector's clock, as in a time namespace.
    fn clock_skew(&self, monotonic_ns: u64, realtime_ns: u64, now_ns: u64) -> i64 {
        let context = &self.context;
        if (context.session_monotonic_ns..=now_ns).contains(&monotonic_ns) {
            return 0;
        }
        // CLOCK_REALTIME is the same in all time namespaces, so it dates the record by the collector's clock.
        let since_start = i128::from(realtime_ns) - i128::from(context.session_realtime_ns);
        let collectors_ns = i128::from(context.session_monotonic_ns) + since_start;
        i64::try_from(collectors_ns - i128::from(monotonic_ns)).unwrap_or(0)
    }

    /// Converts a time of a record to the collector's clock. No record is from before the session, or from later than now.
    fn clamp_time(&self, monotonic_ns: u64, skew_ns: i64, now_ns: u64) -> u64 {
        // `min`, since `clamp` panics if its bounds are the wrong way round.
        let start = self.context.session_monotonic_ns.min(now_ns);
        monotonic_ns.saturating_add_signed(skew_ns).clamp(start, now_ns)
    }

    /// Converts the time of a record that this process wrote to the collector's clock, CLOCK_MONOTONIC nanoseconds. If the writer
    /// is not known (`id` is `None`), its clock is taken to be the collector's.
    pub(super) fn time_of(&self, id: Option<ProcessId>, origin: &Origin, now_ns: u64) -> u64 {
        let process = id.and_then(|id| self.processes.get(&id));
        self.clamp_time(origin.monotonic_ns, process.map_or(0, |process| process.ids.clock_skew_ns), now_ns)
    }

    /// Finds the live process that wrote a record: it has the writer's pid, and the same pidfd if both are known. `None`: the
    /// tree does not have the writer. A live process of that pid is another process then.
    fn live_writer(&self, writer: &Writer) -> Option<ProcessId> {
        let id = self.youngest_alive(writer.key)?;
        let process = self.processes.get(&id)?;
        // The connector reported its end: a record that comes now under its pid is another process's.
        if process.end.kernel_exit.is_some() {
            return None;
        }
        let known = process.ids.pidfd_inode;
        (known == 0 || writer.pidfd_inode == 0 || known == writer.pidfd_inode).then_some(id)
    }

    /// Applies a START: the process has loaded a new image, which replaces the one before and has an image group of its own. Adds
    /// the process if it is not known. `inherited`: ru_maxrss that exec passed on, bytes. Returns the process's
    /// id.
    fn start(&mut self, writer: &Writer, inherited: u64, command: &str) -> ProcessId {
        let (key, at_ns) = (writer.key, writer.at_ns);
        let known =
            self.live_writer(writer).or_else(|| self.match_in_namespace(&writer.query(MatchEvidence::Exec)));
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at_ns);
            let parent = self.parent_of(writer.parent);
            self.insert(key, parent, Layer::Preload, at_ns)
        });
        self.note_first_of_command(id);
        self.note_maker_of_orphan(id, writer.parent);
        // If it is a program of gpu-track itself, no figure of the run has it.
        self.leave_out_helper(id, command);
        let group = self.groups.new_id();
        self.join_group(id, group);
        let Some(process) = self.processes.get_mut(&id) else { return id };
        // A process that was added just now had no image before.
        let intervals = known.is_some().then_some(&mut self.intervals);
        process.set_loaded(writer, inherited, command, intervals);
        self.note_record(id);
        id
    }

    /// If /proc has shown a process as a child of the launcher, though it is not the command, it is an orphan. `maker` is the parent
    /// that its START names, which has ended since: notes that parent. Notes nothing if START names the launcher, too, since the parent
    /// had ended by then. Notes nothing if no process of the named pid is known, or if START names its own writer, which is false.
    fn note_maker_of_orphan(&mut self, id: ProcessId, maker: Key) {
        let is_orphan =
            |process: &Process| process.ancestry.parent == Parent::Launcher && !process.ids.is_main;
        let maker = self.parent_of(maker);
        if maker.known().is_none_or(|maker| maker == id) || !self.processes.get(&id).is_some_and(is_orphan) {
            return;
        }
        let uninstrumented_ancestor = self.uninstrumented_ancestor(maker);
        if let Some(process) = self.processes.get_mut(&id) {
            (process.ancestry.parent, process.ancestry.uninstrumented_ancestor) =
                (maker, uninstrumented_ancestor);
            self.inherit_task(id);
        }
    }

    /// Marks a process that wrote START as the command's first, if none is known and it is the launcher's child. The launcher's
    /// own report ([`Self::set_main`]) may come later.
    fn note_first_of_command(&mut self, id: ProcessId) {
        if self.main.is_none()
            && let Some(process) = self.processes.get_mut(&id)
            && process.ancestry.parent == Parent::Launcher
        {
            process.ids.is_main = true;
            self.main = Some(id);
        }
    }

    /// Applies a FORK: the process runs in a copy of its parent's memory. Adds the process if it is not known. It joins its
    /// parent's image group, and has the parent's command name until it execs. `rss_at_fork_bytes`: the parent's RSS at the fork.
    fn fork(&mut self, writer: &Writer, rss_at_fork_bytes: u64) {
        let (key, at_ns) = (writer.key, writer.at_ns);
        // FORK is the first record of a fork child. The command's first process writes none, since the launcher has no shim. So a
        // process that has a record, or is the command's first, is an earlier process of that pid.
        let is_new = |process: &Process| !process.program.has_record && !process.ids.is_main;
        let known = self
            .live_writer(writer)
            .filter(|id| self.processes.get(id).is_some_and(is_new))
            .or_else(|| self.match_in_namespace(&writer.query(MatchEvidence::Fork)));
        let maker = self.parent_of(writer.parent);
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at_ns);
            self.insert(key, maker, Layer::Preload, at_ns)
        });
        let command = self.command_of_parent(maker);
        let uninstrumented_ancestor = self.uninstrumented_ancestor(maker);
        self.join_group_of_parent(id, maker);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let known_parent = process.ancestry.parent;
        // The connector's parent counts more: the kernel names it, while a record is a claim of the process.
        if !process.ancestry.is_watched || process.ancestry.parent == Parent::Unknown {
            (process.ancestry.parent, process.ancestry.uninstrumented_ancestor) =
                (maker, uninstrumented_ancestor);
            process.ancestry.parent_pid = writer.parent.pid;
        }
        let has_changed = process.ancestry.parent != known_parent;
        process.set_forked(writer, rss_at_fork_bytes, self.context.page);
        if let Some(command) = command {
            process.name.command = command;
        }
        self.groups.note_image_kind();
        // A parent that was known may have entered another task since it made the process.
        if has_changed {
            self.inherit_task(id);
        }
        self.note_record(id);
    }

    /// Notes that `parent` has made this child. If the parent still lives, the child joins its image group.
    fn join_group_of_parent(&mut self, child: ProcessId, parent: Parent) {
        let Some(parent) = parent.known().and_then(|id| self.processes.get_mut(&id)) else { return };
        parent.ancestry.has_children = true;
        let group = parent.program.group;
        if parent.is_alive() {
            self.join_group(child, group);
        }
    }

    /// Applies an EXEC of the process with this pid: it is about to exec. `peak_bytes`: VmHWM of the image that the exec
    /// replaces. An exec that fails leaves an EXEC record, too, so an image can have several.
    fn note_exec_peak(&mut self, key: Key, peak_bytes: u64) {
        if let Some(process) = self.youngest_alive(key).and_then(|id| self.processes.get_mut(&id)) {
            let program = &mut process.program;
            program.exec_peak_bytes = program.exec_peak_bytes.max(Some(peak_bytes));
        }
    }

    /// Applies an EXIT of the process with this pid, which ends the process in the tree. Adds the process if it is not known, with
    /// the command name of its parent.
    fn exit(&mut self, key: Key, origin: &Origin, record: ExitRecord, now_ns: u64) {
        let is_borrowed = record.has_borrowed_memory();
        // A vfork child has no earlier record. So a process that has a record is an earlier process of that pid.
        let has_record =
            |id: &ProcessId| self.processes.get(id).is_some_and(|process| process.program.has_record);
        let known = self.youngest_alive(key).filter(|id| !is_borrowed || !has_record(id));
        let at_ns = self.time_of(known, origin, now_ns);
        let parent = Key { pid_ns: key.pid_ns, pid: origin.parent };
        let query = MatchQuery { key, parent, pidfd_inode: 0, at_ns, evidence: MatchEvidence::Exit };
        let known = known.or_else(|| self.match_in_namespace(&query));
        let id = known.unwrap_or_else(|| {
            self.end_stale(key, at_ns);
            let parent = self.parent_of(parent);
            let id = self.insert(key, parent, Layer::Preload, at_ns);
            let command = self.command_of_parent(parent);
            if let (Some(process), Some(command)) = (self.processes.get_mut(&id), command) {
                process.name.command = command;
            }
            id
        });
        self.note_record(id);
        let tick_us = self.context.tick_us;
        let Some(process) = self.processes.get_mut(&id) else { return };
        // No other record says that a vfork child ran in its parent's memory.
        if is_borrowed && matches!(process.program.image, Image::Uninstrumented | Image::Unknown) {
            process.program.image = Image::Borrowed;
        }
        process.end.exit = Some(process.before.map_or(record, |before| record.since(&before, tick_us)));
        self.note_unkilled_end(id, at_ns);
        self.end(id, at_ns);
    }
}

impl Process {
    /// Applies a START record: a program that carries the shim replaces the image before. `inherited`: ru_maxrss that
    /// exec passed on, bytes. What the image before added to footprints goes to `intervals`; `None`: there was no such image.
    fn set_loaded(
        &mut self,
        writer: &Writer,
        inherited: u64,
        command: &str,
        intervals: Option<&mut Vec<LiveInterval>>,
    ) {
        // All of this is read from the image before, so it comes before the change.
        let peak = self.peak_before_start(inherited);
        let (recorded, peak_since_record) = (self.program.recorded, self.peak_since_record(inherited));
        let was_taken_for_uninstrumented = self.was_taken_for_uninstrumented(command);
        let had_uninstrumented_image = self.program.had_uninstrumented_image;
        // This can move the start of the image before, so it comes before the change, too.
        self.note_alive(writer.at_ns);
        self.change_image(intervals, Image::Loaded { inherited }, writer.at_ns, peak);
        // `peak` is the replaced image's. `peak_since_record` can also be an earlier image's, or the new image's before its START.
        if let Some(recorded) = recorded {
            self.note_replaced_peak(recorded, peak_since_record);
        }
        if was_taken_for_uninstrumented {
            // The image that was just replaced was this program, and not an uninstrumented one.
            self.program.had_uninstrumented_image = had_uninstrumented_image;
        }
        self.program.follows_another =
            matches!(recorded, Some(Image::Loaded { .. })) || self.program.had_uninstrumented_image;
        self.note_start_record(writer, command);
    }

    /// Notes what a START record tells of the process besides its peaks. No exec awaits a record any more.
    fn note_start_record(&mut self, writer: &Writer, command: &str) {
        self.program.recorded = Some(self.program.image);
        self.program.unreported_exec = None;
        self.program.other_user = None;
        self.note_inode(writer.pidfd_inode);
        self.ancestry.parent_pid = writer.parent.pid;
        self.ids.clock_skew_ns = writer.clock_skew_ns;
        self.name = Name { command: Arc::from(command), args: None, static_executable: None };
    }

    /// Applies a FORK record: the process runs in a copy of its parent's memory. `rss_at_fork_bytes`: the parent's RSS at the
    /// fork.
    fn set_forked(&mut self, writer: &Writer, rss_at_fork_bytes: u64, page_bytes: u64) {
        self.lifetime.set_start(writer.at_ns);
        let program = &mut self.program;
        program.image_start_ns = writer.at_ns;
        // It writes FORK before it can exec.
        program.unreported_exec = None;
        if program.image == Image::Unknown {
            // A sample may have seen it before (if none did, `observed` is 0). Only the RSS at the fork tells how much of the sampled
            // memory is its own.
            let seen = &mut self.observed;
            let faulted = seen.counts.minor_faults.saturating_mul(page_bytes);
            seen.contribution =
                Contribution::private(unshared_after_fork(seen.rss_bytes, rss_at_fork_bytes, faulted));
        }
        program.image = Image::Forked { rss_at_fork_bytes };
        program.recorded = Some(program.image);
        // This record tells how large the copy was.
        program.had_unread_copy = false;
        self.note_inode(writer.pidfd_inode);
        self.ids.clock_skew_ns = writer.clock_skew_ns;
    }

    /// Whether the program that writes START was taken for an uninstrumented one, as /proc was read while it was being loaded.
    /// Where the connector reports every exec, each exec awaits a record. If none does now, the record came too late, and the program
    /// was taken for uninstrumented. Without the connector, the name tells whether it is the same program.
    fn was_taken_for_uninstrumented(&self, command: &str) -> bool {
        if self.ancestry.is_watched {
            self.program.unreported_exec.is_none()
        } else {
            self.was_read_as(command)
        }
    }

    /// The peak of the image that a START replaces, bytes. ru_maxrss survives exec: if it grew since that image began, it
    /// is the image's own peak. Else an EXEC record or a sample may have the peak. `None`: no source has it.
    fn peak_before_start(&self, inherited: u64) -> Option<u64> {
        if self.program.image.has_grown(inherited) {
            return Some(inherited);
        }
        let sampled = || self.peak_before_exec().filter(|_| self.program.image == Image::Uninstrumented);
        self.program.exec_peak_bytes.or_else(sampled)
    }

    /// The peak that it reached between its last record and a START, bytes, if its image was taken for uninstrumented
    /// meanwhile. Its ru_maxrss, which has grown, shows the peak. A copy of its parent's memory is taken off. The peak is that of
    /// the uninstrumented image, of the one before, or of the new one before its START. `None`: the image was not taken for
    /// uninstrumented, or ru_maxrss has not grown.
    fn peak_since_record(&self, inherited: u64) -> Option<u64> {
        let is_uninstrumented = self.program.image == Image::Uninstrumented;
        let recorded =
            self.program.recorded.filter(|image| is_uninstrumented && image.has_grown(inherited))?;
        Some(inherited.saturating_sub(recorded.copied_bytes()))
    }
}
