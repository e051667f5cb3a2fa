//! The scan layer: children of known processes in /proc, and orphans below the launcher, for those that write no records (static and
//! setuid programs, other users' processes). Where the kernel reports no execs, it also finds the programs that processes run by now.
//!
//! Children are looked for only if a process was created anywhere since the last look (the last field of /proc/loadavg changes). Each
//! sample looks for a bounded time, and continues where the previous one stopped.

use std::fs::File;
use std::time::{Duration, Instant};

use super::helpers::Helpers;
use super::program::{self, is_static, runs_other_than};
use crate::model::ids::{Key, Parent, ProcessId, Target};
use crate::model::observation::{ChildSeen, Observation, OverBefore, ProgramQuestion};
use crate::model::process_lookup::{KnownProgram, ProcessLookup, ProgramOrigin};
use crate::sys::clock::Timer;
use crate::sys::proc_fs::{ProcRoot, Stat, read_held};
use crate::sys::{clock, pidfd};

/// A scan may take the sampling interval divided by this.
const INTERVAL_DIVISOR: u32 = 50;
/// With the process connector, a scan is only a check, and comes once in this time.
const CHECK_NS: u64 = 1_000_000_000;

/// Something that is still to be looked at.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// A process and the list of its children.
    Process(ProcessId),
    /// The list of the launcher's children.
    Launcher,
    /// A process of the tree or the launcher, and the pid of one of its children.
    Child(Parent, u32),
    /// A child that was just found, by its pid in the collector's namespace.
    Found(Key),
}

/// Looks for children and programs.
#[derive(Debug)]
pub struct Scanner {
    root: ProcRoot,
    /// Length of a clock tick of start times, microseconds.
    tick_us: u64,
    /// The launcher. With the collector, it can be a descendant of a process that the run attached to.
    launcher_pid: u32,
    /// Tells orphans of the tree from the launcher's helpers. `None`: no orphans are looked for.
    helpers: Option<Helpers>,
    /// Longest time for which a sample looks around.
    limit: Duration,
    /// When the next check is due, see [`CHECK_NS`].
    checks: Timer,
    /// /proc/loadavg, held open. `None`: it can't be opened.
    loadavg: Option<File>,
    /// The last pid that was given to a process of the machine, at the last [`Self::is_any_new`]. `None`: not known.
    last_pid: Option<u64>,
    /// What the current round still has to look at.
    queue: Vec<Look>,
}

impl Scanner {
    /// A scanner over a /proc. `tick_us`: the length of a clock tick of its start times. `interval_ns`: the sampling interval, of
    /// which a look around takes a part, 20 us to 20 ms. The process `launcher_pid` is not of the run. `helpers` shows which of its
    /// children are not of the run; `None`: the launcher adopts no orphans of the tree.
    pub fn new(
        root: ProcRoot,
        tick_us: u64,
        interval_ns: u64,
        launcher_pid: u32,
        helpers: Option<Helpers>,
    ) -> Self {
        let limit = Duration::from_nanos(interval_ns) / INTERVAL_DIVISOR;
        let limit = limit.clamp(Duration::from_micros(20), Duration::from_millis(20));
        let loadavg = File::open(root.top_path("loadavg")).ok();
        Self {
            root,
            tick_us,
            launcher_pid,
            helpers,
            limit,
            checks: Timer::default(),
            loadavg,
            last_pid: None,
            queue: Vec::new(),
        }
    }

    /// Whether a process was created on the machine since the last call. Also true if /proc/loadavg can't be read.
    fn is_any_new(&mut self) -> bool {
        let mut buffer = [0; 128];
        let text = self.loadavg.as_ref().and_then(|file| read_held(file, &mut buffer));
        let last_pid = text.and_then(|text| {
            let field = text.trim_ascii().rsplit(|b| *b == b' ').next()?;
            str::from_utf8(field).ok()?.parse().ok()
        });
        let is_any_new = last_pid.is_none() || last_pid != self.last_pid;
        self.last_pid = last_pid;
        is_any_new
    }

    /// The time by which a look around that begins now must end.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Begins a round that looks for children of all live processes, unless the last round is not over or no process is new. Returns
    /// the deadline for [`Self::next`], which continues the round, if one is open. `None`: it is not time to look. `is_check`:
    /// another source finds children, so a scan comes once in [`CHECK_NS`]. `now_ns`: CLOCK_MONOTONIC.
    pub fn begin(&mut self, table: &impl ProcessLookup, now_ns: u64, is_check: bool) -> Option<Instant> {
        if is_check && !self.checks.is_due(now_ns, CHECK_NS) {
            return None;
        }
        // `is_any_new` is asked only when a round can begin, since it is true only once for a new process.
        if self.queue.is_empty() && self.is_any_new() {
            self.queue = table.live().into_iter().map(Look::Process).collect();
            // An orphan that is found there may have children, too.
            let has_orphans = self.helpers.is_some() && table.has_main();
            self.queue.extend(has_orphans.then_some(Look::Launcher));
        }
        Some(self.deadline())
    }

    /// Continues the round until it finds something, which must be applied to `table` before the next call. `None`: nothing is
    /// left to look at, or the deadline has passed.
    pub fn next(&mut self, table: &impl ProcessLookup, deadline: Instant) -> Option<Observation> {
        while Instant::now() <= deadline {
            let found = match self.queue.pop()? {
                Look::Process(id) => self.look_at_process(table, id),
                Look::Launcher => {
                    let threads = self.root.stat(self.launcher_pid).map_or(0, |stat| stat.threads);
                    self.queue_children(Parent::Launcher, self.launcher_pid, threads);
                    None
                }
                Look::Child(parent, pid) => self.look_at_child(table, parent, pid),
                Look::Found(key) => {
                    // Its program and its own children come next.
                    let Some(id) = table.live_by_key(key) else { continue };
                    self.queue.push(Look::Process(id));
                    continue;
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Whether a process that had ended before the run began is still a zombie, so that no other process has its pid.
    pub(crate) fn is_still_over(&self, over: &OverBefore) -> bool {
        let Some(stat) = self.root.stat(over.host_pid) else { return false };
        stat.is_over() && over.has_started_at(stat.start_ns(self.tick_us))
    }

    /// Makes the next sample look at all processes again, even if no process is new and no check is due.
    pub fn look_again(&mut self) {
        self.last_pid = None;
        self.checks = Timer::default();
    }

    /// Whether `stat` shows this process, and not a later one with its pid.
    fn is_shown(&self, target: &Target, stat: &Stat) -> bool {
        let inode = || pidfd::inode(target.pid).unwrap_or(0);
        target.identity.is_shown(stat.start_ns(self.tick_us), inode)
    }

    /// Queues the children of a process. If the process has not reported its program, reads and returns it.
    fn look_at_process(&mut self, table: &impl ProcessLookup, id: ProcessId) -> Option<Observation> {
        let (target, known) = table.target(id).zip(table.program(id))?;
        // Another process may have the pid by now.
        let stat = self.root.stat(target.pid).filter(|stat| self.is_shown(&target, stat))?;
        // A FORK record said that it is a copy of its parent. It may have exec'd a program that writes no record.
        let is_other_by_now = || {
            known.origin == ProgramOrigin::ForkCopy
                && runs_other_than(&self.root, target.pid, known.live_parent_pid)
        };
        let is_unreported = !known.has_record || is_other_by_now();
        let found = is_unreported.then(|| self.read_program(&target, &known, clock::monotonic_ns()));
        self.queue_children(Parent::Known(id), target.pid, stat.threads);
        found
    }

    /// Queues the children of the process with this pid, which has this many threads.
    fn queue_children(&mut self, parent: Parent, pid: u32, threads: u64) {
        let not_of_run = [self.launcher_pid, std::process::id()];
        let children = self.root.children(pid, threads);
        let of_run = children.into_iter().filter(|child| !not_of_run.contains(child));
        self.queue.extend(of_run.map(|child| Look::Child(parent, child)));
    }

    /// What is new about a child (see [`Self::news_of_child`]). If something is, queues the child, so that its program and
    /// its own children are looked at next.
    fn look_at_child(&mut self, table: &impl ProcessLookup, parent: Parent, pid: u32) -> Option<Observation> {
        let found = self.news_of_child(table, parent, pid);
        match &found {
            // The table gives it an id only when the caller has applied what was found.
            Some(Observation::Child(child)) => self.queue.push(Look::Found(child.key)),
            // The table has it, but its pid in this namespace was not known, so it could not be looked at.
            Some(Observation::HostPid { id, .. }) => self.queue.push(Look::Process(*id)),
            _ => {}
        }
        found
    }

    /// What is new to the table about the process with this pid, which was listed as a child of `parent`:
    ///
    /// - a child that the table does not have, and that is no helper of the run;
    /// - the pid in this namespace of a child that the table has by its pid in another namespace;
    /// - a child that was a zombie before the run began.
    ///
    /// `None`: the table has the child, or the process is gone or no child of this parent by now.
    fn news_of_child(&self, table: &impl ProcessLookup, parent: Parent, pid: u32) -> Option<Observation> {
        let here = Key { pid_ns: table.pid_ns(), pid };
        let seen_ns = clock::monotonic_ns();
        let stat = self.root.stat(pid)?;
        // Most children are known and alive: for those, nothing else has to be read.
        let alive = table.live_by_key(here).and_then(|id| table.target(id));
        if alive.is_some_and(|target| self.is_shown(&target, &stat)) {
            return None;
        }
        let pidfd_inode = pidfd::inode(pid).unwrap_or(0);
        // Since the child was listed, a process outside of the tree may have got its pid.
        let parent_pid = match parent {
            Parent::Known(id) => table.target(id).map(|parent| parent.pid),
            Parent::Launcher | Parent::Unknown => Some(self.launcher_pid),
        };
        if parent_pid != Some(stat.ppid) {
            return None;
        }
        let shown_ns = stat.start_ns(self.tick_us);
        if table.is_known(here, pidfd_inode, shown_ns) {
            return None;
        }
        let key = self.key(here)?;
        // Records name a child in another pid namespace by its pid there, so the table may have it without its pid here.
        if key.pid_ns != here.pid_ns {
            if let Some(id) = table.live_by_key(key) {
                return Some(Observation::HostPid { id, pid });
            }
            // The child wrote its EXIT record, and its parent has not waited for it yet.
            if table.is_known(key, pidfd_inode, shown_ns) {
                return None;
            }
        }
        let tick_ns = self.tick_us.saturating_mul(1000);
        // Its start, even at the end of the clock tick that /proc shows, is not after the session's.
        let is_older = shown_ns.saturating_add(tick_ns) <= table.session_start_ns();
        // A child of the launcher does not count if it is older than the run, dead, or a helper. The launcher will write a REAPED
        // record of a dead one.
        if parent == Parent::Launcher && (is_older || stat.is_over() || self.is_helper(pid)) {
            return None;
        }
        if is_older && stat.is_over() {
            return self.over_before(key, pid, shown_ns);
        }
        let before = if is_older { Some(self.root.used_so_far(pid, &stat)?) } else { None };
        let (earliest_start_ns, start_ns) =
            ChildSeen::starts(shown_ns, tick_ns, seen_ns, table.session_start_ns());
        Some(Observation::Child(ChildSeen {
            key,
            host_pid: pid,
            parent,
            earliest_start_ns,
            start_ns,
            pidfd_inode,
            seen_ns,
            before,
        }))
    }

    /// What is new to the table about a process of a container, which is no descendant of the tree's: its pid in this namespace, or that it
    /// exists. `None`: the table knows it, or it is gone.
    pub(crate) fn news_of_joined(&self, table: &impl ProcessLookup, pid: u32) -> Option<Observation> {
        let here = Key { pid_ns: table.pid_ns(), pid };
        let seen_ns = clock::monotonic_ns();
        let stat = self.root.stat(pid).filter(|stat| !stat.is_over())?;
        let alive = table.live_by_key(here).and_then(|id| table.target(id));
        if alive.is_some_and(|target| self.is_shown(&target, &stat)) {
            return None;
        }
        let pidfd_inode = pidfd::inode(pid).unwrap_or(0);
        let inside = *self.root.status(pid)?.ns_pids.last()?;
        // Of another user's process, the namespace can't be read.
        let key = self.key(here);
        let known = match key {
            Some(key) => table.live_by_key(key),
            None => table.live_by_inode(pidfd_inode, inside),
        };
        if let Some(id) = known {
            return Some(Observation::HostPid { id, pid });
        }
        let tick_ns = self.tick_us.saturating_mul(1000);
        let shown_ns = stat.start_ns(self.tick_us);
        // The runtime's own processes are in the container's cgroup, but in this namespace.
        let is_new = |key: &Key| *key != here && !table.is_known(*key, pidfd_inode, shown_ns);
        let key = key.filter(is_new)?;
        let (earliest_start_ns, start_ns) =
            ChildSeen::starts(shown_ns, tick_ns, seen_ns, table.session_start_ns());
        Some(Observation::Child(ChildSeen {
            key,
            host_pid: pid,
            parent: Parent::Unknown,
            earliest_start_ns,
            start_ns,
            pidfd_inode,
            seen_ns,
            before: None,
        }))
    }

    /// Whether a child of the launcher is a helper of the run, may be about to become one, or is gone.
    fn is_helper(&self, pid: u32) -> bool {
        let may_be = |helpers: &Helpers| helpers.may_be_helper(&self.root, pid, self.launcher_pid);
        self.helpers.as_ref().is_none_or(may_be)
    }

    /// The pid of a process inside its own pid namespace, and the namespace. `here` names the process in this namespace.
    /// `None`: it is gone.
    fn key(&self, here: Key) -> Option<Key> {
        let status = self.root.status(here.pid)?;
        match status.ns_pids.as_slice() {
            [_, .., inner] => Some(Key { pid_ns: self.root.pid_ns(here.pid)?, pid: *inner }),
            _ => Some(here),
        }
    }

    /// Describes a zombie that had ended before the run began. `None`: it is gone.
    fn over_before(&self, key: Key, pid: u32, start_ns: u64) -> Option<Observation> {
        let over = OverBefore { key, host_pid: pid, start_ns, blocks: self.root.io_blocks(pid) };
        // If its parent has waited for it meanwhile, the I/O may be that of another process.
        self.is_still_over(&over).then_some(Observation::OverBefore(over))
    }

    /// Reads what a process runs, and whether its memory is its own or its parent's. The program had begun by `at_ns`,
    /// CLOCK_MONOTONIC nanoseconds.
    fn read_program(&self, target: &Target, known: &KnownProgram, at_ns: u64) -> Observation {
        let question = ProgramQuestion::WhatAndWhose(known.parent_pid);
        Observation::Program(program::read(&self.root, target, question, at_ns))
    }

    /// Reads what a process runs, where no source reports execs. Readings at `since_ns` and at `now_ns` (CLOCK_MONOTONIC nanoseconds)
    /// found two programs in it. The result is empty if the second program has reported its start.
    pub fn look_at_changed(
        &self,
        table: &impl ProcessLookup,
        id: ProcessId,
        since_ns: u64,
        now_ns: u64,
    ) -> Vec<Observation> {
        let Some((target, known)) = table.target(id).zip(table.program(id)) else { return Vec::new() };
        let has_known_start = known.start_ns > since_ns;
        // A static program writes no START record, so the known start is that of an earlier program.
        if has_known_start && !self.runs_static(target.pid) {
            return Vec::new();
        }
        self.exec_and_program(&target, now_ns)
    }

    /// Whether the process runs a program without a dynamic loader.
    fn runs_static(&self, pid: u32) -> bool {
        is_static(&self.root.path(pid, "exe")) == Some(true)
    }

    /// Reads what a process runs after its first reading, if its program is not known. For runs where no source reports execs.
    /// `start_stack`: the bottom of its stack at that reading, which was at `now_ns` (CLOCK_MONOTONIC nanoseconds).
    pub fn look_at_newcomer(
        &self,
        table: &impl ProcessLookup,
        id: ProcessId,
        start_stack: u64,
        now_ns: u64,
    ) -> Vec<Observation> {
        let Some((target, known)) = table.target(id).zip(table.program(id)) else { return Vec::new() };
        let runs_another = match known.origin {
            // A static program writes no START record, so the known record is of an earlier program.
            ProgramOrigin::Reported => self.runs_static(target.pid),
            ProgramOrigin::ForkCopy | ProgramOrigin::Unknown => {
                runs_other_than(&self.root, target.pid, known.live_parent_pid)
            }
            // The program was read from /proc already.
            ProgramOrigin::Read => false,
        };
        // Asked after the reads above, so that an exec before or between them is noticed. It is left to the next reading, which finds
        // it. An exec after this question does no harm: the next reading finds it, too, and the program is read again.
        let is_same = || self.root.stat(target.pid).is_some_and(|stat| stat.start_stack == start_stack);
        if known.has_unreported_exec || !runs_another || !is_same() {
            return Vec::new();
        }
        if known.origin == ProgramOrigin::Reported {
            self.exec_and_program(&target, now_ns)
        } else {
            // The reading at `now_ns` was of that program already, so its begin is dated before.
            vec![self.read_program(&target, &known, now_ns.saturating_sub(1))]
        }
    }

    /// Reads what a process runs. Returns two observations: that the process exec'd before `now_ns`, and what its program is.
    /// `now_ns` is the time of the sample that has shown the exec, CLOCK_MONOTONIC nanoseconds.
    fn exec_and_program(&self, target: &Target, now_ns: u64) -> Vec<Observation> {
        let program = program::read(&self.root, target, ProgramQuestion::What, now_ns);
        vec![
            Observation::Exec { id: target.id, by_ns: now_ns.saturating_sub(1) },
            Observation::Program(program),
        ]
    }
}
