//! What the kernel's own events do to the tree: processes that never say anything are known by them, and of the others
//! they tell when they were made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::process::fork_share;
use super::{FoundBy, Image, Key, LiveInterval, Parent, Process, ProcessId, Program, Tree, image_interval};
use crate::model::finding::{KernelEvent, Remains, What};

/// Start times in /proc are rounded down to clock ticks.
pub(super) const TICK_NS: u64 = 20_000_000;

/// A program that has not written a START record so long after its exec is uninstrumented.
const TIME_TO_REPORT_NS: u64 = 50_000_000;

/// Wait status of a child of posix_spawn that could not exec.
const COULD_NOT_EXEC: i32 = 127 << 8;

/// Most execs of unknown processes that are kept until the command is known.
const MOST_EARLY_EXECS: usize = 16;

/// The name of a program that nobody looked at while it was there.
const UNSEEN: &str = "(unseen)";

/// The kernel's word on a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelExit {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// Wait status.
    pub status: i32,
}

/// The kernel's word that a process runs another program, which has not said anything yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentExec {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// What /proc told of it.
    pub program: Option<Program>,
    /// Peak RSS of the program before it as samples saw it, bytes.
    pub peak_before: Option<u64>,
}

impl Tree {
    /// Take in an event of the process connector. `now_ns` is CLOCK_MONOTONIC.
    pub fn apply_kernel(&mut self, event: &KernelEvent, now_ns: u64) {
        let key = Key { pid_ns: self.context.pid_ns, pid: event.pid };
        let at = event.at_ns.clamp(self.context.session_monotonic_ns.min(now_ns), now_ns);
        match event.what {
            // Its children are the command, of which it tells itself, and collectors.
            What::Fork { parent } if parent == self.context.launcher_pid => {}
            What::Fork { parent } => self.kernel_fork(key, Key { pid: parent, ..key }, at),
            What::Exec => self.kernel_exec(key, at),
            What::Exit { status } => {
                if let Some(id) = self.open_instance(key)
                    && let Some(process) = self.processes.get_mut(&id)
                {
                    process.kernel_exit = Some(KernelExit { at_ns: at, status });
                    self.kernel_ends.insert(id);
                    if !libc::WIFSIGNALED(status) {
                        self.note_free_end(id, at);
                    }
                    if status == COULD_NOT_EXEC {
                        self.could_not_exec.insert(id);
                    }
                }
            }
            What::Lost { .. } | What::GivenUp(_) => self.forget_watched(),
        }
    }

    fn kernel_fork(&mut self, key: Key, parent: Key, at: u64) {
        let known = self.open_instance(key);
        // Another layer may have been faster.
        let is_same = known.and_then(|id| self.processes.get(&id)).is_some_and(|process| {
            process.kernel_exit.is_none() && !process.is_watched && process.start_ns + TICK_NS >= at
        });
        let maker = self.parent_of(parent);
        let mut inside = None;
        if let Parent::Known(id) = maker
            && let Some(maker) = self.processes.get_mut(&id)
        {
            maker.has_children = true;
            inside = self.count_fork(id);
        }
        let id = match known.filter(|_| is_same) {
            Some(id) => id,
            None => {
                self.end_stale(key, at);
                let id = self.insert(key, maker, FoundBy::Connector, at);
                // Until it runs something else it may share its parent's memory.
                if let Parent::Known(maker) = maker
                    && let Some(group) = self.processes.get(&maker).filter(|p| p.is_alive()).map(|p| p.group)
                {
                    self.join_group(id, group);
                }
                self.silent.insert(id);
                id
            }
        };
        let command = self.command_of_parent(maker);
        let silent_ancestor = self.silent_ancestor(maker);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.is_watched = true;
        process.is_proven = true;
        process.parent_pid = parent.pid;
        if process.key == key {
            process.inside = inside;
        }
        if process.parent == Parent::Unknown {
            (process.parent, process.silent_ancestor) = (maker, silent_ancestor);
        }
        if !is_same && let Some(command) = command {
            process.command = command;
        }
    }

    fn kernel_exec(&mut self, key: Key, at: u64) {
        let Some(id) = self.open_instance(key) else {
            // It may be the command, of which the launcher's word comes yet; until then there are but it and collectors.
            if self.main.is_none() && self.early_execs.len() < MOST_EARLY_EXECS {
                self.early_execs.push((key, at));
            }
            return;
        };
        self.note_exec(id, at);
        let Some(process) = self.processes.get_mut(&id) else { return };
        // It was another thread's first word, after the end of the first one.
        process.kernel_exit = None;
        // The command itself: the launcher started it when it listened already.
        process.is_watched |= process.parent == Parent::Launcher;
    }

    /// Where the kernel does not tell: a process runs another program by this time (CLOCK_MONOTONIC, nanoseconds), which it
    /// has not said itself.
    pub fn observe_exec(&mut self, id: ProcessId, at_ns: u64) {
        if self.processes.get(&id).is_some_and(Process::is_alive) {
            self.note_exec(id, at_ns);
        }
    }

    /// A process runs another program, which has not spoken yet.
    fn note_exec(&mut self, id: ProcessId, at: u64) {
        // The program before never spoke.
        self.confirm_silent(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_sampled = process.observed.at_ns > at;
        let peak_before = process.sampled_peak().filter(|_| !is_sampled);
        if is_sampled {
            process.observed.forget_peak();
        }
        process.silent_exec = Some(SilentExec { at_ns: at, program: None, peak_before });
        self.silent.insert(id);
    }

    /// The kernel told of the command before the launcher did.
    pub(super) fn apply_early_exec(&mut self, main: ProcessId, key: Key) {
        let execs = std::mem::take(&mut self.early_execs);
        let Some((_, at)) = execs.into_iter().rfind(|(early, _)| *early == key) else { return };
        match self.processes.get_mut(&main) {
            // It has said so itself meanwhile.
            Some(process) if process.spoke => process.is_watched = true,
            _ => self.kernel_exec(key, at),
        }
    }

    /// Events of the kernel were lost: whose children are all known can't be said any more.
    pub fn forget_watched(&mut self) {
        for process in self.processes.values_mut() {
            process.is_watched = false;
        }
    }

    /// Processes that were made, or run another program, by this time, and have written no record since.
    pub fn programs_to_read(&self, by_ns: u64) -> impl Iterator<Item = &Process> {
        let unread = self.silent.iter().filter_map(|id| self.processes.get(id));
        unread.filter(move |p| p.is_alive() && p.is_silent() && p.program_start_ns() <= by_ns)
    }

    /// The program of such a process was read. It still has time to write a START record.
    pub(in crate::run) fn program_was_read(&mut self, id: ProcessId) {
        if self.silent.remove(&id) {
            self.unconfirmed.push_back(id);
        }
    }

    /// Processes whose time to write a START record is over: their programs are read once more before that is concluded.
    pub fn overdue_starts(&self, now_ns: u64) -> impl Iterator<Item = &Process> {
        let unconfirmed = self.unconfirmed.iter().map(|id| self.processes.get(id));
        let overdue =
            unconfirmed.take_while(move |process| process.is_none_or(|p| !p.may_still_report(now_ns)));
        overdue.flatten().filter(|process| process.is_alive() && process.silent_exec.is_some())
    }

    /// Time has passed: programs whose time to write a START record is over are uninstrumented.
    pub fn tick(&mut self, now_ns: u64) {
        while let Some(id) = self.unconfirmed.front().copied() {
            if self.processes.get(&id).is_some_and(|process| process.may_still_report(now_ns)) {
                break;
            }
            if self.processes.get(&id).is_some_and(Process::is_alive) {
                self.confirm_silent(id);
            }
            self.unconfirmed.pop_front();
        }
        let processes = &self.processes;
        let is_alive = |id: &ProcessId| processes.get(id).is_some_and(Process::is_alive);
        self.silent.retain(|id| is_alive(id) && processes.get(id).is_some_and(Process::is_silent));
        self.kernel_ends.retain(is_alive);
        self.unproven.retain(is_alive);
    }

    /// Live processes that the kernel says are over, and when. They may have other threads.
    pub fn ends_to_read(&self) -> impl Iterator<Item = (&Process, KernelExit)> {
        let ends = self.kernel_ends.iter().filter_map(|id| self.processes.get(id));
        ends.filter(|process| process.is_alive()).filter_map(|process| Some((process, process.kernel_exit?)))
    }

    /// The kernel told of the end of a process's first thread, and the process lives on.
    pub fn first_thread_ended(&mut self, id: ProcessId) {
        self.kernel_ends.remove(&id);
    }

    /// What was left of a process after its end.
    pub fn note_remains(&mut self, id: ProcessId, remains: &Remains) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.is_clock_final = true;
        let observed = &mut process.observed;
        observed.cpu_ns = Some(remains.cpu_ns);
        (observed.user_ticks, observed.system_ticks) = (remains.user_ticks, remains.system_ticks);
        (observed.minor_faults, observed.major_faults) = (remains.minor_faults, remains.major_faults);
    }

    /// The wait status of a process that is over.
    pub fn note_status(&mut self, id: ProcessId, status: i32) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.kept_status = Some(status);
        }
    }

    /// Of the living, those of whose end nobody would tell: their parents say nothing of their waits.
    pub fn unawaited(&self) -> impl Iterator<Item = &Process> {
        let alive = self.alive.iter().filter_map(|id| self.processes.get(id));
        alive.filter(|process| {
            process.is_proven
                && process.seen_dead_ns.is_none()
                && match process.parent {
                    // The launcher says when it reaps one, an orphan too.
                    Parent::Launcher => false,
                    Parent::Known(id) => {
                        self.processes.get(&id).is_some_and(|parent| parent.is_alive() && !parent.speaks())
                    }
                    Parent::Unknown => true,
                }
        })
    }

    /// What /proc tells of the program that a silent process runs now. What was seen while it ran stands.
    pub fn set_program(&mut self, id: ProcessId, program: Program) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let is_seen = match &process.silent_exec {
            Some(exec) => exec.program.as_ref().is_some_and(|seen| seen.args.is_some()),
            None => process.image == Image::Silent && process.args.is_some(),
        };
        if is_seen && program.is_over() {
            return;
        }
        match &mut process.silent_exec {
            Some(exec) => exec.program = Some(program),
            None if !process.spoke || process.image == Image::Silent => process.set_program(program),
            None => {}
        }
    }

    /// The program that a process runs will say nothing any more: it is over, or had time enough.
    pub fn confirm_silent(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(exec) = process.silent_exec.clone() else { return };
        self.silent_programs += 1;
        let peak = process.told_peak.or(exec.peak_before);
        process.change_image(Some(&mut self.intervals), Image::Silent, exec.at_ns, peak);
        process.silent_exec = None;
        process.command = Arc::from(UNSEEN);
        (process.args, process.static_executable) = (None, None);
        process.set_program(exec.program.unwrap_or_default());
        let group = self.new_group();
        self.join_group(id, group);
    }

    /// A posix_spawn of this process failed after its child was made: the kernel told of the child, but it never
    /// became a process of its own.
    pub(super) fn forget_failed_spawn(&mut self, parent: ProcessId) {
        let failed = self.could_not_exec.iter().rev().copied().find(|id| {
            self.processes.get(id).is_some_and(|process| {
                process.parent == Parent::Known(parent)
                    && !process.spoke
                    && process.kernel_exit.is_some_and(|exit| exit.status == COULD_NOT_EXEC)
                    && process.reaped.is_none()
            })
        });
        if let Some(id) = failed {
            self.forget(id);
        }
    }

    /// It is not a process of its own.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(process) = self.processes.remove(&id) {
            self.drop_from_lists(&process);
            self.ended.retain(|id| *id != process.id);
            self.born -= 1;
        }
    }
}

impl Process {
    /// Whether the program that it exec'd has still time to write a START record.
    fn may_still_report(&self, now_ns: u64) -> bool {
        self.is_alive()
            && self
                .silent_exec
                .as_ref()
                .is_some_and(|exec| now_ns.saturating_sub(exec.at_ns) < TIME_TO_REPORT_NS)
    }

    /// Whether the program that it runs carries the shim, as far as the kernel's word goes.
    pub(super) fn speaks(&self) -> bool {
        matches!(self.image, Image::Loaded { .. } | Image::Forked { .. }) && self.silent_exec.is_none()
    }

    /// Whether the program that it runs has said nothing yet.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        !self.spoke || self.silent_exec.is_some()
    }

    /// Whether it is this program, by its name, that was taken for a silent one: it was looked at while it was being loaded.
    pub(super) fn was_looked_at_as(&self, command: &str) -> bool {
        self.image == Image::Silent && &*self.command == command && self.static_executable.is_none()
    }

    fn set_program(&mut self, program: Program) {
        // Another silent program was looked at before, and no exec was seen.
        let has_changed =
            self.args.is_some() && program.command.as_deref().is_some_and(|name| name != &*self.command);
        self.has_sampled_past |= self.image == Image::Silent && has_changed;
        if let Some(command) = program.command {
            self.command = command.into();
        }
        if let Some(peak) = program.peak_rss_bytes.filter(|_| self.image == Image::Silent) {
            self.observed.peak = self.observed.peak.max(peak);
        }
        self.args = program.args;
        self.static_executable = program.static_executable;
    }

    /// When it began to run what it runs now, CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn program_start_ns(&self) -> u64 {
        self.silent_exec.as_ref().map_or(0, |exec| exec.at_ns).max(self.image_start_ns)
    }

    /// Peak of this image as samples saw it, up to the last exec that the kernel told of.
    pub(super) fn peak_before_exec(&self) -> Option<u64> {
        self.silent_exec.as_ref().map_or_else(|| self.sampled_peak(), |exec| exec.peak_before)
    }

    /// Peak of this image as samples saw it.
    fn sampled_peak(&self) -> Option<u64> {
        (self.observed.at_ns >= self.image_start_ns && self.observed.peak > 0).then_some(self.observed.peak)
    }

    /// It runs another image from this time on. The one before had this peak, if that is known; what it held of the
    /// tree's RAM since it was last sampled goes to `lives`.
    pub(super) fn change_image(
        &mut self,
        lives: Option<&mut Vec<LiveInterval>>,
        image: Image,
        at_ns: u64,
        peak: Option<u64>,
    ) {
        // What a fork child had of its parent's memory is not its own.
        let (own_peak, bytes) = match (self.image, peak) {
            (Image::Forked { rss_at_fork }, Some(peak)) => (
                Some(peak.saturating_sub(rss_at_fork)),
                // A sample may have read the new image already.
                self.observed.share.max(fork_share(peak, rss_at_fork, 0)),
            ),
            // What may be a copy of its parent's memory, or that memory itself, tells nothing of its own.
            (Image::Unknown | Image::Borrowed, _) if self.observed.at_ns >= self.image_start_ns => {
                (None, self.observed.share_at(peak.unwrap_or(0)))
            }
            (_, peak) if self.observed.at_ns >= self.image_start_ns => {
                (peak, self.observed.share_at(peak.unwrap_or(0)))
            }
            (_, peak) => (peak, peak.unwrap_or(0)),
        };
        // A sample that is younger than the image is of the image already.
        let is_sampled = self.observed.at_ns > at_ns;
        if let Some(lives) = lives.filter(|_| !is_sampled && bytes > 0) {
            lives.push(LiveInterval { bytes, ..image_interval(self, at_ns) });
        }
        self.has_sampled_past |= self.image == Image::Silent;
        if let Some(peak) = own_peak.filter(|peak| *peak > 0) {
            self.earlier_peak = Some(self.earlier_peak.map_or(peak, |earlier| earlier.max(peak)));
        }
        self.image = image;
        self.image_start_ns = at_ns;
        self.told_peak = None;
        if !is_sampled {
            self.observed.forget_memory();
        } else if self.silent_exec.is_none() {
            // Else that was done when the kernel told of the exec.
            self.observed.forget_peak();
        }
    }
}
