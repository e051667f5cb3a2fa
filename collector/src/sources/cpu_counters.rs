//! The kernel's counters of CPU time (perf_event_open(2), task-clock), for processes whose parents will not report their
//! ends: a counter can be read after the process was reaped, when its CPU clock can't.
//!
//! Root may count any process. Others may count their own, if `kernel.perf_event_paranoid` is 2 or less. Containers often
//! forbid it. Each switch to and from a counted process takes about a microsecond more, so processes that are switched often
//! are not counted for long.

use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_TASK_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr,
};

use crate::model::finding::Remains;
use crate::model::ids::{ProcessId, Target};
use crate::sys::pidfd;
use crate::sys::proc_fs::{ProcRoot, Stat};

/// Most counters at once: each holds a file descriptor.
const MOST: usize = 512;
/// Most threads of a process that are there when counting begins.
const MOST_THREADS: usize = 16;
/// How often it is checked what counting costs a process.
const CHECK_NS: u64 = 1_000_000_000;
/// A process that was switched to more often than that since the check before is not counted any more: it would lose more
/// than half a percent. Of several threads only the first one's switches can be read at once.
const MOST_SWITCHES: u64 = 5_000;

/// The counters of the processes that are counted.
#[derive(Debug)]
pub struct CpuCounters {
    root: ProcRoot,
    tick_us: u64,
    /// `None`: the process can't be counted.
    of: HashMap<ProcessId, Option<Counter>>,
    first: Option<First>,
}

/// The first counter on a machine makes the kernel rewrite its scheduler's code, which takes 10 ms. So a thread opens one
/// for itself, and keeps it. `None` inside: counting is not permitted.
type First = Arc<OnceLock<Option<OwnedFd>>>;

impl CpuCounters {
    /// Nothing is counted as yet. A clock tick is `tick_us` long.
    pub fn new(root: ProcRoot, tick_us: u64) -> Self {
        Self { root, tick_us, of: HashMap::new(), first: None }
    }

    /// Count these processes from now on, if that is possible.
    pub fn count(&mut self, targets: impl Iterator<Item = Target>, now_ns: u64) {
        for target in targets {
            if self.of.contains_key(&target.id) {
                continue;
            }
            let open: usize = self.of.values().flatten().map(|counter| counter.fds.len()).sum();
            if !self.is_ready() || open + MOST_THREADS > MOST {
                return;
            }
            if let Ok(counter) = Counter::start(&self.root, &target, self.tick_us) {
                let check_ns = now_ns.saturating_add(CHECK_NS);
                self.of.insert(target.id, counter.map(|counter| Counter { check_ns, ..counter }));
            }
        }
    }

    fn is_ready(&mut self) -> bool {
        let first = self.first.get_or_insert_with(|| {
            let first = First::default();
            let of_thread = Arc::clone(&first);
            let open = move || drop(of_thread.set(open(0)));
            let thread = std::thread::Builder::new().name("gpu-track-count".into()).stack_size(64 * 1024);
            if thread.spawn(open).is_err() {
                drop(first.set(None));
            }
            first
        });
        first.get().is_some_and(Option::is_some)
    }

    /// The final figures of a process that has ended, if it was counted.
    pub fn remains(&self, id: ProcessId) -> Option<Remains> {
        let cpu_ns = self.of.get(&id)?.as_ref()?.cpu_ns()?;
        Some(Remains { cpu_ns, stat: None })
    }

    /// Close the counters of processes whose figures are final, and of those that lose too much by it.
    pub fn retain(&mut self, now_ns: u64, is_open: impl Fn(ProcessId) -> bool) {
        self.of.retain(|id, _| is_open(*id));
        let root = &self.root;
        for counter in self.of.values_mut() {
            counter.take_if(|counter| counter.check_ns <= now_ns && counter.costs_much(root, now_ns));
        }
    }
}

/// Counts one process with its threads.
#[derive(Debug)]
struct Counter {
    pid: u32,
    /// Each counts a thread, and those that it starts.
    fds: Vec<OwnedFd>,
    /// What the process had used before it was counted, nanoseconds.
    before_ns: u64,
    /// How often it had been switched to at the last check.
    switches: u64,
    /// When the next check is, CLOCK_MONOTONIC nanoseconds.
    check_ns: u64,
}

/// Threads started or ended while they were listed.
struct ThreadsChanged;

impl Counter {
    /// `None` if counting is not permitted, or the process is another one, has ended or has many threads.
    fn start(root: &ProcRoot, target: &Target, tick_us: u64) -> Result<Option<Self>, ThreadsChanged> {
        let pid = target.pid;
        let Some(first) = open(pid) else { return Ok(None) };
        let inode = || pidfd::inode(pid).unwrap_or(0);
        let is_target = |stat: &Stat| target.identity.is_shown(stat.start_ns(tick_us), inode);
        let Some(stat) = root.stat(pid).filter(|stat| !stat.is_over() && is_target(stat)) else {
            return Ok(None);
        };
        let fds = match stat.threads {
            1 => Some(vec![first]),
            _ => {
                drop(first);
                open_all(root, pid)?
            }
        };
        Ok(fds.and_then(|fds| {
            let before_ns = pidfd::cpu_clock_ns(pid)?.saturating_sub(sum(&fds)?);
            Some(Self { pid, fds, before_ns, switches: 0, check_ns: 0 })
        }))
    }

    /// Whether the process is switched often. Of one that has ended nothing is known.
    fn costs_much(&mut self, root: &ProcRoot, now_ns: u64) -> bool {
        self.check_ns = now_ns.saturating_add(CHECK_NS);
        let Some(switches) = root.switches(self.pid) else { return false };
        let before = std::mem::replace(&mut self.switches, switches);
        switches.saturating_sub(before) > MOST_SWITCHES || root.threads(self.pid).len() > 1
    }

    /// CPU time of the process, nanoseconds.
    fn cpu_ns(&self) -> Option<u64> {
        Some(self.before_ns + sum(&self.fds)?)
    }
}

/// Counters of all threads of a process, unless there are many.
fn open_all(root: &ProcRoot, pid: u32) -> Result<Option<Vec<OwnedFd>>, ThreadsChanged> {
    let threads = root.threads(pid);
    if threads.len() > MOST_THREADS {
        return Ok(None);
    }
    let fds = threads.iter().map(|thread| open(*thread)).collect();
    // One that started meanwhile may be counted with the thread that started it, or not at all.
    if root.threads(pid) == threads { Ok(fds) } else { Err(ThreadsChanged) }
}

/// A counter of a thread, and of threads that it starts; 0: of the calling thread.
fn open(thread: u32) -> Option<OwnedFd> {
    let thread = i32::try_from(thread).ok()?;
    let mut attr = perf_event_attr {
        size: size_of::<perf_event_attr>() as u32,
        type_: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_TASK_CLOCK.into(),
        ..perf_event_attr::default()
    };
    attr.set_inherit(1);
    // Since Linux 5.13. Without it, children that are forked would count, too.
    attr.set_inherit_thread(1);
    // Others than root may not count in the kernel. This clock runs there nevertheless.
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    // SAFETY: `attr` lives through the call, and its size is its own.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(&raw mut attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC.into())
    };
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn sum(fds: &[OwnedFd]) -> Option<u64> {
    let read = |fd: &OwnedFd| {
        let mut count = [0; 8];
        (rustix::io::read(fd, &mut count) == Ok(count.len())).then(|| u64::from_ne_bytes(count))
    };
    fds.iter().map(read).sum()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use rustix::process::{WaitId, WaitIdOptions};

    use super::*;
    use crate::model::ids::Identity;

    fn target(pid: u32) -> Target {
        let identity =
            Identity { pidfd_inode: 0, latest_start_ns: u64::MAX, is_start_rough: false, is_pid_held: false };
        Target { id: ProcessId(3), pid, identity }
    }

    fn ready() -> Option<CpuCounters> {
        let mut counters = CpuCounters::new(ProcRoot::default(), 10_000);
        open(0)?;
        while !counters.is_ready() {
            std::thread::yield_now();
        }
        Some(counters)
    }

    // Requirement: SEE-96
    #[test]
    fn process_that_is_switched_often_is_not_counted_for_long() {
        let Some(mut counters) = ready() else {
            eprintln!("SKIPPED process_that_is_switched_often: perf_event_open is not permitted here");
            return;
        };
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut switch = |times: u64| {
            for _ in 0..times {
                std::io::Write::write_all(&mut to, b"x").unwrap();
                std::io::Read::read_exact(&mut from, &mut [0; 1]).unwrap();
            }
        };
        switch(1);
        counters.count([target(child.id())].into_iter(), 0);
        counters.retain(CHECK_NS, |_| true);
        assert!(counters.remains(ProcessId(3)).is_some());
        switch(MOST_SWITCHES + 100);
        counters.retain(CHECK_NS + 1, |_| true);
        assert!(counters.remains(ProcessId(3)).is_some(), "it is not checked as yet");
        counters.retain(2 * CHECK_NS, |_| true);
        assert!(counters.remains(ProcessId(3)).is_none());
        counters.count([target(child.id())].into_iter(), 0);
        assert!(counters.remains(ProcessId(3)).is_none(), "nor again");
        drop(to);
        child.wait().unwrap();
    }

    /// What a program used that is counted from its first line on: by its counter after it was reaped, and by its clock. It
    /// ends after its input does.
    fn counted_and_clock(counters: &mut CpuCounters, program: &mut Command) -> (u64, u64) {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("ready")));
        let target = target(child.id());
        counters.count([target].into_iter(), 0);
        drop(child.stdin.take());
        lines.for_each(drop);
        let ended = pidfd::open(target.pid).unwrap();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(ended.as_fd()), options).unwrap();
        let clock_ns = pidfd::cpu_clock_ns(target.pid).unwrap();
        child.wait().unwrap();
        let counted_ns = counters.remains(target.id).unwrap().cpu_ns;
        counters.retain(0, |_| false);
        assert!(counters.remains(target.id).is_none());
        (counted_ns, clock_ns)
    }

    // Requirement: SEE-53
    #[test]
    fn cpu_time_is_known_after_reaping() {
        let Some(mut counters) = ready() else {
            eprintln!("SKIPPED cpu_time_is_known_after_reaping: perf_event_open is not permitted here");
            return;
        };
        // It works before it is counted and afterwards, and so does a child, which is not counted.
        let work = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
        let script = format!("{work}; echo ready; read x; {work}; ({work}); exit");
        let threads =
            format!("{}::threads_that_work_when_the_input_ends", module_path!().split_once("::").unwrap().1);
        let mut one = Command::new("sh");
        let mut several = Command::new(std::env::current_exe().unwrap());
        one.args(["-c", &script]);
        several.args(["--ignored", "--nocapture", "--exact", &threads]);
        for program in [&mut one, &mut several] {
            let (counted_ns, clock_ns) = counted_and_clock(&mut counters, program);
            // What the kernel takes to end it is in the clock only.
            let most_ns = clock_ns / 20;
            assert!(counted_ns.abs_diff(clock_ns) < most_ns, "{counted_ns} counted, {clock_ns} by its clock");
        }
    }

    #[test]
    #[ignore = "a process with several threads, for the test above"]
    fn threads_that_work_when_the_input_ends() {
        let work = || {
            while rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec < 20_000_000 {}
        };
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(move || {
                        std::thread::park();
                        scope.spawn(work);
                        work();
                    })
                })
                .collect();
            println!("ready");
            assert_eq!(std::io::stdin().lines().count(), 0);
            waiting.iter().for_each(|thread| thread.thread().unpark());
        });
    }
}
