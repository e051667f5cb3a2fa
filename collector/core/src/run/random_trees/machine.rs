//! A machine for random process trees: what the kernel adds up for each process, and what the shim and the process
//! connector write about it. Beside that it keeps the truth that the core must find out.

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{Event, FLAG_BORROWED_MEMORY, FLAG_IMAGE, NAME_BYTES, Origin, Usage};
use gpu_track_abi::task::TaskKeys;

use crate::model::exit_account::{ExitAccount, ThreadAccount};
use crate::model::kernel_event::{KernelEvent, What};
use crate::model::record_or_event::{Finding, StoredRecord};

pub(super) const LAUNCHER: u32 = 100;
pub(super) const PID_NS: u32 = 10;
pub(super) const START_NS: u64 = 1_000_000_000_000;

const US: u64 = 1000;
const MIB_KIB: u64 = 1024;
/// RSS of a program that has just started.
const PROGRAM_KIB: u64 = 1500;
/// RSS of the launcher. The command inherits its ru_maxrss.
const LAUNCHER_KIB: u64 = 5000;
/// The core cannot tell whether this much of a fork child's growth is its parent's file pages, read in again.
const FILE_BYTES: u64 = 4 << 20;
/// No pid is used again so soon: a real machine hands out thousands before.
const PID_REST_NS: u64 = 60_000_000;

/// A process writes its first record after this time at the latest.
const LATEST_RECORD_NS: u64 = 10_000_000;
/// Every third program takes this long to load. The core takes it for uninstrumented until its START.
const SLOW_LOAD_NS: u64 = 80_000_000;

/// How the trees of a test are made.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// The process connector reports forks, execs and ends.
    pub(super) has_connector: bool,
    /// Some programs are uninstrumented.
    pub(super) has_uninstrumented: bool,
    /// Instrumented programs wait by raw system calls now and then, which no record tells of.
    pub(super) has_raw_waits: bool,
    /// The kernel's accounts of exits are read.
    pub(super) has_accounts: bool,
    /// Uninstrumented programs ignore SIGCHLD now and then, so that the kernel reaps their children.
    pub(super) has_ignored_children: bool,
    /// The command is an uninstrumented subreaper.
    pub(super) is_below_subreaper: bool,
    /// Some processes make the init of a new pid namespace by a raw clone, as bwrap does.
    pub(super) has_sandboxes: bool,
    /// The command runs one static child after another, which only scans of /proc show.
    pub(super) is_in_turn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exe {
    Instrumented,
    Static,
    Subreaper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    Zombie,
    Reaped,
}

/// The record that the shim writes when the process runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    Fork { parent: u32 },
    Start,
}

/// The range that contains the true peak RSS, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PeakRange {
    pub(super) at_least: u64,
    pub(super) at_most: u64,
}

#[derive(Debug, Clone)]
pub(super) struct SimProcess {
    pub(super) pid: u32,
    /// Index; `None`: the launcher.
    pub(super) parent: Option<usize>,
    pub(super) start_ns: u64,
    pub(super) life: Life,
    pub(super) exe: Exe,
    due: Due,
    due_since_ns: u64,
    /// It is loaded so slowly that its START comes late.
    is_slow: bool,
    /// It ran an uninstrumented program.
    pub(super) was_uninstrumented: bool,
    pub(super) rss_kib: u64,
    pub(super) hwm_kib: u64,
    /// What all its images wrote to.
    faulted_kib: u64,
    /// RSS at the fork, while it runs a copy of its parent.
    at_fork_kib: Option<u64>,
    /// That copy grew, and was replaced by a program.
    pub(super) had_grown_copy: bool,
    /// ru_maxrss of the images before.
    earlier_max_rss_kib: u64,
    max_rss_at_start_kib: u64,
    has_written_start: bool,
    pub(super) own_us: u64,
    children: Usage,
    /// It ignores SIGCHLD.
    ignores_children: bool,
    pub(super) status: i32,
    /// It wrote an EXIT record.
    pub(super) has_written_exit: bool,
    pub(super) peak: PeakRange,
    reaped_ns: u64,
}

impl SimProcess {
    fn max_rss_kib(&self) -> u64 {
        self.earlier_max_rss_kib.max(self.hwm_kib)
    }

    fn own(&self) -> Usage {
        Usage { user_us: self.own_us, max_rss_kib: self.max_rss_kib(), ..Usage::default() }
    }

    /// What wait4 gives: the process and all that it waited for.
    fn waited(&self) -> Usage {
        Usage {
            user_us: self.own_us + self.children.user_us,
            max_rss_kib: self.max_rss_kib().max(self.children.max_rss_kib),
            ..Usage::default()
        }
    }

    /// An image is over, by an exec or the process's end: the process's true peak has its part of it.
    fn note_peak(&mut self, is_exec: bool) {
        let hwm = self.hwm_kib * 1024;
        let range = match self.at_fork_kib {
            Some(at_fork) if is_exec => {
                let own = hwm - at_fork * 1024;
                self.had_grown_copy |= own > FILE_BYTES;
                let is_certain = own > FILE_BYTES + 2 * tolerance(hwm);
                let at_most = own + FILE_BYTES.min(at_fork * 1024);
                PeakRange { at_least: if is_certain { own } else { 0 }, at_most }
            }
            _ => PeakRange { at_least: hwm, at_most: hwm },
        };
        self.peak.at_least = self.peak.at_least.max(range.at_least);
        self.peak.at_most = self.peak.at_most.max(range.at_most);
    }
}

/// How far a peak may be off.
pub(super) fn tolerance(rss_bytes: u64) -> u64 {
    (rss_bytes / 100).max(1 << 20)
}

pub(super) struct Machine {
    pub(super) rules: Rules,
    pub(super) now_ns: u64,
    pub(super) processes: Vec<SimProcess>,
    records: Vec<StoredRecord>,
    events: Vec<KernelEvent>,
    /// Pid and start of processes that exited, with the kernel's accounts of them.
    pub(super) accounts: Vec<(u32, u64, ExitAccount)>,
    written: u64,
    next_pid: u32,
    pids: u32,
    /// Pid namespaces that were made.
    namespaces: u32,
    /// What processes used after their EXIT records.
    pub(super) after_exit_us: u64,
    /// A process may have waited for a child, for all that is told, and an uninstrumented subreaper did.
    pub(super) has_untold_waits: bool,
}

impl Machine {
    /// With the command running. So many pids are there.
    pub(super) fn new(rules: Rules, pids: u32) -> Self {
        let mut machine = Self {
            rules,
            now_ns: START_NS + 1000 * US,
            processes: Vec::new(),
            records: Vec::new(),
            events: Vec::new(),
            accounts: Vec::new(),
            written: 0,
            next_pid: 0,
            pids,
            namespaces: 0,
            after_exit_us: 0,
            has_untold_waits: false,
        };
        let main = machine.make(None);
        if rules.is_below_subreaper {
            machine.exec(main, Exe::Subreaper);
            let child = machine.make(Some(main));
            machine.exec(child, Exe::Instrumented);
        } else {
            machine.exec(main, Exe::Instrumented);
        }
        machine
    }

    pub(super) fn main_pid(&self) -> u32 {
        self.processes[0].pid
    }

    pub(super) fn by_pid(&self, pid: u32) -> Option<&SimProcess> {
        self.processes.iter().rev().find(|process| process.pid == pid && process.life != Life::Reaped)
    }

    pub(super) fn alive(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|at| self.processes[*at].life == Life::Alive).collect()
    }

    /// The findings so far, in the order in which the pump merges them.
    pub(super) fn take_findings(&mut self) -> Vec<Finding> {
        let mut events = std::mem::take(&mut self.events).into_iter().peekable();
        let mut findings = Vec::new();
        for record in std::mem::take(&mut self.records) {
            while let Some(event) = events.next_if(|event| event.at_ns <= record.origin.monotonic_ns) {
                findings.push(Finding::Kernel(event));
            }
            findings.push(Finding::Record(record));
        }
        findings.extend(events.map(Finding::Kernel));
        findings
    }

    pub(super) fn pass(&mut self, us: u64) {
        self.now_ns += us.max(1) * US;
    }

    fn tell(&mut self, what: What, pid: u32) {
        self.pass(1);
        if self.rules.has_connector {
            self.events.push(KernelEvent { at_ns: self.now_ns, pid, what });
        }
    }

    fn write(&mut self, pid: u32, parent: u32, flags: u8, event: Event) {
        self.pass(1);
        let origin = Origin { pid, pid_ns: PID_NS, parent, monotonic_ns: self.now_ns, flags };
        self.records.push(StoredRecord { position: self.written, origin, event });
        self.written += 1;
    }

    fn parent_pid(&self, at: usize) -> u32 {
        self.processes[at].parent.map_or(LAUNCHER, |parent| self.processes[parent].pid)
    }

    fn free_pid(&mut self) -> Option<u32> {
        for _ in 0..self.pids {
            let pid = LAUNCHER + 1 + self.next_pid;
            self.next_pid = (self.next_pid + 1) % self.pids;
            let last = self.processes.iter().rev().find(|process| process.pid == pid);
            if last.is_none_or(|p| p.life == Life::Reaped && p.reaped_ns + PID_REST_NS < self.now_ns) {
                return Some(pid);
            }
        }
        None
    }

    fn make(&mut self, parent: Option<usize>) -> usize {
        let pid = self.free_pid().expect("callers ask whether there is one");
        let maker = parent.map(|parent| self.processes[parent].clone());
        let rss_kib = maker.as_ref().map_or(LAUNCHER_KIB, |maker| maker.rss_kib);
        let parent_pid = maker.as_ref().map_or(LAUNCHER, |maker| maker.pid);
        self.tell(What::Fork { parent: parent_pid }, pid);
        let exe = maker.map_or(Exe::Static, |maker| maker.exe);
        self.processes.push(SimProcess {
            pid,
            parent,
            start_ns: self.now_ns,
            life: Life::Alive,
            exe,
            due: if exe == Exe::Instrumented { Due::Fork { parent: parent_pid } } else { Due::Nothing },
            due_since_ns: self.now_ns,
            is_slow: false,
            was_uninstrumented: exe != Exe::Instrumented && parent.is_some(),
            rss_kib,
            hwm_kib: rss_kib,
            faulted_kib: 0,
            at_fork_kib: Some(rss_kib),
            had_grown_copy: false,
            earlier_max_rss_kib: 0,
            max_rss_at_start_kib: rss_kib,
            has_written_start: false,
            own_us: 0,
            children: Usage::default(),
            ignores_children: false,
            status: 0,
            has_written_exit: false,
            peak: PeakRange::default(),
            reaped_ns: 0,
        });
        self.processes.len() - 1
    }

    /// Time goes by, in which all have run that had something to write.
    pub(super) fn pass_all(&mut self, us: u64) {
        self.pass(us);
        for at in self.alive() {
            if self.processes[at].due_since_ns + LATEST_RECORD_NS < self.now_ns && !self.is_loading(at) {
                self.run(at);
            }
        }
    }

    /// Whether a process's program is still being loaded, and has not reached the shim.
    pub(super) fn is_loading(&self, at: usize) -> bool {
        let process = &self.processes[at];
        process.is_slow && process.due == Due::Start && self.now_ns < process.due_since_ns + SLOW_LOAD_NS
    }

    /// A process runs: the shim writes what is due.
    pub(super) fn run(&mut self, at: usize) {
        let (pid, max_rss_kib) = (self.processes[at].pid, self.processes[at].max_rss_kib());
        let realtime_ns = self.now_ns;
        match std::mem::replace(&mut self.processes[at].due, Due::Nothing) {
            Due::Nothing => return,
            Due::Fork { parent } => {
                let event = Event::Fork { realtime_ns, pidfd_inode: 0, max_rss_kib, parent_pid_ns: PID_NS };
                self.write(pid, parent, 0, event);
            }
            Due::Start => {
                let mut names = [0; NAME_BYTES];
                names[..4].copy_from_slice(b"prog");
                let event = Event::Start {
                    realtime_ns,
                    pidfd_inode: 0,
                    max_rss_kib,
                    names,
                    rank: Rank::default(),
                    task: TaskKeys::NONE,
                };
                self.write(pid, self.parent_pid(at), 0, event);
                self.processes[at].has_written_start = true;
            }
        }
        self.processes[at].max_rss_at_start_kib = max_rss_kib;
    }

    pub(super) fn compute(&mut self, at: usize, us: u64) {
        self.processes[at].own_us += us;
        self.pass(us);
    }

    pub(super) fn grow(&mut self, at: usize, mib: u64) {
        let process = &mut self.processes[at];
        process.rss_kib += mib * MIB_KIB;
        process.faulted_kib += mib * MIB_KIB;
        process.hwm_kib = process.hwm_kib.max(process.rss_kib);
        self.pass(20);
    }

    pub(super) fn fork(&mut self, at: usize) -> Option<usize> {
        let next = self.next_pid;
        self.free_pid()?;
        self.next_pid = next;
        Some(self.make(Some(at)))
    }

    /// posix_spawn: the child shares its parent's memory until it execs, and its parent waits for that.
    pub(super) fn spawn(&mut self, at: usize, exe: Exe) {
        let Some(child) = self.fork(at) else { return };
        // A vfork child runs no atfork handler.
        self.processes[child].due = Due::Nothing;
        self.processes[child].hwm_kib = self.processes[at].hwm_kib;
        self.processes[child].at_fork_kib = Some(self.processes[at].hwm_kib);
        self.exec(child, exe);
    }

    pub(super) fn exec(&mut self, at: usize, exe: Exe) {
        let process = &self.processes[at];
        if process.has_written_start && process.max_rss_kib() <= process.max_rss_at_start_kib {
            let (pid, vm_hwm_kib) = (process.pid, process.hwm_kib);
            self.write(pid, self.parent_pid(at), 0, Event::Exec { vm_hwm_kib });
        }
        self.tell(What::Exec, self.processes[at].pid);
        let now_ns = self.now_ns;
        let process = &mut self.processes[at];
        process.note_peak(true);
        process.earlier_max_rss_kib = process.max_rss_kib();
        (process.rss_kib, process.hwm_kib) = (PROGRAM_KIB, PROGRAM_KIB);
        process.faulted_kib += PROGRAM_KIB;
        process.at_fork_kib = None;
        process.has_written_start = false;
        process.exe = exe;
        process.ignores_children &= exe == Exe::Static;
        process.was_uninstrumented |= exe != Exe::Instrumented;
        process.due_since_ns = now_ns;
        process.is_slow = (now_ns / US).is_multiple_of(3);
        process.due = if exe == Exe::Instrumented { Due::Start } else { Due::Nothing };
    }

    /// exit(3), or by a raw system call, which no record tells of.
    pub(super) fn exit(&mut self, at: usize, code: i32, is_raw: bool) {
        let process = &mut self.processes[at];
        if process.exe == Exe::Instrumented && !is_raw {
            process.has_written_exit = true;
            let (own, children) = (process.own(), process.children);
            let is_image = process.has_written_start;
            let has_grown = own.max_rss_kib > process.max_rss_at_start_kib;
            let event = Event::Exit {
                status: code,
                vm_hwm_kib: if is_image && !has_grown { process.hwm_kib } else { 0 },
                own,
                children,
            };
            let pid = process.pid;
            self.write(pid, self.parent_pid(at), if is_image { FLAG_IMAGE } else { 0 }, event);
            // To take its memory down.
            let us = self.processes[at].rss_kib / 1000;
            self.after_exit_us += us;
            self.compute(at, us);
        }
        self.end(at, code << 8);
    }

    /// A signal ends it, or another process does.
    pub(super) fn end(&mut self, at: usize, status: i32) {
        self.tell(What::Exit { status }, self.processes[at].pid);
        let process = &mut self.processes[at];
        if self.rules.has_accounts {
            let account = ExitAccount {
                cpu_ns: Some(process.own_us * US),
                is_cpu_whole: true,
                peak_rss_bytes: Some(process.hwm_kib * 1024),
                thread: Some(ThreadAccount {
                    user_us: process.own_us,
                    system_us: 0,
                    faulted_bytes: process.faulted_kib * 1024,
                }),
            };
            self.accounts.push((process.pid, process.start_ns, account));
        }
        process.note_peak(false);
        if process.due == Due::Start {
            // Nor does it here.
            process.peak.at_most = process.peak.at_most.max(process.earlier_max_rss_kib * 1024);
        }
        (process.status, process.life) = (status, Life::Zombie);
        let parent = process.parent;
        if parent.is_some_and(|parent| self.processes[parent].ignores_children) {
            let process = &mut self.processes[at];
            (process.life, process.reaped_ns) = (Life::Reaped, self.now_ns);
        }
        let is_subreaper =
            |at: &usize| self.processes[*at].exe == Exe::Subreaper && self.processes[*at].life == Life::Alive;
        let heir = Some(0).filter(is_subreaper);
        let tells_waits = self.processes[at].has_written_exit;
        for child in &mut self.processes {
            if child.parent == Some(at) {
                self.has_untold_waits |= child.life == Life::Zombie && heir.is_some() && !tells_waits;
                child.parent = heir;
            }
        }
    }

    /// A program without the shim ignores SIGCHLD from now on: the kernel reaps those of its children that end later.
    pub(super) fn ignore_children(&mut self, at: usize) {
        self.processes[at].ignores_children = self.processes[at].exe == Exe::Static;
    }

    /// A raw clone makes the init of a new pid namespace, which runs a program that can't report, waits for it, and exits.
    /// Only its EXIT record is written.
    pub(super) fn sandbox(&mut self, at: usize, own_us: u64, inner_us: u64) {
        let Some(init) = self.fork(at) else { return };
        let is_init = |process: &mut SimProcess| {
            process.due = Due::Nothing;
            process.was_uninstrumented = true;
        };
        is_init(&mut self.processes[init]);
        self.compute(init, own_us);
        if inner_us > 0
            && let Some(inner) = self.fork(init)
        {
            is_init(&mut self.processes[inner]);
            self.exec(inner, Exe::Static);
            self.compute(inner, inner_us);
            self.end(inner, 0);
            self.wait(Some(init), true);
        }
        self.pass(1);
        self.namespaces += 1;
        let (status, pid_ns) = ((own_us % 3) as i32, PID_NS + self.namespaces);
        let process = &mut self.processes[init];
        process.has_written_exit = true;
        let event = Event::Exit { status, vm_hwm_kib: 0, own: process.own(), children: process.children };
        let origin =
            Origin { pid: 1, pid_ns, parent: 0, monotonic_ns: self.now_ns, flags: FLAG_BORROWED_MEMORY };
        self.records.push(StoredRecord { position: self.written, origin, event });
        self.written += 1;
        self.end(init, status << 8);
    }

    pub(super) fn youngest_child(&self, at: usize) -> Option<usize> {
        let is_child = |child: &&SimProcess| child.parent == Some(at) && child.life == Life::Alive;
        self.processes.iter().rposition(|child| is_child(&child))
    }

    /// The process, or the launcher, waits for its oldest child that has ended. Whether there was one.
    pub(super) fn wait(&mut self, reaper: Option<usize>, is_raw: bool) -> bool {
        let is_its = |child: &SimProcess| child.parent == reaper && child.life == Life::Zombie;
        let Some(at) = self.processes.iter().position(is_its) else { return false };
        self.pass(5);
        let now_ns = self.now_ns;
        let child = &mut self.processes[at];
        (child.life, child.reaped_ns) = (Life::Reaped, now_ns);
        let (pid, status, usage, own_us) = (child.pid, child.status, child.waited(), child.own_us);
        let (reaper_pid, reaper_max_rss_kib, tells) = match reaper {
            None => (LAUNCHER, LAUNCHER_KIB, true),
            Some(reaper) => {
                let process = &mut self.processes[reaper];
                process.children.user_us += usage.user_us;
                process.children.max_rss_kib = process.children.max_rss_kib.max(usage.max_rss_kib);
                (process.pid, process.max_rss_kib(), process.exe == Exe::Instrumented && !is_raw)
            }
        };
        if tells {
            // The launcher reads the clock of a zombie; a process that has waited can't.
            let clock_ns = if reaper.is_none() { own_us * US } else { 0 };
            let event = Event::Reaped { child: pid, status, reaper_max_rss_kib, usage, clock_ns };
            self.write(reaper_pid, 0, 0, event);
        }
        true
    }
}
