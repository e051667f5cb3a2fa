//! What the threads of the run do: the state of each, and how long it ran and waited for a core.
//!
//! | figure | source | cost (Linux 6.18) |
//! |---|---|---|
//! | ran, and waited for a core, nanoseconds | `task/TID/schedstat` (Documentation/scheduler/sched-stats.rst) | 0.4 us by a held file |
//! | the kernel function in which it sleeps | `task/TID/wchan`; `0`: it is ready, or the kernel does not tell | 1.2 us by a held file |
//! | the cores that it may use | sched_getaffinity(2) | 0.2 us |
//! | its state, a letter | `stat`, which samples read of the first thread | 10 us of others |
//!
//! A process that used no CPU time since the sample before costs nothing, if all of its threads were read and blocked: they still are. A
//! thread that ran nearly all the time is ready, so its `wchan` is not read. What is left has a budget of CPU time. If it does not last for
//! all threads, each reading goes on where the one before stopped. The others count as they were when they were last read.

use std::fs::{self, File};

use rustc_hash::{FxHashMap, FxHashSet};
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::model::ids::ProcessId;
use crate::model::observation::{
    Observation, ProcessThreads, TaskTimes, ThreadStates as Found, ThreadTarget,
};
use crate::model::report::TimeState;
use crate::model::thread_state::{ThreadState, Wait};
use crate::sys::clock;
use crate::sys::descriptors::{Descriptor, Position, descriptors};
use crate::sys::proc_fs::{ProcRoot, Stat, read_held};

/// Threads are read once in this time at most, nanoseconds.
const PERIOD_NS: u64 = 20_000_000;
/// The threads of a run that is younger than this are not read, nanoseconds: it may be over before anybody asks why it is slow.
const YOUNGEST_NS: u64 = 50_000_000;
/// Readings may cost one part in this many of the time.
const BUDGET_PART: u64 = 200;
/// What is saved up for a reading, at most, nanoseconds.
const MOST_SAVED_NS: u64 = 5_000_000;
/// After so many looks into /proc, their cost is subtracted from the budget. Not after each: to read the clock costs as much as a
/// tenth of a look.
const LOOKS_AT_ONCE: u32 = 8;
/// The threads of a process are listed again after this time, even if there are as many as before, nanoseconds.
const LISTED_NS: u64 = 1_000_000_000;
/// Between two lists of a process's threads there is at least this much time for each of them, nanoseconds: listing takes 0.5% of a
/// core then.
const LISTED_NS_A_THREAD: u64 = 200_000;
/// If another thread of the process used this many times the CPU time of a thread, the process does not wait for that thread.
const POOLED_PART: u64 = 5;
/// How many processes are looked at for the other end of a pipe.
const MAX_PEERS: usize = 64;
/// For so long it is remembered whether the other end of a pipe is of the run, nanoseconds.
const PIPES_NS: u64 = 1_000_000_000;
/// How many files are held at most, whatever the limit of descriptors: the kernel's memory for them counts for the job.
const MAX_HELD: usize = 4096;

/// Reads what threads do.
#[derive(Debug, Default)]
pub(crate) struct ThreadReader {
    root: ProcRoot,
    processes: FxHashMap<ProcessId, HeldProcess>,
    /// When threads were last read, CLOCK_MONOTONIC nanoseconds; 0: never.
    read_ns: u64,
    /// CLOCK_MONOTONIC nanoseconds. What threads used before does not count: an earlier collector has counted it, or it is from before
    /// the run. `u64::MAX` before the first reading after an earlier collector.
    counted_until_ns: u64,
    /// CPU time that may be spent now, nanoseconds.
    saved_ns: u64,
    /// CPU time of the collector's own thread when the cost of looks was last subtracted from `saved_ns`, nanoseconds.
    charged_cpu_ns: u64,
    /// Looks into /proc since then.
    looks: u32,
    /// At which process the next reading begins.
    first: usize,
    /// This many files may be held open; 0 before the first reading.
    most_held: usize,
    /// This many are.
    held: usize,
    /// Whether the other end of a pipe is of the run, by the pipe's name.
    pipes: FxHashMap<String, bool>,
    /// When `pipes` was last emptied, CLOCK_MONOTONIC nanoseconds.
    pipes_ns: u64,
    /// The cores that the threads which ran or waited for one since the last reading may use together.
    cores: CpuSet,
    /// Pages that the machine read from swap (pswpin of /proc/vmstat), by the last reading that asked.
    swapped_in: u64,
}

/// A process whose threads were read.
#[derive(Debug, Default)]
struct HeldProcess {
    threads: Vec<HeldThread>,
    /// The thread with which the next reading begins.
    next: usize,
    /// When its threads were listed, CLOCK_MONOTONIC nanoseconds; 0: never.
    listed_ns: u64,
    /// The last reading did not come to all of its threads.
    is_stale: bool,
    /// The kernel has told in which function a thread of it sleeps.
    has_functions: bool,
    /// Its major faults at the last reading.
    major_faults: u64,
    /// What the core knows of its threads.
    told: Vec<(ThreadState, u32)>,
}

/// A thread.
#[derive(Debug)]
struct HeldThread {
    tid: u32,
    /// What it used before it was first read does not count.
    is_counted_before: bool,
    /// Its schedstat, if the kernel has one, and wchan. `None`: not opened yet, can't be opened, or too many files are held.
    files: Option<(Option<File>, File)>,
    /// Its times at the last reading. `None`: it was not read yet.
    times: Option<TaskTimes>,
    /// When it was last read, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
    /// CPU time, of which older one counts less, nanoseconds.
    recent_ns: u64,
    /// What it does. `None`: not known yet.
    does: Option<Doing>,
}

/// What a thread does, before it is known what other threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It has a core or waits for one.
    Ready,
    /// It has ended, and its process has not.
    Ended,
    /// It sleeps.
    Waits(Wait),
    /// It waits for a pipe whose other end is of the run.
    InnerPipe,
}

/// A reading of the threads of one process.
#[derive(Debug, Default)]
struct Sums {
    times: TaskTimes,
    longest_ran_ns: u64,
    longest_ready_ns: u64,
    /// How many threads were read.
    read: u32,
}

/// The time since the last reading of all threads.
#[derive(Debug, Clone, Copy)]
struct Span {
    now_ns: u64,
    elapsed_ns: u64,
}

impl ThreadReader {
    /// Prepares the first reading. `is_resumed`: an earlier collector has read the run's threads.
    pub(crate) fn new(root: ProcRoot, is_resumed: bool) -> Self {
        Self {
            root,
            counted_until_ns: if is_resumed { u64::MAX } else { 0 },
            saved_ns: MOST_SAVED_NS,
            ..Self::default()
        }
    }

    /// Reads what the threads of these processes do, if that is due at `now_ns` (CLOCK_MONOTONIC). `start_ns`: the begin of the run.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        start_ns: u64,
        targets: impl FnOnce() -> Vec<ThreadTarget>,
    ) -> Option<Observation> {
        let elapsed_ns = now_ns.saturating_sub(self.read_ns.max(start_ns));
        if elapsed_ns < PERIOD_NS || now_ns.saturating_sub(start_ns) < YOUNGEST_NS {
            return None;
        }
        // Only the first reading can change this: every later `now_ns` is larger.
        self.counted_until_ns = self.counted_until_ns.min(now_ns).max(start_ns);
        self.read_ns = now_ns;
        if self.most_held == 0 {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            self.most_held = usize::try_from(limit / 4).unwrap_or(usize::MAX).min(MAX_HELD);
        }
        self.saved_ns = (self.saved_ns + elapsed_ns / BUDGET_PART).min(MOST_SAVED_NS);
        (self.charged_cpu_ns, self.looks) = (clock::thread_cpu_ns(), 0);
        self.cores.clear();
        if now_ns.saturating_sub(self.pipes_ns) >= PIPES_NS {
            self.pipes.clear();
            self.pipes_ns = now_ns;
        }
        let targets = targets();
        self.forget_all_but(&targets);
        let mut found = Found::default();
        let count = targets.len();
        let first = if count == 0 { 0 } else { self.first % count };
        for index in (first..count).chain(0..first) {
            let target = &targets[index];
            found.total = found.total.saturating_add(u32::try_from(target.threads).unwrap_or(u32::MAX));
            let had_budget = self.saved_ns > 0;
            self.read_process(target, &targets, Span { now_ns, elapsed_ns }, &mut found);
            if had_budget && self.saved_ns == 0 {
                self.first = index;
            }
        }
        self.charge_cost();
        // Threads that were not read may use other cores.
        found.cores = if found.known < found.total { 0 } else { self.cores.count() };
        Some(Observation::ThreadStates(found))
    }

    /// Closes the files of processes that are not among these.
    fn forget_all_but(&mut self, targets: &[ThreadTarget]) {
        let alive: FxHashSet<ProcessId> = targets.iter().map(|target| target.target.id).collect();
        let mut closed = 0;
        self.processes.retain(|id, process| {
            let is_alive = alive.contains(id);
            closed += if is_alive { 0 } else { process.files() };
            is_alive
        });
        self.held -= closed;
    }

    /// Reads the threads of a process, as far as the budget lasts. One that rested blocked is as before.
    fn read_process(&mut self, target: &ThreadTarget, all: &[ThreadTarget], span: Span, found: &mut Found) {
        let id = target.target.id;
        let mut process = self.processes.remove(&id).unwrap_or_default();
        if target.has_rested && process.is_blocked() {
            found.known += process.told.iter().map(|(_, count)| count).sum::<u32>();
        } else if self.saved_ns == 0 {
            process.is_stale = true;
        } else {
            self.list(&mut process, target, span.now_ns);
            let sums = self.read_threads(&mut process, target, all, span);
            found.known += sums.read;
            found.times.ran_ns += sums.times.ran_ns;
            found.times.waited_ns += sums.times.waited_ns;
            found.longest_ran_ns = found.longest_ran_ns.max(sums.longest_ran_ns);
            found.longest_ready_ns = found.longest_ready_ns.max(sums.longest_ready_ns);
            let states = self.states(&mut process, target);
            if states != process.told || sums.times.waited_ns > 0 {
                let waited_ns = sums.times.waited_ns;
                found.changed.push(ProcessThreads { id, states: states.clone(), waited_ns });
                process.told = states;
            }
        }
        self.processes.insert(id, process);
    }

    /// Lists the threads of a process again, if that is due: at first, when their number has changed, and each [`LISTED_NS`] if there
    /// are several. Listing takes longer the more there are, so the time between two lists is at least [`LISTED_NS_A_THREAD`] for each.
    fn list(&mut self, process: &mut HeldProcess, target: &ThreadTarget, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(process.listed_ns);
        let is_single = target.threads <= 1;
        let has_changed = process.threads.len() as u64 != target.threads.max(1);
        let is_too_early = age_ns < target.threads.saturating_mul(LISTED_NS_A_THREAD);
        let may_be_outdated = has_changed || (!is_single && age_ns >= LISTED_NS);
        if process.listed_ns != 0 && (is_too_early || !may_be_outdated) {
            return;
        }
        let is_first = std::mem::replace(&mut process.listed_ns, now_ns) == 0;
        let pid = target.target.pid;
        let tids = if is_single { vec![pid] } else { self.root.threads(pid) };
        self.charge_cost();
        let alive: FxHashSet<u32> = tids.iter().copied().collect();
        self.forget(process, |thread| !alive.contains(&thread.tid));
        let known: FxHashSet<u32> = process.threads.iter().map(|thread| thread.tid).collect();
        // A thread that is first seen in a later list started after the list before: all of its time counts.
        let is_counted_before = is_first && target.target.identity.latest_start_ns < self.counted_until_ns;
        let new = tids.into_iter().filter(|tid| !known.contains(tid));
        process.threads.extend(new.map(|tid| HeldThread::new(tid, is_counted_before, now_ns)));
    }

    /// Forgets some threads of a process, and closes their files.
    fn forget(&mut self, process: &mut HeldProcess, is_gone: impl Fn(&HeldThread) -> bool) {
        let before = process.files();
        process.threads.retain(|thread| !is_gone(thread));
        self.held -= before - process.files();
    }

    /// Reads the threads of a process, as far as the budget lasts. The next reading begins where this one stops.
    fn read_threads(
        &mut self,
        process: &mut HeldProcess,
        target: &ThreadTarget,
        all: &[ThreadTarget],
        span: Span,
    ) -> Sums {
        let mut sums = Sums::default();
        let count = process.threads.len();
        let letter = (count == 1).then_some(target.letter);
        let mut gone = FxHashSet::default();
        process.is_stale = false;
        for index in (process.next..count).chain(0..process.next.min(count)) {
            if self.saved_ns == 0 {
                (process.next, process.is_stale) = (index, true);
                break;
            }
            let thread = &mut process.threads[index];
            let Some(used) = self.times(target.target.pid, thread) else {
                gone.insert(thread.tid);
                continue;
            };
            // If it was not read for several readings, it had the time of each.
            let since_ns = span.now_ns.saturating_sub(std::mem::replace(&mut thread.read_ns, span.now_ns));
            let part = span.elapsed_ns as f64 / since_ns.max(span.elapsed_ns) as f64;
            sums.add(used, part);
            self.add_cores(thread.tid, used);
            thread.recent_ns = thread.recent_ns - thread.recent_ns / 8 + used.ran_ns;
            let ran_throughout = used.ran_ns as f64 * part > span.elapsed_ns as f64 * 0.9;
            let does = if ran_throughout || letter == Some(b'R') {
                Doing::Ready
            } else {
                self.doing(target, thread, letter, used, &mut process.has_functions, all)
            };
            thread.does = Some(does);
        }
        self.forget(process, |thread| gone.contains(&thread.tid));
        sums
    }

    /// Reads how long a thread ran and waited since it was last read, or since its start; 0 if the kernel does not count that. `None`: it
    /// is gone, or may not be read.
    fn times(&mut self, pid: u32, thread: &mut HeldThread) -> Option<TaskTimes> {
        let mut buffer = [0; 128];
        self.note_look();
        if thread.files.is_none() && self.held + 2 <= self.most_held {
            let open = |file: &str| self.root.open(pid, &format!("task/{}/{file}", thread.tid)).ok();
            thread.files = open("wchan").map(|wchan| (open("schedstat"), wchan));
            self.held += if thread.files.is_some() { 2 } else { 0 };
        }
        let times = match &thread.files {
            Some((Some(schedstat), _)) => ProcRoot::parse_task_times(read_held(schedstat, &mut buffer)?)?,
            Some((None, _)) => TaskTimes::default(),
            None => self.root.task_times(pid, thread.tid)?,
        };
        let before_first = if thread.is_counted_before { times } else { TaskTimes::default() };
        let before = thread.times.replace(times).unwrap_or(before_first);
        // A smaller time is that of another thread, which has this id by now.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Some(TaskTimes {
            ran_ns: grown(times.ran_ns, before.ran_ns),
            waited_ns: grown(times.waited_ns, before.waited_ns),
        })
    }

    /// Finds out what a thread does that did not run throughout. `letter`: its state, if that is known; `used`: its times since it was
    /// last read. `has_functions`: the kernel has told in which function a thread of the process sleeps.
    fn doing(
        &mut self,
        target: &ThreadTarget,
        thread: &HeldThread,
        letter: Option<u8>,
        used: TaskTimes,
        has_functions: &mut bool,
        all: &[ThreadTarget],
    ) -> Doing {
        // Without a count of its times, nothing tells that it rested.
        let has_rested = used == TaskTimes::default() && thread.times.is_some_and(|times| times.ran_ns > 0);
        // Its state alone says less than its function would, which the kernel does not tell just then.
        let is_told = |does: &Doing| {
            !matches!(does, Doing::Ready | Doing::Ended | Doing::Waits(Wait::In(TimeState::Unknown)))
        };
        if let Some(does) = thread.does.filter(|does| has_rested && is_told(does)) {
            return does;
        }
        let pid = target.target.pid;
        let mut buffer = [0; 128];
        self.note_look();
        let held = thread.files.as_ref().and_then(|(_, wchan)| read_held(wchan, &mut buffer));
        let opened = match held {
            Some(_) => None,
            None => self.root.read(pid, &format!("task/{}/wchan", thread.tid)),
        };
        let name = std::str::from_utf8(held.or(opened.as_deref()).unwrap_or_default()).unwrap_or_default();
        let name = name.trim();
        if matches!(name, "" | "0") {
            if *has_functions && used != TaskTimes::default() {
                return Doing::Ready;
            }
            return self.doing_by_letter(pid, thread.tid, letter);
        }
        *has_functions = true;
        match Wait::in_function(name) {
            None => self.doing_by_letter(pid, thread.tid, letter),
            Some(Wait::Pipe) if self.is_inner_pipe(pid, name, all) => Doing::InnerPipe,
            Some(Wait::In(TimeState::Events)) => self.doing_in_poll(target, all),
            Some(Wait::SocketOrTerminal) if self.reads_terminal(pid) => {
                Doing::Waits(Wait::In(TimeState::Terminal))
            }
            Some(wait) => Doing::Waits(wait),
        }
    }

    /// What a thread does by its state in /proc, which is read if it is not known.
    fn doing_by_letter(&mut self, pid: u32, tid: u32, letter: Option<u8>) -> Doing {
        let read = || Stat::parse(&self.root.read(pid, &format!("task/{tid}/stat"))?).map(|stat| stat.state);
        let letter = letter.or_else(read);
        self.note_look();
        match letter {
            Some(b'R') | None => Doing::Ready,
            Some(b'Z' | b'X' | b'x') => Doing::Ended,
            Some(letter) => Doing::Waits(Wait::in_state(letter)),
        }
    }

    /// Whether a process waits for a terminal: it has one as its standard input, and no socket.
    fn reads_terminal(&mut self, pid: u32) -> bool {
        self.note_look();
        let mut open = descriptors(&self.root, pid).peekable();
        let stdin = fs::read_link(self.root.path(pid, "fd/0"));
        let is_terminal =
            stdin.is_ok_and(|path| path.starts_with("/dev/pts") || path.starts_with("/dev/tty"));
        is_terminal && open.peek().is_some() && !open.any(|file| file.name.starts_with("socket:"))
    }

    /// What a thread does that sleeps in poll, select or epoll. With a socket open, it waits for events. Without one, it waits for a
    /// pipe whose other end is of the run, if its process has one. Else it may wait for a child, if there is one: make sleeps so until
    /// SIGCHLD interrupts it.
    fn doing_in_poll(&mut self, target: &ThreadTarget, all: &[ThreadTarget]) -> Doing {
        self.note_look();
        let pid = target.target.pid;
        if descriptors(&self.root, pid).any(|file| file.name.starts_with("socket:")) {
            return Doing::Waits(Wait::In(TimeState::Events));
        }
        if self.is_inner_pipe(pid, "read", all) {
            return Doing::InnerPipe;
        }
        Doing::Waits(if target.has_child { Wait::ChildOrEvents } else { Wait::In(TimeState::Events) })
    }

    /// Adds the cores that a thread may use, if it ran or waited for one.
    fn add_cores(&mut self, tid: u32, used: TaskTimes) {
        if used == TaskTimes::default() {
            return;
        }
        let pid = i32::try_from(tid).ok().and_then(Pid::from_raw);
        let Some(cores) = pid.and_then(|pid| sched_getaffinity(Some(pid)).ok()) else { return };
        if cores != self.cores {
            let its = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
            its.take(cores.count() as usize).for_each(|core| self.cores.set(core));
        }
    }

    /// Whether the other end of a pipe that a process reads or writes in this function of the kernel is of the run. A process can have
    /// several pipes: one is enough.
    fn is_inner_pipe(&mut self, pid: u32, function: &str, all: &[ThreadTarget]) -> bool {
        self.note_look();
        let (reads, writes) = (function.contains("read"), function.contains("write"));
        // A file that is read or written has a position, and a pipe has none.
        let is_pipe = |end: &Descriptor| {
            (if end.is_written { !reads } else { !writes })
                && (!end.name.starts_with('/')
                    || Position::read(&self.root, pid, end.number).is_some_and(|at| at.position == 0))
        };
        let own: Vec<Descriptor> = pipe_ends(&self.root, pid).filter(is_pipe).collect();
        own.into_iter().any(|pipe| match self.pipes.get(&pipe.name) {
            Some(is_inner) => *is_inner,
            None => {
                let is_inner = self.has_peer(pid, &pipe, all);
                self.pipes.insert(pipe.name, is_inner);
                is_inner
            }
        })
    }

    /// Whether another one of these processes has the other end of a pipe of this one. Also true if there are more than [`MAX_PEERS`],
    /// or the budget ends before all were looked at: a pipe within the run is the usual case.
    fn has_peer(&mut self, pid: u32, pipe: &Descriptor, all: &[ThreadTarget]) -> bool {
        if all.len() > MAX_PEERS {
            return true;
        }
        for peer in all.iter().filter(|peer| peer.target.pid != pid) {
            let is_end = |end: Descriptor| end.name == pipe.name && end.is_written != pipe.is_written;
            if pipe_ends(&self.root, peer.target.pid).any(is_end) {
                return true;
            }
            self.charge_cost();
            if self.saved_ns == 0 {
                return true;
            }
        }
        false
    }

    /// What the threads of a process do, as far as they were read, and how many of them do it. A wait for storage of a process that had
    /// major faults is one for swap if the machine read pages from there.
    fn states(&mut self, process: &mut HeldProcess, target: &ThreadTarget) -> Vec<(ThreadState, u32)> {
        let mut states = process.states();
        let had_faults =
            std::mem::replace(&mut process.major_faults, target.major_faults) < target.major_faults;
        for (state, _) in &mut states {
            if *state == ThreadState::In(TimeState::Storage) && had_faults && self.has_swapped_in() {
                *state = ThreadState::In(TimeState::Swap);
            }
        }
        states
    }

    /// Whether the machine read pages from swap since this was last asked.
    fn has_swapped_in(&mut self) -> bool {
        self.note_look();
        let before = self.swapped_in;
        self.swapped_in = self.root.swapped_in().unwrap_or(before);
        before > 0 && self.swapped_in > before
    }

    /// Notes a look into /proc. After every [`LOOKS_AT_ONCE`], subtracts their cost from the budget.
    fn note_look(&mut self) {
        self.looks += 1;
        if self.looks >= LOOKS_AT_ONCE {
            self.charge_cost();
        }
    }

    /// Subtracts from the budget the CPU time that the collector's thread used since this was last done.
    fn charge_cost(&mut self) {
        let cpu_ns = clock::thread_cpu_ns();
        self.saved_ns = self.saved_ns.saturating_sub(cpu_ns.saturating_sub(self.charged_cpu_ns));
        (self.charged_cpu_ns, self.looks) = (cpu_ns, 0);
    }
}

/// The descriptors of a process that may be ends of a pipe. A named pipe has a path, as a file has. stat(2) would tell them apart, but can
/// wait for a file system. So a file that one process reads and another one writes is taken for a pipe.
fn pipe_ends(root: &ProcRoot, pid: u32) -> impl Iterator<Item = Descriptor> {
    let can_be_pipe =
        |name: &str| name.starts_with("pipe:") || (name.starts_with('/') && !name.starts_with("/dev/"));
    descriptors(root, pid).filter(move |file| can_be_pipe(&file.name))
}

impl HeldThread {
    /// A thread that was found at `read_ns`, CLOCK_MONOTONIC nanoseconds. `is_counted_before` is as in the field.
    fn new(tid: u32, is_counted_before: bool, read_ns: u64) -> Self {
        Self { tid, is_counted_before, files: None, times: None, read_ns, recent_ns: 0, does: None }
    }

    /// Whether it waits for something outside of its process that can come at any time. Threads of its process that wait on a futex wait for
    /// it: it is the worker of a pool, or an event loop.
    fn waits_for_others(&self) -> bool {
        match self.does {
            Some(Doing::InnerPipe) => true,
            Some(Doing::Waits(wait)) => matches!(
                wait,
                Wait::Child
                    | Wait::ChildOrEvents
                    | Wait::LocalSocket
                    | Wait::Pipe
                    | Wait::In(TimeState::Events | TimeState::Terminal)
            ),
            _ => false,
        }
    }
}

impl HeldProcess {
    /// How many files are held.
    fn files(&self) -> usize {
        self.threads.iter().filter(|thread| thread.files.is_some()).count() * 2
    }

    /// Whether all of its threads were read last time, and found blocked in a known state. A thread that is ready and gets no core uses no
    /// CPU time either.
    fn is_blocked(&self) -> bool {
        let is_open =
            |state: &ThreadState| matches!(state, ThreadState::Ready | ThreadState::In(TimeState::Unknown));
        !self.told.is_empty() && !self.is_stale && !self.told.iter().any(|(state, _)| is_open(state))
    }

    /// What its threads do, as far as they were read, and how many of them do it.
    fn states(&self) -> Vec<(ThreadState, u32)> {
        let most_recent_ns = self.threads.iter().map(|thread| thread.recent_ns).max().unwrap_or(0);
        let waits_for_others = self.threads.iter().any(HeldThread::waits_for_others);
        let mut states: Vec<(ThreadState, u32)> = Vec::new();
        for thread in &self.threads {
            let is_pooled = waits_for_others || thread.recent_ns.saturating_mul(POOLED_PART) < most_recent_ns;
            let state = match thread.does {
                None | Some(Doing::Ended) => continue,
                Some(Doing::Ready) => ThreadState::Ready,
                Some(Doing::InnerPipe) => ThreadState::InnerPipe,
                Some(Doing::Waits(wait)) => match wait {
                    Wait::In(TimeState::Lock) if is_pooled => ThreadState::Pooled,
                    Wait::In(state) => ThreadState::In(state),
                    Wait::Child => ThreadState::Child,
                    Wait::ChildOrEvents => ThreadState::ChildOrEvents,
                    Wait::LocalSocket => ThreadState::LocalSocket,
                    Wait::Pipe => ThreadState::In(TimeState::Pipe),
                    Wait::SocketOrTerminal => ThreadState::In(TimeState::Network),
                },
            };
            match states.iter_mut().find(|(known, _)| *known == state) {
                Some((_, count)) => *count += 1,
                None => states.push((state, 1)),
            }
        }
        states
    }
}

impl Sums {
    /// Adds the times of a thread, of which this part is of the time since the last reading.
    fn add(&mut self, used: TaskTimes, part: f64) {
        self.read += 1;
        self.times.ran_ns += used.ran_ns;
        self.times.waited_ns += used.waited_ns;
        let of_part = |ns: u64| (ns as f64 * part) as u64;
        self.longest_ran_ns = self.longest_ran_ns.max(of_part(used.ran_ns));
        self.longest_ready_ns =
            self.longest_ready_ns.max(of_part(used.ran_ns.saturating_add(used.waited_ns)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::ids::{Identity, Target};

    const MS: u64 = 1_000_000;
    /// Above the kernel's largest pid (PID_MAX_LIMIT): no real process is ever asked.
    const PID: u32 = 5_000_100;

    /// A /proc with one process, whose threads are made as they are put.
    struct Made {
        dir: tempfile::TempDir,
        reader: ThreadReader,
        now_ns: u64,
    }

    impl Made {
        fn new(is_resumed: bool) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let reader = ThreadReader::new(ProcRoot::new(dir.path()), is_resumed);
            Self { dir, reader, now_ns: 1000 * MS }
        }

        /// Writes how long a thread ran and waited, milliseconds, the function in which it sleeps, and its state.
        fn put(&self, pid: u32, tid: u32, ran_ms: u64, waited_ms: u64, function: &str, letter: char) {
            let task = self.dir.path().join(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("schedstat"), format!("{} {} 1\n", ran_ms * MS, waited_ms * MS)).unwrap();
            fs::write(task.join("wchan"), function).unwrap();
            let stat = format!("{tid} (x) {letter} 1 1 1 0 -1 0 9 0 0 0 5 6 0 0 20 0 1 0 9 1 1 1 1 1 77\n");
            fs::write(task.join("stat"), stat).unwrap();
        }

        fn target(&self, pid: u32, threads: u64, letter: char, has_rested: bool) -> ThreadTarget {
            let identity =
                Identity { pidfd_inode: 0, latest_start_ns: 5, is_start_rough: false, is_pid_held: false };
            ThreadTarget {
                target: Target { id: ProcessId(u64::from(pid)), pid, identity },
                threads,
                letter: letter as u8,
                has_rested,
                major_faults: 0,
                has_child: false,
            }
        }

        /// Reads the threads 100 ms after the last time.
        fn read(&mut self, targets: &[ThreadTarget]) -> Found {
            self.now_ns += 100 * MS;
            match self.reader.read(self.now_ns, 0, || targets.to_vec()) {
                Some(Observation::ThreadStates(found)) => found,
                other => panic!("{other:?}"),
            }
        }

        /// What the threads of this process do by the next reading.
        fn states(&mut self, target: ThreadTarget) -> Vec<(ThreadState, u32)> {
            self.read(&[target]);
            self.reader.processes[&target.target.id].states()
        }

        fn path(&self, pid: u32, file: &str) -> std::path::PathBuf {
            self.dir.path().join(pid.to_string()).join(file)
        }

        /// Gives a process a descriptor that is a link to this file.
        fn link(&self, pid: u32, number: u32, to: &Path) {
            fs::create_dir_all(self.path(pid, "fd")).unwrap();
            std::os::unix::fs::symlink(to, self.path(pid, &format!("fd/{number}"))).unwrap();
        }
    }

    const READY: ThreadState = ThreadState::Ready;

    fn in_state(state: TimeState) -> ThreadState {
        ThreadState::In(state)
    }

    // Requirement: SLOW-2
    #[test]
    fn thread_is_ready_or_in_the_state_of_its_function() {
        let mut made = Made::new(false);
        made.put(PID, PID, 5, 0, "hrtimer_nanosleep", 'S');
        let sleeping = made.target(PID, 1, 'S', false);
        assert_eq!(made.states(sleeping), [(in_state(TimeState::Sleeping), 1)]);
        made.put(PID, PID, 15, 3, "futex_do_wait", 'S');
        assert_eq!(made.states(sleeping), [(in_state(TimeState::Lock), 1)]);
        // It is as before if it used no time, whatever the file says.
        made.put(PID, PID, 15, 3, "do_epoll_wait", 'S');
        assert_eq!(made.states(sleeping), [(in_state(TimeState::Lock), 1)]);
        assert_eq!(made.states(made.target(PID, 1, 'R', false)), [(READY, 1)]);
        made.put(PID, PID, 16, 3, "snafu_wait", 'D');
        assert_eq!(made.states(made.target(PID, 1, 'D', false)), [(in_state(TimeState::Storage), 1)]);
        made.put(PID, PID, 17, 3, "snafu_wait", 'S');
        assert_eq!(made.states(sleeping), [(in_state(TimeState::Unknown), 1)]);
        // It ran nearly all of the 100 ms.
        made.put(PID, PID, 112, 3, "futex_do_wait", 'S');
        assert_eq!(made.states(sleeping), [(READY, 1)]);
    }

    // Requirement: SLOW-2
    #[test]
    fn state_decides_where_the_kernel_names_no_function() {
        let mut made = Made::new(false);
        for (letter, state) in [
            ('R', READY),
            ('S', in_state(TimeState::Unknown)),
            ('D', in_state(TimeState::Storage)),
            ('T', in_state(TimeState::Stopped)),
        ] {
            made.put(PID, PID, 1, 0, "0", letter);
            assert_eq!(made.states(made.target(PID, 1, letter, false)), [(state, 1)], "{letter}");
            // So do the states of several threads, which are read one by one.
            let of_two = PID + 10 + u32::from(letter as u8);
            made.put(of_two, of_two, 1, 0, "0", letter);
            made.put(of_two, of_two + 1, 1, 0, "0", letter);
            assert_eq!(made.states(made.target(of_two, 2, 'S', false)), [(state, 2)], "{letter}");
        }
    }

    // Requirement: SLOW-3
    #[test]
    fn idle_threads_of_a_pool_and_waits_within_the_run_are_no_waits_of_the_run() {
        let mut made = Made::new(false);
        made.put(PID, PID, 90, 0, "hrtimer_nanosleep", 'S');
        made.put(PID, PID + 1, 1, 0, "futex_do_wait", 'S');
        made.put(PID, PID + 2, 80, 0, "futex_do_wait", 'S');
        let states = made.states(made.target(PID, 3, 'S', false));
        assert_eq!(states.len(), 3, "{states:?}");
        for state in [in_state(TimeState::Sleeping), ThreadState::Pooled, in_state(TimeState::Lock)] {
            assert!(states.contains(&(state, 1)), "{states:?}");
        }
        // The worker of another pool waits for a server.
        let pool = PID + 60;
        made.put(pool, pool, 90, 0, "futex_do_wait", 'S');
        made.put(pool, pool + 1, 30, 0, "poll_schedule_timeout", 'S');
        let states = made.states(made.target(pool, 2, 'S', false));
        assert_eq!(states.len(), 2, "{states:?}");
        assert!(states.contains(&(ThreadState::Pooled, 1)), "{states:?}");
        // Make waits in poll(2) for its recipes.
        let make = PID + 70;
        made.put(make, make, 1, 0, "poll_schedule_timeout", 'S');
        let alone = made.target(make, 1, 'S', false);
        assert_eq!(made.states(alone), [(in_state(TimeState::Events), 1)]);
        made.put(make, make, 2, 0, "poll_schedule_timeout", 'S');
        assert_eq!(made.states(ThreadTarget { has_child: true, ..alone }), [(ThreadState::ChildOrEvents, 1)]);
        let parent = PID + 50;
        made.put(parent, parent, 1, 0, "do_wait", 'S');
        assert_eq!(made.states(made.target(parent, 1, 'S', false)), [(ThreadState::Child, 1)]);
    }

    // Requirement: SLOW-3
    #[test]
    fn pipe_is_a_wait_of_the_run_if_nobody_of_the_run_has_its_other_end() {
        let mut made = Made::new(false);
        let fifo = made.dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        made.put(PID, PID, 1, 0, "anon_pipe_read", 'S');
        made.link(PID, 0, &fifo);
        let alone = made.target(PID, 1, 'S', false);
        // A link in a directory of a test may be written to, so it stands for an end that is written to.
        assert_eq!(made.states(alone), [(in_state(TimeState::Pipe), 1)]);
    }

    // Requirement: CPU-11
    #[test]
    fn times_count_since_the_reading_before_and_after_a_restart_from_the_first_one() {
        let sums =
            |found: Found| (found.times.ran_ns / MS, found.times.waited_ns / MS, found.longest_ready_ns / MS);
        let mut made = Made::new(false);
        made.put(PID, PID, 100, 10, "0", 'R');
        made.put(PID, PID + 1, 50, 5, "0", 'R');
        let target = made.target(PID, 2, 'S', false);
        assert_eq!(sums(made.read(&[target])), (150, 15, 110));
        made.put(PID, PID + 1, 70, 9, "0", 'R');
        assert_eq!(sums(made.read(&[target])), (20, 4, 24));
        let mut resumed = Made::new(true);
        resumed.put(PID, PID, 100, 10, "0", 'R');
        assert_eq!(sums(resumed.read(&[resumed.target(PID, 1, 'R', false)])), (0, 0, 0));
        resumed.put(PID, PID, 130, 12, "0", 'R');
        assert_eq!(sums(resumed.read(&[resumed.target(PID, 1, 'R', false)])), (30, 2, 32));
    }

    // Requirement: SLOW-4
    #[test]
    fn each_of_many_threads_has_its_turn_and_few_files_are_held() {
        let mut made = Made::new(false);
        made.reader.most_held = 20;
        let threads = 1000;
        for tid in PID..PID + threads {
            made.put(PID, tid, 1, 0, "hrtimer_nanosleep", 'S');
        }
        let target = made.target(PID, u64::from(threads), 'S', false);
        let first = made.read(&[target]);
        assert!(first.known < threads && first.total == threads, "{first:?}");
        let is_known = |made: &Made| {
            let threads = &made.reader.processes[&target.target.id].threads;
            threads.len() == 1000 && threads.iter().all(|thread| thread.does.is_some())
        };
        let readings = (0..200).take_while(|_| {
            made.read(&[target]);
            !is_known(&made)
        });
        assert!(readings.count() < 200, "each has its turn");
        assert!(made.reader.held <= 20);
        // A process that has rested costs nothing, and one that is gone holds nothing.
        made.reader.saved_ns = 0;
        made.read(&[ThreadTarget { has_rested: true, ..target }]);
        made.read(&[]);
        assert_eq!((made.reader.held, made.reader.processes.len()), (0, 0));
    }
}
