//! What the process connector's events do to the tree: they report uninstrumented processes, and the exact time of
//! forks, execs and ends.

use super::process::{KernelExit, Process};
use super::tolerance::Tolerance;
use super::{Key, Layer, Parent, ProcessId, Tree};
use crate::model::kernel_event::{KernelEvent, What};

impl Tree {
    /// Applies an event of the process connector, whose pids are those of the collector's namespace. `now_ns` is CLOCK_MONOTONIC.
    pub fn apply_kernel(&mut self, event: &KernelEvent, now_ns: u64) {
        let key = Key { pid_ns: self.context.pid_ns, pid: event.pid };
        // An event counts as within the session, and not as in the future. `min`, since `clamp` panics if its bounds are the wrong way
        // round.
        let at_ns = event.at_ns.clamp(self.context.session_monotonic_ns.min(now_ns), now_ns);
        match event.what {
            // The launcher's children are the command, which the launcher reports itself, and processes of gpu-track: collectors, those
            // that end the tree at a limit, and those that run the command of `--on-alert`.
            What::Fork { parent } if parent == self.context.launcher_pid => {}
            What::Fork { parent } => self.kernel_fork(key, Key { pid: parent, ..key }, at_ns),
            What::Exec => self.kernel_exec(key, at_ns),
            What::Exit { status } => self.kernel_exit(key, KernelExit { at_ns, status }),
            // Events are missing, so no process's children are known to be complete.
            What::Lost { .. } | What::GivenUp(_) => self.forget_watched(),
        }
    }

    /// Applies a fork at `at_ns`, CLOCK_MONOTONIC nanoseconds. `key` and `parent` are the pids of the new process and of its maker,
    /// the process that forked. Adds the new process, or completes it if a record or a scan has reported it before. From then on it
    /// is proven to be of the tree (`is_proven`), and all its children will be reported (`is_watched`).
    fn kernel_fork(&mut self, key: Key, parent: Key, at_ns: u64) {
        let known = self.added_before_event(key, at_ns);
        let maker = self.parent_of(parent);
        // In another pid namespace, the number of this fork among all forks there tells what pid the new process has there.
        let mut fork_number = None;
        if let Parent::Known(id) = maker
            && let Some(maker) = self.processes.get_mut(&id)
        {
            maker.ancestry.has_children = true;
            fork_number = self.count_fork(id);
        }
        let id = known.unwrap_or_else(|| self.insert_forked(key, maker, at_ns));
        let command = self.command_of_parent(maker);
        let uninstrumented_ancestor = self.uninstrumented_ancestor(maker);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.ids.is_proven = true;
        // If `ids.key` is of another namespace, the pid there is known, and no number is needed.
        if process.ids.key == key {
            process.ids.fork_number = fork_number;
        }
        let ancestry = &mut process.ancestry;
        ancestry.is_watched = true;
        ancestry.parent_pid = parent.pid;
        if ancestry.parent == Parent::Unknown {
            (ancestry.parent, ancestry.uninstrumented_ancestor) = (maker, uninstrumented_ancestor);
        }
        if let Some(command) = command.filter(|_| known.is_none()) {
            process.name.command = command;
        }
    }

    /// Finds the new process of a fork event at `at_ns`, if a record or a scan has added it before. The connector has not
    /// reported on such a process yet. A process that started well before the fork is an earlier process of that pid.
    fn added_before_event(&self, key: Key, at_ns: u64) -> Option<ProcessId> {
        let id = self.youngest_alive(key)?;
        let process = self.processes.get(&id)?;
        let is_reported = process.end.kernel_exit.is_some() || process.ancestry.is_watched;
        let is_older = process.lifetime.start_ns + Tolerance::START_ROUNDING_NS < at_ns;
        (!is_reported && !is_older).then_some(id)
    }

    /// Adds a process that the connector alone has reported, and returns its id. A live process that had the pid before ends. The
    /// new process's program is read if it writes no record, and samples are frequent while it is young.
    fn insert_forked(&mut self, key: Key, maker: Parent, at_ns: u64) -> ProcessId {
        self.end_stale(key, at_ns);
        let id = self.insert(key, maker, Layer::Connector, at_ns);
        // Until it execs it may share its parent's memory.
        let maker = maker.known().and_then(|maker| self.processes.get(&maker));
        if let Some(maker) = maker.filter(|maker| maker.is_alive()) {
            self.join_group(id, maker.program.group);
        }
        self.by_state.unreported.insert(id);
        self.by_state.young.insert(id);
        id
    }

    /// Applies an exec at `at_ns`, CLOCK_MONOTONIC nanoseconds. The exec of an unknown process can be the command's, which the
    /// launcher may not have reported yet, so it is kept for [`Self::apply_early_exec`].
    fn kernel_exec(&mut self, key: Key, at_ns: u64) {
        let Some(id) = self.youngest_alive(key) else {
            // Before the launcher's report only the command and collectors exist.
            if self.main.is_none() && self.early_execs.len() < Tolerance::MOST_EARLY_EXECS {
                self.early_execs.push((key, at_ns));
            }
            return;
        };
        self.note_exec(id, at_ns);
        let Some(process) = self.processes.get_mut(&id) else { return };
        // An exit event before this one was that of the first thread, and another thread exec'd.
        process.end.kernel_exit = None;
        // The connector was listening already when the launcher started the command.
        process.ancestry.is_watched |= process.ancestry.parent == Parent::Launcher;
    }

    /// Applies the end of a process's first thread. Other threads may live on, so the process's /proc files are to be read: see
    /// [`Self::ends_to_read`].
    fn kernel_exit(&mut self, key: Key, exit: KernelExit) {
        let Some(id) = self.youngest_alive(key) else { return };
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.end.kernel_exit = Some(exit);
        self.by_state.kernel_ends.insert(id);
        // When the init of a pid namespace ends, the kernel kills all others there. So an exit without a signal shows that it lives.
        if !libc::WIFSIGNALED(exit.status) {
            self.note_unkilled_end(id, exit.at_ns);
        }
        // This comes last, since it can remove the process: a SPAWN_FAILED record of its parent may have counted it already.
        self.note_failed_exec(id, exit.status);
    }

    /// Applies the exec of the command if the connector reported it before the launcher did, and forgets all execs that were kept.
    /// `main` is the command's first process, and `key` its pid.
    pub(super) fn apply_early_exec(&mut self, main: ProcessId, key: Key) {
        let execs = std::mem::take(&mut self.early_execs);
        let Some((_, at_ns)) = execs.into_iter().rfind(|(early, _)| *early == key) else { return };
        match self.processes.get_mut(&main) {
            // Its START record came meanwhile, and has told of the exec. The connector was listening already when the launcher
            // started the command, so it reports all children.
            Some(process) if process.program.has_record => process.ancestry.is_watched = true,
            // The exec is news.
            _ => self.kernel_exec(key, at_ns),
        }
    }

    /// Notes that connector events are missing: no process is watched by the connector any more (`is_watched`).
    pub(crate) fn forget_watched(&mut self) {
        for process in self.processes.values_mut() {
            process.ancestry.is_watched = false;
        }
    }

    /// The live processes whose first thread ended, each with that end as the connector reported it. Whether other threads live on
    /// must be read in /proc.
    pub fn ends_to_read(&self) -> impl Iterator<Item = (&Process, KernelExit)> {
        let ends = self.by_state.kernel_ends.iter().filter_map(|id| self.processes.get(id));
        let live = ends.filter(|process| process.is_alive());
        live.filter_map(|process| Some((process, process.end.kernel_exit?)))
    }

    /// Notes that a process whose first thread ended lives on. [`Self::ends_to_read`] no longer lists the process.
    pub(crate) fn note_survives_first_thread(&mut self, id: ProcessId) {
        self.by_state.kernel_ends.remove(&id);
    }
}
