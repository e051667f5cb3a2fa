//! How long the run's threads waited for a core: the run delay of those that use most CPU time.
//!
//! /proc/PID/task/TID/schedstat has the time that a thread ran and the time that it was ready and did not run, nanoseconds
//! (Documentation/scheduler/sched-stats.rst). /proc/PID/schedstat is that of the first thread alone. Kernels without
//! CONFIG_SCHED_INFO have no such file, or zeros in it. What is waited by threads that are not read is concluded from the
//! ratio of both times.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::ids::ProcessId;
use crate::model::observation::{Observation, TaskTimes};
use crate::run::RunState;
use crate::sys::clock::Timer;
use crate::sys::proc_fs::ProcRoot;

/// Threads are read this often at most.
const PERIOD_NS: u64 = 250_000_000;

/// Most threads that one reading looks at. Each takes 5.4 us of CPU time (Linux 6.18): 32 of them each
/// 250 ms are 0.07% of a core.
const MOST_TASKS: usize = 32;

/// Reads the run delay of threads.
#[derive(Debug)]
pub(crate) struct RunDelay {
    root: ProcRoot,
    timer: Timer,
    /// The times of each thread when it was last read, by its process and its id.
    last: FxHashMap<ProcessId, FxHashMap<u32, TaskTimes>>,
    /// A collector before this one has counted what threads had by now.
    is_resumed: bool,
}

impl RunDelay {
    /// That of this /proc. `is_resumed`: another collector has read the run's threads before.
    pub(crate) fn new(root: ProcRoot, is_resumed: bool) -> Self {
        Self { root, timer: Timer::default(), last: FxHashMap::default(), is_resumed }
    }

    /// Times of threads since they were last read, or since their start, if a reading is due. The sample has just been taken.
    pub(crate) fn read(&mut self, run: &RunState, now_ns: u64) -> Option<Observation> {
        if !self.timer.is_due(now_ns, PERIOD_NS) {
            return None;
        }
        self.last.retain(|id, _| run.tree.get(*id).is_some_and(|process| process.is_alive()));
        let mut sum = TaskTimes::default();
        let mut left = MOST_TASKS;
        for (target, threads) in run.sampling.busiest(&run.tree, MOST_TASKS) {
            let tasks = if threads <= 1 { vec![target.pid] } else { self.root.threads(target.pid) };
            let last = self.last.entry(target.id).or_default();
            if !last.is_empty() {
                let living: FxHashSet<u32> = tasks.iter().copied().collect();
                last.retain(|task, _| living.contains(task));
            }
            // Of more threads than may be read, some from everywhere: a program starts those that do alike together.
            let step = tasks.len().div_ceil(left.max(1)).max(1);
            for task in tasks.into_iter().step_by(step).take(left) {
                left -= 1;
                let Some(times) = self.root.task_times(target.pid, task) else { continue };
                let at_start = if self.is_resumed { times } else { TaskTimes::default() };
                let before = last.insert(task, times).unwrap_or(at_start);
                let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
                sum.ran_ns += grown(times.ran_ns, before.ran_ns);
                sum.waited_ns += grown(times.waited_ns, before.waited_ns);
            }
            if left == 0 {
                break;
            }
        }
        self.is_resumed = false;
        (sum != TaskTimes::default()).then_some(Observation::TaskTimes(sum))
    }
}
