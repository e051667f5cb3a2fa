//! Where the wall time went: what the tree does at each moment, by the first [`TimeState`] that holds for one of its threads.
//!
//! The time between two readings of the threads is divided in two steps:
//!
//! - How long at least one thread was ready is known within bounds. It is no shorter than the longest time of one thread, and no longer
//!   than the sum of all. Where the bounds differ, [`Bounded`] decides by how often a reading saw a ready thread. Of that time the tree computed as
//!   long as its CPU time allows. For the rest its threads waited for a core.
//! - In the rest of the time all threads were blocked. A reading that finds no thread ready tells in which state. What passes before such a
//!   reading waits for it (`pending_ns`). A reading stands for three times its own length at most. If more
//!   is left at the end, the threads were not as readings saw them.

mod bounds;
mod gpu;
mod threads;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use self::bounds::{Bounded, ReadyTime};
use self::gpu::OnGpu;
use self::threads::{ByCommand, Threads};
use super::sampling::Sample;
use super::tree::Tree;
use crate::model::ids::{ProcessId, Target};
use crate::model::observation::{ProcessThreads, ThreadStates};
use crate::model::report::TimeState;
use crate::model::sorting::Sorting;
use crate::model::thread_state::ThreadState;
use crate::model::tree_sample::CommandSample;
use crate::model::waited_for::WaitedFor;

pub(crate) use self::bounds::CoresMoment;
pub(super) use self::gpu::GpuMoment;
pub(crate) use self::gpu::GpuSums;

/// Number of states.
const STATES: usize = TimeState::ALL.len();
/// Commands with sums of their own. The others share one.
const MAX_COMMANDS: usize = 32;
/// A reading that finds all threads blocked stands for this many times the time since the reading before, at most.
const MOST_BLOCKED_PARTS: u64 = 3;

/// Files, locks and connections that are remembered.
const MAX_WAITED_FOR: usize = 16;

/// A time in each state, nanoseconds.
pub(crate) type ByState = [u64; STATES];

/// One command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommandSums {
    /// Its name.
    pub command: Arc<str>,
    /// The wall time that counts as its own, since its threads were what the tree waited for or computed with, nanoseconds.
    pub wall_ns: ByState,
    /// The time of its threads, nanoseconds.
    pub thread_ns: ByState,
    /// The time that its threads waited for a child, nanoseconds.
    pub child_ns: u64,
    /// The time that they waited for a pipe whose other end is of the run, nanoseconds.
    pub pipe_ns: u64,
    /// The time in which it had more than one thread, nanoseconds.
    pub several_ns: u64,
    /// Time in which its threads were blocked, until a reading tells in which state, nanoseconds.
    carried_ns: u64,
    /// How often it was looked what its processes wait for.
    pub looks: u64,
}

/// What a command was found to wait for in a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub command: Arc<str>,
    pub state: TimeState,
    pub what: WaitedFor,
    /// How often.
    pub times: u64,
}

/// What is known of the time since the last reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Stretch {
    length_ns: u64,
    /// CPU time of commands, nanoseconds.
    cpu_ns: Vec<(Arc<str>, u64)>,
    /// CPU time of processes that ended, nanoseconds.
    ended_cpu_ns: u64,
    /// The longest that one of them computed, nanoseconds.
    longest_ended_ns: u64,
}

/// How the time between two readings is divided. In what is left of it, all threads were blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Division {
    pub length_ns: u64,
    pub computing_ns: u64,
    /// Threads waited for a core.
    pub waiting_ns: u64,
    /// They waited for a GPU in a loop.
    pub gpu_ns: u64,
    /// In which state blocked threads are, by the reading at its end. `None`: that found a thread ready.
    pub blocked_in: Option<TimeState>,
}

/// Where the time of a run went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TimeSpent {
    /// The commands that decided most time or have most threads.
    pub(crate) commands: Vec<CommandSums>,
    /// How many readings told what threads do.
    pub(crate) readings: u64,
    /// Threads of which the state was known at a reading, summed over the readings.
    pub(crate) known_threads: u64,
    /// All threads, summed over the readings.
    pub(crate) threads: u64,
    /// Wall time in which it computed, while it waited for a GPU in a loop included, nanoseconds.
    pub(crate) computing_ns: u64,
    /// CPU time while the tree computed, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Time in which all threads were blocked, and of which no reading told the state yet, nanoseconds.
    pub(crate) pending_ns: u64,
    /// Time between readings, nanoseconds.
    pub(crate) length_ns: u64,
    /// The part of it in which its threads were bound to one core of several, nanoseconds.
    pub(crate) bound_ns: u64,
    /// Where between its bounds the time with a ready thread lies, by how often readings saw one.
    bounded: Bounded,
    open: Stretch,
    /// GPUs of the run.
    pub(crate) gpu: GpuSums,
    /// What commands were found to wait for.
    pub(crate) found: Vec<Found>,
    /// What the last reading found, until the sample is complete.
    #[serde(skip)]
    reading: Option<ThreadStates>,
    /// The state that the last reading found to decide; `None`: a thread was ready.
    #[serde(skip)]
    decided: Option<TimeState>,
    /// What the threads of live processes do. A restarted collector reads all of them anew.
    #[serde(skip)]
    live: FxHashMap<ProcessId, Vec<(ThreadState, u32)>>,
}

impl Stretch {
    /// CPU time of a command, nanoseconds.
    fn cpu_ns_of(&self, command: &Arc<str>) -> u64 {
        self.cpu_ns.iter().find(|(name, _)| name == command).map_or(0, |(_, ns)| *ns)
    }
}

impl TimeSpent {
    /// Takes in what the threads of the run do. It counts once the sample is complete.
    pub(super) fn note(&mut self, states: &ThreadStates) {
        for ProcessThreads { id, states, .. } in &states.changed {
            self.live.insert(*id, states.clone());
        }
        self.reading = Some(states.clone());
    }

    /// Adds a complete sample and its commands. If threads were read in it, divides the time since they were last read, and returns how.
    /// `start_ns`: the begin of the run, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn add(
        &mut self,
        tree: &Tree,
        sample: &Sample,
        commands: &[CommandSample],
        gpu: Option<GpuMoment>,
        cores: CoresMoment,
        start_ns: u64,
    ) -> Option<Division> {
        self.open.length_ns += sample.at_ns.saturating_sub(sample.from_ns.max(start_ns));
        for CommandSample { command, cpu_ns, .. } in commands.iter().filter(|command| command.cpu_ns > 0) {
            match self.open.cpu_ns.iter_mut().find(|(name, _)| name == command) {
                Some((_, sum_ns)) => *sum_ns += cpu_ns,
                None => self.open.cpu_ns.push((Arc::clone(command), *cpu_ns)),
            }
        }
        for interval in &sample.intervals {
            let cpu_ns = interval.cpu_ns.max(0).unsigned_abs();
            let of_a_thread_ns = cpu_ns / interval.threads.max(1);
            self.open.ended_cpu_ns += cpu_ns;
            self.open.longest_ended_ns = self.open.longest_ended_ns.max(of_a_thread_ns);
            if interval.is_process && !self.live.contains_key(&interval.id) {
                let lived_ns = interval.end_ns.saturating_sub(interval.likely_start_ns);
                self.command(&interval.command).thread_ns[TimeState::Unknown as usize] += lived_ns;
            }
        }
        self.live.retain(|id, _| tree.get(*id).is_some_and(|process| process.is_alive()));
        self.reading.take().map(|reading| self.divide(tree, &reading, gpu, cores))
    }

    /// Notes a look at what a process of this command waits for in this state, and what was found. Beyond [`MAX_WAITED_FOR`], what was found
    /// least often is forgotten.
    pub(super) fn note_look(&mut self, command: &Arc<str>, state: TimeState, what: Option<&WaitedFor>) {
        let sums = self.command(command);
        sums.looks += 1;
        let Some(what) = what else { return };
        let is_same =
            |found: &&mut Found| found.command == *command && found.state == state && found.what == *what;
        if let Some(found) = self.found.iter_mut().find(is_same) {
            found.times += 1;
            return;
        }
        if self.found.len() >= MAX_WAITED_FOR {
            let least = (0..self.found.len()).min_by_key(|index| self.found[*index].times);
            least.map(|index| self.found.remove(index));
        }
        self.found.push(Found { command: Arc::clone(command), state, what: what.clone(), times: 1 });
    }

    /// A live process that is blocked, if the last reading found all threads blocked: one of those that decided its state. Those that wait
    /// for sockets or events have turns, since one may wait for another. A file is found by two looks at the same process.
    pub fn blocked(&self, tree: &Tree) -> Option<(Target, TimeState)> {
        let state = self.decided?;
        let is_in =
            |states: &[(ThreadState, u32)]| states.iter().any(|(known, _)| *known == ThreadState::In(state));
        let in_state = self.live.iter().filter(|(_, states)| is_in(states));
        let targets: Vec<Target> = in_state.filter_map(|(id, _)| tree.get(*id)?.target()).collect();
        let looks: u64 = self.commands.iter().map(|sums| sums.looks).sum();
        let turn = match state {
            TimeState::Events | TimeState::Network => looks.checked_rem(targets.len() as u64)?,
            _ => 0,
        };
        targets.get(usize::try_from(turn).ok()?).map(|target| (*target, state))
    }

    /// Divides the time since the last reading among the states.
    fn divide(
        &mut self,
        tree: &Tree,
        reading: &ThreadStates,
        gpu: Option<GpuMoment>,
        cores: CoresMoment,
    ) -> Division {
        let stretch = std::mem::take(&mut self.open);
        let by_command = self.threads_by_command(tree, reading);
        let is_ready = by_command.values().any(|threads| threads.ready > 0);
        let time = ReadyTime::new(&stretch, reading, is_ready, cores, &mut self.bounded);
        self.readings += 1;
        self.known_threads += u64::from(reading.known);
        self.threads += u64::from(reading.total);
        self.length_ns += time.length_ns;
        self.bound_ns += if reading.cores == 1 && cores.count > 1 { time.length_ns } else { 0 };
        self.computing_ns += time.computing_ns;
        self.cpu_ns += time.cpu_ns;
        self.pending_ns += time.length_ns - time.ready_ns;
        let on_gpu = gpu.map_or_else(OnGpu::default, |gpu| self.gpu.add(gpu, &time));
        self.credit(TimeState::Gpu, on_gpu.spun_ns, &stretch.cpu_ns);
        let computing_ns = time.computing_ns - on_gpu.spun_ns;
        self.credit(TimeState::Computing, computing_ns, &stretch.cpu_ns);
        self.credit_waits(&time, reading, &by_command);
        // At the end of a run, nothing is left that could tell.
        let is_blocked = !is_ready && !by_command.is_empty();
        let decided = is_blocked.then(|| threads::deciding(&by_command));
        self.decided = decided.as_ref().map(|(state, _)| *state);
        let blocked_in =
            decided.map(|(state, holders)| self.credit_blocked(state, &holders, time.length_ns, on_gpu));
        for (command, threads) in &by_command {
            self.command(command).add_threads(threads, stretch.cpu_ns_of(command), time.length_ns);
        }
        self.merge_least(&by_command);
        let waiting_ns = time.ready_ns - time.computing_ns;
        Division { length_ns: time.length_ns, computing_ns, waiting_ns, gpu_ns: on_gpu.spun_ns, blocked_in }
    }

    /// What the threads of each command do by the last reading.
    fn threads_by_command(&self, tree: &Tree, reading: &ThreadStates) -> ByCommand {
        let mut by_command = ByCommand::default();
        for (id, states) in &self.live {
            let Some(process) = tree.get(*id) else { continue };
            let threads = by_command.entry(Arc::clone(&process.name.command)).or_default();
            states.iter().for_each(|(state, count)| threads.add(*state, *count));
        }
        for ProcessThreads { id, waited_ns, .. } in &reading.changed {
            let command = tree.get(*id).map(|process| &process.name.command);
            if let Some(threads) = command.and_then(|command| by_command.get_mut(command)) {
                threads.waited_ns += waited_ns;
            }
        }
        by_command
    }

    /// Adds the time in which threads waited for a core. The kernel counts a wait when it is over, so a part of it may be of the time
    /// before, which is pending.
    fn credit_waits(&mut self, time: &ReadyTime, reading: &ThreadStates, by_command: &ByCommand) {
        let before_ns = reading.longest_ready_ns.saturating_sub(time.length_ns).min(self.pending_ns);
        self.pending_ns -= before_ns;
        let waited: Vec<(Arc<str>, u64)> =
            by_command.iter().map(|(name, threads)| (Arc::clone(name), threads.waited_ns)).collect();
        let waiting_ns = time.ready_ns - time.computing_ns;
        self.credit(TimeState::WaitingForCore, waiting_ns + before_ns, &waited);
    }

    /// Adds pending time to the state that decided at a reading, shared among the commands that are in it. Returns the state that most of
    /// that time was in.
    fn credit_blocked(
        &mut self,
        state: TimeState,
        holders: &[(Arc<str>, u64)],
        length_ns: u64,
        on_gpu: OnGpu,
    ) -> TimeState {
        let blocked_ns = self.pending_ns.min(MOST_BLOCKED_PARTS * length_ns);
        self.pending_ns -= blocked_ns;
        let on_gpu_ns = on_gpu.busy_ns - on_gpu.spun_ns;
        let for_gpu_ns = if gpu::can_wait_in(state) { blocked_ns.min(on_gpu_ns) } else { 0 };
        self.credit(TimeState::Gpu, for_gpu_ns, holders);
        self.credit(state, blocked_ns - for_gpu_ns, holders);
        if for_gpu_ns * 2 > blocked_ns { TimeState::Gpu } else { state }
    }

    /// Adds wall time in a state, shared among commands by these weights. Without any, it is nobody's.
    fn credit(&mut self, state: TimeState, ns: u64, weights: &[(Arc<str>, u64)]) {
        let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left_ns = ns;
        for (command, weight) in weights.iter().filter(|(_, weight)| *weight > 0) {
            let part_ns = ((ns as f64 * *weight as f64 / all as f64) as u64).min(left_ns);
            left_ns -= part_ns;
            self.command(command).wall_ns[state as usize] += part_ns;
        }
        if left_ns > 0 {
            // What rounding leaves is the first one's.
            let first =
                weights.iter().find(|(_, weight)| *weight > 0).map(|(command, _)| Arc::clone(command));
            self.command(&first.unwrap_or_default()).wall_ns[state as usize] += left_ns;
        }
    }

    /// The sums of a command.
    fn command(&mut self, command: &Arc<str>) -> &mut CommandSums {
        let index = self.commands.iter().position(|sums| sums.command == *command);
        let index = index.unwrap_or_else(|| {
            self.commands.push(CommandSums { command: Arc::clone(command), ..CommandSums::default() });
            self.commands.len() - 1
        });
        &mut self.commands[index]
    }

    /// If there are too many commands, adds those with the least wall time to one without a name. Commands with live processes stay as long
    /// as they are few: one that has just begun has no wall time yet.
    fn merge_least(&mut self, alive: &ByCommand) {
        if self.commands.len() <= MAX_COMMANDS + 1 {
            return;
        }
        let decided_ns = |sums: &CommandSums| sums.wall_ns.iter().sum::<u64>();
        self.commands
            .order_by_key(|sums| std::cmp::Reverse((alive.contains_key(&sums.command), decided_ns(sums))));
        let alive_now = self.commands.iter().take_while(|sums| alive.contains_key(&sums.command)).count();
        let kept = MAX_COMMANDS.max((alive_now + MAX_COMMANDS / 2).min(2 * MAX_COMMANDS));
        if self.commands.len() <= kept {
            return;
        }
        for least in self.commands.split_off(kept) {
            let others = self.command(&Arc::default());
            for state in 0..STATES {
                others.wall_ns[state] += least.wall_ns[state];
                others.thread_ns[state] += least.thread_ns[state];
            }
            others.child_ns += least.child_ns;
            others.pipe_ns += least.pipe_ns;
            others.several_ns += least.several_ns;
            others.carried_ns += least.carried_ns;
            others.looks += least.looks;
        }
    }
}

impl CommandSums {
    /// The time of its threads, with what no reading told the state of: that is as what readings told.
    pub(crate) fn thread_ns(&self) -> ByState {
        let mut times = self.thread_ns;
        let blocked = &mut times[TimeState::Storage as usize..];
        let told_ns = blocked.iter().sum::<u64>() + self.child_ns + self.pipe_ns;
        let part = self.carried_ns as f64 / told_ns.max(1) as f64;
        blocked.iter_mut().for_each(|ns| *ns += (*ns as f64 * part) as u64);
        times
    }

    /// Adds the time of this command's threads in a stretch, of which they computed for `cpu_ns`. A thread of a pool waits for a lock, one at a
    /// local socket for the network. Waits for a child or a pipe of the run are kept apart.
    fn add_threads(&mut self, threads: &Threads, cpu_ns: u64, length_ns: u64) {
        self.thread_ns[TimeState::Computing as usize] += cpu_ns;
        self.thread_ns[TimeState::WaitingForCore as usize] += threads.waited_ns;
        let ready_ns = cpu_ns.saturating_add(threads.waited_ns);
        if threads.count() > 1 || cpu_ns > length_ns {
            self.several_ns += length_ns;
        }
        self.carried_ns += threads.count().saturating_mul(length_ns).saturating_sub(ready_ns);
        let blocked = threads.count() - threads.ready;
        if blocked == 0 {
            return;
        }
        let ns = std::mem::take(&mut self.carried_ns);
        let part_ns = |count: u64| (ns as f64 * count as f64 / blocked as f64) as u64;
        for (sum, count) in self.thread_ns.iter_mut().zip(threads.by_state) {
            *sum += part_ns(count);
        }
        self.thread_ns[TimeState::Lock as usize] += part_ns(threads.pooled);
        self.thread_ns[TimeState::Network as usize] += part_ns(threads.local_socket);
        self.child_ns += part_ns(threads.child + threads.child_or_events);
        self.pipe_ns += part_ns(threads.inner_pipe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::{Observation, Reading, ReadingState, Size, TaskTimes, Vitals};
    use crate::run::RunState;
    use crate::run::over_time::Track;
    use crate::run::tree::RunContext;
    use crate::run::trust::Trust;
    use crate::run::usage::CpuUsage;

    const MS: u64 = 1_000_000;
    const START: u64 = 50_000 * MS;

    /// A run of one process, of which a sample is taken each 100 ms.
    struct OneProcess {
        run: RunState,
        now_ns: u64,
        cpu_ns: u64,
    }

    impl OneProcess {
        fn new() -> Self {
            let context = RunContext::of_test(100, 10, START);
            let mut run =
                RunState::new(context, CpuUsage::new(100 * MS, 2, START), Trust::new(START, 2, false), 5);
            let command = "main".to_owned();
            run.apply(START, &Observation::CommandStarted { pid: 1, start_ns: START, command });
            Self { run, now_ns: START, cpu_ns: 0 }
        }

        /// Takes a sample: its one thread ran and waited so many milliseconds since the one before, and does this.
        fn sample(&mut self, ran_ms: u64, waited_ms: u64, state: ThreadState) {
            self.sample_of(&[(state, 1)], ran_ms, ran_ms, waited_ms);
        }

        /// Takes a sample: its threads do this, ran so long together, and one of them so long.
        fn sample_of(&mut self, states: &[(ThreadState, u32)], ran_ms: u64, longest_ms: u64, waited_ms: u64) {
            self.now_ns += 100 * MS;
            self.cpu_ns += ran_ms * MS;
            let id = self.run.tree.alive()[0];
            let vitals = Vitals { cpu_ns: Some(self.cpu_ns), threads: 1, ..Vitals::default() };
            let state = ReadingState::Alive(vitals, Some(Size::default()));
            let changed = vec![ProcessThreads { id, states: states.to_vec(), waited_ns: waited_ms * MS }];
            let threads = ThreadStates {
                changed,
                times: TaskTimes { ran_ns: ran_ms * MS, waited_ns: waited_ms * MS },
                longest_ran_ns: longest_ms * MS,
                longest_ready_ns: (longest_ms + waited_ms) * MS,
                cores: 0,
                known: 1,
                total: 1,
            };
            for observation in [
                Observation::Readings(vec![Reading { id, args: None, state }]),
                Observation::ThreadStates(threads),
                Observation::Peaks(Vec::new()),
                Observation::SampleRead,
                Observation::SampleComplete,
            ] {
                self.run.apply(self.now_ns, &observation);
            }
        }

        /// Percent of the time up to now in each state that has some, and that of which nothing is known yet.
        fn percent(&self) -> (Vec<(TimeState, u64)>, u64) {
            let spent = &self.run.time_spent;
            let all_ns = self.now_ns - START;
            let percent = |ns: u64| (ns * 100 + all_ns / 2) / all_ns;
            let states = TimeState::ALL.into_iter().zip(wall_ns(spent).map(percent));
            (states.filter(|(_, percent)| *percent > 0).collect(), percent(spent.pending_ns))
        }
    }

    /// The wall time in each state so far, nanoseconds.
    fn wall_ns(spent: &TimeSpent) -> ByState {
        let mut sums = ByState::default();
        let all = spent.commands.iter().flat_map(|command| command.wall_ns.into_iter().enumerate());
        all.for_each(|(state, ns)| sums[state] += ns);
        sums
    }

    const READY: ThreadState = ThreadState::Ready;
    const STORAGE: ThreadState = ThreadState::In(TimeState::Storage);
    const LOCK: ThreadState = ThreadState::In(TimeState::Lock);
    const SLEEPING: ThreadState = ThreadState::In(TimeState::Sleeping);

    // Requirement: SLOW-1
    #[test]
    fn clocks_divide_the_time_and_readings_name_the_rest() {
        let mut one = OneProcess::new();
        for _ in 0..10 {
            // Two of three readings find it at work: it ran for 60 ms of 100 and waited 10 ms for a core.
            one.sample(60, 10, READY);
            one.sample(60, 10, STORAGE);
            one.sample(60, 10, READY);
        }
        let states = [(TimeState::Computing, 60), (TimeState::WaitingForCore, 10), (TimeState::Storage, 29)];
        assert_eq!(one.percent(), (states.to_vec(), 1), "no reading has named the last 30 ms yet");
    }

    // Requirement: SLOW-1
    #[test]
    fn each_phase_has_its_state() {
        let mut one = OneProcess::new();
        (0..40).for_each(|_| one.sample(100, 0, READY));
        (0..30).for_each(|_| one.sample(0, 0, SLEEPING));
        (0..30).for_each(|_| one.sample(0, 0, LOCK));
        let states = [(TimeState::Computing, 40), (TimeState::Lock, 30), (TimeState::Sleeping, 30)];
        assert_eq!(one.percent(), (states.to_vec(), 0));
    }

    // Requirement: SLOW-1
    #[test]
    fn two_threads_compute_at_once_or_in_turns_as_readings_see_them() {
        let mut at_once = OneProcess::new();
        for _ in 0..50 {
            at_once.sample_of(&[(READY, 2)], 100, 50, 0);
            at_once.sample_of(&[(SLEEPING, 2)], 100, 50, 0);
        }
        let (states, _) = at_once.percent();
        assert!((46..=56).contains(&states[0].1), "{states:?}");
        let mut in_turns = OneProcess::new();
        (0..100).for_each(|_| in_turns.sample_of(&[(READY, 1), (LOCK, 1)], 100, 50, 0));
        assert_eq!(in_turns.percent(), (vec![(TimeState::Computing, 100)], 0));
    }

    // Requirement: SLOW-1
    #[test]
    fn first_state_that_holds_decides_and_whoever_waits_for_others_does_not() {
        for (states, decides) in [
            (vec![(ThreadState::Child, 3), (SLEEPING, 1)], TimeState::Sleeping),
            (vec![(ThreadState::Pooled, 8), (SLEEPING, 1)], TimeState::Sleeping),
            (vec![(LOCK, 1), (SLEEPING, 1)], TimeState::Lock),
            (vec![(LOCK, 1), (STORAGE, 1)], TimeState::Storage),
            (vec![(ThreadState::Pooled, 8), (ThreadState::InnerPipe, 1)], TimeState::Lock),
            (vec![(ThreadState::ChildOrEvents, 1), (SLEEPING, 1)], TimeState::Sleeping),
            (vec![(ThreadState::ChildOrEvents, 1), (ThreadState::InnerPipe, 1)], TimeState::Events),
            (vec![(ThreadState::Child, 1)], TimeState::Unknown),
        ] {
            let mut one = OneProcess::new();
            one.sample_of(&states, 0, 0, 0);
            assert_eq!(one.percent().0, [(decides, 100)], "{states:?}");
        }
    }

    // Requirement: SLOW-1
    #[test]
    fn wait_for_a_core_that_ends_later_is_of_the_time_before() {
        let mut one = OneProcess::new();
        for _ in 0..10 {
            // It gets no core for 100 ms, and then for 40 ms.
            one.sample(0, 0, READY);
            one.sample(40, 160, READY);
        }
        let states = [(TimeState::Computing, 20), (TimeState::WaitingForCore, 80)];
        assert_eq!(one.percent(), (states.to_vec(), 0));
    }

    #[test]
    fn reading_stands_for_a_few_times_its_length_at_most() {
        let mut one = OneProcess::new();
        (0..99).for_each(|_| one.sample(50, 0, READY));
        one.sample(50, 0, STORAGE);
        let (states, left) = one.percent();
        assert_eq!((states, left), (vec![(TimeState::Computing, 50), (TimeState::Storage, 3)], 47));
    }

    #[test]
    fn commands_beyond_the_most_share_one_entry_and_nothing_is_lost() {
        let mut spent = TimeSpent::default();
        for number in 0..100_u64 {
            spent.credit(TimeState::Computing, 10, &[(format!("step{number}").into(), 1)]);
            spent.merge_least(&ByCommand::default());
        }
        spent.credit(TimeState::Lock, 10, &[("a".into(), 1), ("b".into(), 2)]);
        assert!(spent.commands.len() <= MAX_COMMANDS + 3, "{}", spent.commands.len());
        assert_eq!(wall_ns(&spent).iter().sum::<u64>(), 1010);
    }

    // Requirement: SLOW-10
    #[test]
    fn closed_samples_have_their_own_division() {
        let mut one = OneProcess::new();
        one.sample(100, 0, READY);
        one.sample(40, 10, READY);
        one.sample(0, 0, STORAGE);
        one.sample(40, 0, READY);
        one.run.apply(one.now_ns, &Observation::FinalizeAll);
        let tracks = &one.run.samples.over_time.time.0;
        let percent =
            |track: &Track| [0, 1, 2, 3].map(|point| (track.get(point).unwrap().mean * 100.0).round() as u64);
        assert_eq!(percent(&tracks.computing), [100, 40, 0, 40]);
        assert_eq!(percent(&tracks.waiting_for_core), [0, 10, 0, 0]);
        // The third reading names the rest of the sample before, and of the one after.
        assert_eq!(percent(&tracks.storage), [0, 50, 100, 60]);
        assert_eq!(percent(&tracks.other), [0; 4]);
    }

    #[test]
    fn time_of_threads_is_that_of_their_states() {
        let mut one = OneProcess::new();
        one.sample_of(&[(LOCK, 2), (READY, 1), (ThreadState::Child, 1)], 90, 90, 10);
        let [command] = one.run.time_spent.commands.as_slice() else { panic!("one command") };
        let state_ms = |state: TimeState| command.thread_ns[state as usize] / MS;
        let known = [TimeState::Computing, TimeState::WaitingForCore, TimeState::Lock].map(state_ms);
        assert_eq!((known, command.child_ns / MS), ([90, 10, 200], 100));
    }
}
