//! How long the run's threads waited for a core: the run delay of the threads that use most CPU time.
//!
//! /proc/PID/task/TID/schedstat has the time that a thread ran and the time that it was ready and did not run, nanoseconds
//! (Documentation/scheduler/sched-stats.rst). The file /proc/PID/schedstat is about the first thread alone. Kernels without
//! CONFIG_SCHED_INFO have no such file, or zeros in it. For threads that are not read, the wait is concluded from the ratio of both
//! times.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::ids::{ProcessId, Target};
use crate::model::observation::{Observation, TaskTimes};
use crate::sys::clock::Timer;
use crate::sys::proc_fs::ProcRoot;

/// Threads are read once in this time at most.
const PERIOD_NS: u64 = 250_000_000;

/// Maximum number of threads that one reading looks at. Each takes 5.4 us of CPU time (Linux 6.18): 32 of them each
/// 250 ms are 0.07% of a core.
const MAX_TASKS: usize = 32;

/// Reads the run delay of threads.
#[derive(Debug)]
pub(crate) struct RunDelay {
    root: ProcRoot,
    timer: Timer,
    /// The times of each thread when it was last read, by its process and its id.
    last: FxHashMap<ProcessId, FxHashMap<u32, TaskTimes>>,
    /// CLOCK_MONOTONIC nanoseconds of the first reading after an earlier collector, which has counted times up to about then. 0:
    /// there was no earlier one. `u64::MAX` before that reading.
    counted_until_ns: u64,
}

impl RunDelay {
    /// Prepares the first reading. `is_resumed`: an earlier collector has read the run's threads.
    pub(crate) fn new(root: ProcRoot, is_resumed: bool) -> Self {
        let counted_until_ns = if is_resumed { u64::MAX } else { 0 };
        Self { root, timer: Timer::default(), last: FxHashMap::default(), counted_until_ns }
    }

    /// Reads how long threads ran and waited since they were last read, or since their start. `busiest` gives the
    /// processes that used most CPU time in the last sample, at most the given number, each with its number of threads. Forgets
    /// the times of processes for which `is_alive` is false. `now_ns`: CLOCK_MONOTONIC. `None`: no reading is due, or both times
    /// are 0.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        is_alive: impl Fn(ProcessId) -> bool,
        busiest: impl FnOnce(usize) -> Vec<(Target, u64)>,
    ) -> Option<Observation> {
        if !self.timer.is_due(now_ns, PERIOD_NS) {
            return None;
        }
        // Only the first reading can change this: every later `now_ns` is larger.
        self.counted_until_ns = self.counted_until_ns.min(now_ns);
        self.last.retain(|id, _| is_alive(*id));
        let mut sum = TaskTimes::default();
        let mut left = MAX_TASKS;
        for (target, threads) in busiest(MAX_TASKS) {
            let tasks = if threads <= 1 { vec![target.pid] } else { self.root.threads(target.pid) };
            self.forget_ended(target.id, &tasks);
            // If there are more threads than may be read, only every `step`th is read: threads that were started together do similar
            // work.
            let step = tasks.len().div_ceil(left).max(1);
            for task in tasks.into_iter().step_by(step).take(left) {
                left -= 1;
                if let Some(used) = self.times_since_last(&target, task) {
                    sum.ran_ns += used.ran_ns;
                    sum.waited_ns += used.waited_ns;
                }
            }
            if left == 0 {
                break;
            }
        }
        (sum != TaskTimes::default()).then_some(Observation::TaskTimes(sum))
    }

    /// Forgets the times of a process's threads that are not among these `tasks`, the threads that it has now.
    fn forget_ended(&mut self, id: ProcessId, tasks: &[u32]) {
        let Some(last) = self.last.get_mut(&id) else { return };
        let living: FxHashSet<u32> = tasks.iter().copied().collect();
        last.retain(|task, _| living.contains(task));
    }

    /// Reads the times of a thread since it was last read, or since its start, and keeps them for the next reading. They are 0 at
    /// its first reading if its process is older than this collector: an earlier one may have counted them. `None`: the thread is
    /// gone, or the kernel does not have them.
    fn times_since_last(&mut self, target: &Target, task: u32) -> Option<TaskTimes> {
        let times = self.root.task_times(target.pid, task)?;
        let may_be_counted = target.identity.latest_start_ns < self.counted_until_ns;
        let before_first = if may_be_counted { times } else { TaskTimes::default() };
        let before = self.last.entry(target.id).or_default().insert(task, times).unwrap_or(before_first);
        // Times only grow. A smaller one is that of another thread, which has this id by now.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Some(TaskTimes {
            ran_ns: grown(times.ran_ns, before.ran_ns),
            waited_ns: grown(times.waited_ns, before.waited_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model::ids::Identity;

    /// A /proc with one process of this pid, whose threads ran and waited so long.
    fn proc_with(pid: u32, tasks: &[(u32, u64, u64)]) -> (tempfile::TempDir, ProcRoot) {
        let dir = tempfile::tempdir().unwrap();
        tasks.iter().for_each(|(task, ran_ns, waited_ns)| put(&dir, pid, *task, *ran_ns, *waited_ns));
        let root = ProcRoot::new(dir.path());
        (dir, root)
    }

    /// Writes how long a thread ran and waited.
    fn put(dir: &tempfile::TempDir, pid: u32, task: u32, ran_ns: u64, waited_ns: u64) {
        let path = dir.path().join(format!("{pid}/task/{task}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("schedstat"), format!("{ran_ns} {waited_ns} 1\n")).unwrap();
    }

    /// A process of this pid that started then.
    fn target(pid: u32, latest_start_ns: u64) -> Target {
        let identity =
            Identity { pidfd_inode: 0, latest_start_ns, is_start_rough: false, is_pid_held: false };
        Target { id: ProcessId(u64::from(pid)), pid, identity }
    }

    #[test]
    fn thread_that_an_earlier_collector_may_have_read_counts_from_its_first_reading_on() {
        let (dir, root) = proc_with(7, &[(7, 100, 10)]);
        let mut delay = RunDelay::new(root, true);
        let mut read = |now_ns, targets: &[Target]| {
            let busiest = |_| targets.iter().map(|target| (*target, 1)).collect();
            match delay.read(now_ns, |_| true, busiest)? {
                Observation::TaskTimes(times) => Some((times.ran_ns, times.waited_ns)),
                other => panic!("{other:?}"),
            }
        };
        let resumed_ns = 50;
        assert_eq!(read(resumed_ns, &[target(7, 1)]), None);
        // One of the same age was not among the busiest then, and another one is new.
        put(&dir, 7, 7, 130, 12);
        put(&dir, 8, 8, 5000, 500);
        put(&dir, 9, 9, 4, 1);
        let all = [target(7, 1), target(8, 1), target(9, resumed_ns + 1)];
        assert_eq!(read(resumed_ns + PERIOD_NS, &all), Some((34, 3)));
        put(&dir, 8, 8, 5006, 502);
        assert_eq!(read(resumed_ns + 2 * PERIOD_NS, &all), Some((6, 2)));
    }

    #[test]
    fn threads_of_the_busiest_count_since_the_reading_before() {
        let (dir, root) = proc_with(7, &[(7, 100, 10), (8, 50, 5)]);
        let target = target(7, 0);
        let mut delay = RunDelay::new(root, false);
        let mut read = |now_ns, is_alive: bool| {
            let busiest = |most| [(target, 2)].into_iter().take(most).collect();
            match delay.read(now_ns, |_| is_alive, busiest)? {
                Observation::TaskTimes(times) => Some((times.ran_ns, times.waited_ns)),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read(1, true), Some((150, 15)));
        fs::write(dir.path().join("7/task/8/schedstat"), "70 9 2\n").unwrap();
        assert_eq!(read(2, true), None, "no reading is due");
        assert_eq!(read(1 + PERIOD_NS, true), Some((20, 4)));
        assert_eq!(read(1 + 2 * PERIOD_NS, true), None, "nothing ran");
        assert_eq!(read(1 + 3 * PERIOD_NS, false), Some((170, 19)), "a new process has the pid");
    }
}
