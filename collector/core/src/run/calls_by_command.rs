//! What the processes of each command passed by read and write calls.
//!
//! /proc/PID/io has the calls of a process and of the children that it waited for. If it has waited for none since the reading before,
//! all that the figures grew by is its own. Otherwise /proc/PID/task/PID/io tells what a process of one thread has done.
//!
//! Processes that ended since they were read are in the run's sum alone. What is left of that sum's growth between two readings, without
//! what the processes are known to have done, is theirs. It is counted if all of them ran one command. If they ran several, these
//! commands miss it.
//!
//! Threads are known from samples only. So what a first thread did not do is the children's at most: a thread that no sample saw may
//! have done it. What processes did whose children nothing reports is theirs at most, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::tree::{Process, ProcessId, ProcessSummary, Tree};
use crate::model::io_calls::{CallsReading, IoCalls, IoTarget, NoIoCalls, ProcessCalls};

/// Maximum number of command names with sums of their own. What the others did is in no sum.
const MAX_COMMANDS: usize = 10_000;
/// Stands for processes of an unknown command among those that ended.
const UNKNOWN: &str = "";

/// What the processes of each command passed by calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallsByCommand {
    /// The processes that are not finalized, by their last reading.
    processes: FxHashMap<ProcessId, LastRead>,
    commands: HashMap<Arc<str>, CommandSums>,
    /// All that is known of processes and of commands.
    known: IoCalls,
    /// The run's sum, and `known`, up to which all is counted that can be.
    counted: Counted,
    /// Commands whose processes have ended since then, and when the last of each was reaped (CLOCK_MONOTONIC nanoseconds). What they did
    /// after their last reading is in the run's sum alone.
    ended: BTreeMap<Arc<str>, u64>,
    /// Commands of which other processes may have added to the run's sum unseen: by threads that have ended, or as children that
    /// nothing reported. That is less likely.
    others: BTreeSet<Arc<str>>,
    /// When the last reading began, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

/// The last reading of a process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct LastRead {
    /// With the children that it waited for.
    whole: IoCalls,
    /// Its own, as far as known.
    own: IoCalls,
    /// How many children it was known to have waited for.
    waits: u64,
    /// It has had several threads, so its first one alone does not tell what it did.
    has_had_threads: bool,
}

/// What all processes of a command passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandSums {
    /// By readings of these processes.
    pub(crate) by_readings: IoCalls,
    /// What is left of the run's sum, where it can only be theirs.
    pub(crate) by_run: IoCalls,
    /// What may be theirs or other processes'.
    pub(crate) at_most: IoCalls,
    /// They may have passed more.
    pub(crate) is_incomplete: bool,
}

/// Up to where the run's sum is counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Counted {
    sum: IoCalls,
    known: IoCalls,
}

impl CallsByCommand {
    /// The processes to be read: the live ones, and those that have ended and were not reaped. Their I/O is not yet in their parents'
    /// figures.
    ///
    /// Live processes come first, the oldest at the head, so parents come before the children that they can reap. If a child is reaped
    /// while the I/O is read, it is missing in this reading, and counts in the next one. It never counts twice.
    pub fn targets(&self, tree: &Tree) -> Vec<IoTarget> {
        let alive = tree.alive().iter().filter_map(|id| tree.get(*id));
        let mut targets: Vec<IoTarget> = alive.filter_map(|process| self.target(process)).collect();
        let alive: FxHashSet<u32> = targets.iter().map(|target| target.pid).collect();
        let others = tree.unfinalized().filter_map(|process| self.target(process));
        targets.extend(others.filter(|target| !alive.contains(&target.pid)));
        targets
    }

    /// How a process is to be read. Only its first thread tells what it did since its last reading if it has waited for children. `None`:
    /// its pid is not known.
    fn target(&self, process: &Process) -> Option<IoTarget> {
        let last = self.processes.get(&process.ids.id).copied().unwrap_or_default();
        let (id, waits) = (process.ids.id, process.ancestry.waits);
        Some(IoTarget {
            pid: process.ids.host_pid?,
            id: Some((id, waits)).filter(|_| !process.ids.is_helper),
            needs_first_thread: waits != last.waits
                && !last.has_had_threads
                && process.observed.most_threads <= 1,
        })
    }

    /// Takes in a reading, if all records from before its end are applied. Otherwise the next one has what it has. `sum`: what the whole
    /// run has passed.
    pub(super) fn add(&mut self, tree: &Tree, reading: &CallsReading, sum: Result<IoCalls, NoIoCalls>) {
        self.read_ns = reading.began_ns;
        if !reading.is_complete {
            return;
        }
        let doubtful: FxHashSet<ProcessId> =
            reading.unread.iter().flat_map(|id| tree.possible_reapers(*id)).collect();
        let mut is_all_known = true;
        for process in &reading.processes {
            is_all_known &= self.note(tree, process, doubtful.contains(&process.id));
        }
        for process in reading.unread.iter().filter_map(|id| tree.get(*id)) {
            self.note_ended(&process.name.command, reading.began_ns);
        }
        if tree.counts().helpers > 0 {
            self.note_ended(&UNKNOWN.into(), reading.began_ns);
        }
        let is_counted = is_all_known && sum.is_ok_and(|sum| self.count(sum));
        // A process that is reaped during the reading can be missing in the run's sum until the next one.
        if is_counted && reading.unread.is_empty() {
            self.ended.retain(|_, reaped_ns| *reaped_ns >= reading.began_ns);
        }
    }

    /// Notes the reading of a process. Returns whether all that it passed is known, or can be told from the run's sum. `is_doubtful`:
    /// it may have waited for a child that no record has reported.
    fn note(&mut self, tree: &Tree, reading: &ProcessCalls, is_doubtful: bool) -> bool {
        let Some(process) = tree.get(reading.id) else { return true };
        let last = self.processes.get(&reading.id).copied().unwrap_or_default();
        if !reading.whole.covers(last.whole) {
            // Its pid is another process's by now. It is finalized soon.
            return true;
        }
        let mut now = LastRead { whole: reading.whole, waits: reading.waits, ..last };
        now.has_had_threads |= process.observed.most_threads > 1;
        // A thread that has ended is in the figures of the process alone.
        now.has_had_threads |= reading.first_thread.is_some_and(|[before, _]| !before.covers(last.own));
        if process.ancestry.waits == last.waits && !is_doubtful {
            now.own = last.own.plus(reading.whole.without(last.whole));
        } else if now.has_had_threads {
            self.note_ended(&process.name.command, 0);
        } else if let Some([before, after]) = reading.first_thread {
            now.own = before;
            self.others.insert(Arc::clone(&process.name.command));
            if before != after {
                self.note_ended(&process.name.command, 0);
            }
        } else {
            // A later reading has its first thread: `waits` grows when the child is finalized.
            return false;
        }
        self.known = self.known.plus(now.own.without(last.own));
        self.processes.insert(reading.id, now);
        true
    }

    /// Notes that processes of a command may have added to the run's sum what no reading of them has. `reaped_ns`: when one was reaped at
    /// the earliest, CLOCK_MONOTONIC nanoseconds; 0: none need have been.
    fn note_ended(&mut self, command: &Arc<str>, reaped_ns: u64) {
        let latest = self.ended.entry(Arc::clone(command)).or_default();
        *latest = reaped_ns.max(*latest);
    }

    /// Adds a process that is finalized at `now_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn add_finalized(&mut self, process: &ProcessSummary, now_ns: u64) {
        let command = &process.name.command;
        let last = self.processes.remove(&process.ids.id);
        if let (Some(last), Some(sums)) = (last, self.sums_of(command)) {
            let part =
                if process.may_have_unknown_children { &mut sums.at_most } else { &mut sums.by_readings };
            *part = part.plus(last.own);
        }
        if process.may_have_unknown_children {
            self.others.insert(UNKNOWN.into());
        }
        if process.is_still_running {
            self.miss(command);
            return;
        }
        self.note_ended(command, process.reaped_ns.unwrap_or(now_ns));
        if process.reaped_ns.is_none() {
            // Perhaps the kernel reaped it by itself. Then the run's sum loses it.
            self.note_ended(&UNKNOWN.into(), now_ns);
        }
    }

    /// Counts what the run's sum has more than is known, if it can only be of one command. Otherwise it is missing in several. Returns
    /// false if the sum lacks something: a process is just being reaped. Also if no process is known that did what is left.
    fn count(&mut self, sum: IoCalls) -> bool {
        let Some(left) = self.left_of(sum) else { return false };
        if left != IoCalls::default() {
            if self.ended.is_empty() {
                // The next reading may know the process, or only others.
                self.others.insert(UNKNOWN.into());
                return false;
            }
            self.assign(left);
        }
        self.others.clear();
        self.counted = Counted { sum, known: self.known };
        true
    }

    /// Adds what is left of the run's sum to the one command whose processes have ended. It is certainly theirs if no process of another
    /// command may have done it. The commands of such processes miss it.
    fn assign(&mut self, left: IoCalls) {
        let ended: Vec<_> = self.ended.keys().cloned().collect();
        let mut missing = std::mem::take(&mut self.others);
        if let [command] = &ended[..]
            && &**command != UNKNOWN
            && let Some(sums) = self.sums_of(command)
        {
            missing.remove(command);
            let part = if missing.is_empty() { &mut sums.by_run } else { &mut sums.at_most };
            *part = part.plus(left);
            self.known = self.known.plus(left);
        } else {
            missing.extend(ended);
        }
        missing.iter().for_each(|command| self.miss(command));
    }

    /// What the run's sum has grown by without what is known of that growth. `None`: it has grown by less.
    fn left_of(&self, sum: IoCalls) -> Option<IoCalls> {
        let known = self.known.without(self.counted.known);
        let covered = self.counted.sum.plus(known);
        sum.covers(covered).then(|| sum.without(covered))
    }

    /// Ends the readings, once all processes are finalized. `sum`: as in the last reading.
    pub(super) fn finish(&mut self, sum: Result<IoCalls, NoIoCalls>) {
        let is_counted = sum.is_ok_and(|sum| self.count(sum));
        for command in std::mem::take(&mut self.others) {
            self.miss(&command);
        }
        let ended = std::mem::take(&mut self.ended);
        for (command, reaped_ns) in ended {
            if !is_counted || reaped_ns >= self.read_ns {
                self.miss(&command);
            }
        }
    }

    /// Notes that the figures of a command are too small.
    fn miss(&mut self, command: &Arc<str>) {
        if let Some(sums) = self.sums_of(command) {
            sums.is_incomplete = true;
        }
    }

    /// The sums of a command. `None`: there are too many commands.
    fn sums_of(&mut self, command: &Arc<str>) -> Option<&mut CommandSums> {
        if !self.commands.contains_key(command) && self.commands.len() >= MAX_COMMANDS {
            return None;
        }
        Some(self.commands.entry(Arc::clone(command)).or_default())
    }

    /// What the processes of a command are known to have passed. `None`: nothing is known of them.
    pub(crate) fn of(&self, command: &str) -> Option<CommandSums> {
        self.commands.get(command).copied()
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::record::{Event, Origin};

    use super::*;
    use crate::model::report::Exit;
    use crate::run::cause::tests::process;
    use crate::run::tree::RunContext;

    const S: u64 = 1_000_000_000;

    fn bytes(read_bytes: u64) -> IoCalls {
        IoCalls { read_bytes, ..IoCalls::default() }
    }

    /// A run of processes that the test names by pid. Each second has a reading.
    struct Run {
        tree: Tree,
        calls: CallsByCommand,
        now_ns: u64,
    }

    impl Run {
        fn new() -> Self {
            let tree = Tree::new(RunContext::of_test(100, 10, 0));
            Self { tree, calls: CallsByCommand::default(), now_ns: S }
        }

        fn start(&mut self, pid: u32, command: &str) -> ProcessId {
            let origin = Origin { pid, pid_ns: 10, parent: 100, monotonic_ns: self.now_ns, flags: 0 };
            let fork =
                Event::Fork { realtime_ns: self.now_ns, pidfd_inode: 0, max_rss_kib: 0, parent_pid_ns: 10 };
            self.tree.apply(&origin, &fork, self.now_ns);
            let id = *self.tree.alive().last().unwrap();
            self.tree.get_mut(id).unwrap().name.command = Arc::from(command);
            id
        }

        /// Ends a process that a record says was reaped, by `reaper` if that is of the run.
        fn reap(&mut self, id: ProcessId, command: &str, reaper: Option<ProcessId>) {
            if let Some(reaper) = reaper {
                self.tree.get_mut(reaper).unwrap().ancestry.waits += 1;
            }
            self.end(id, command, Some(self.now_ns));
        }

        /// Ends a program without the shim, which nothing watches.
        fn reap_uninstrumented(&mut self, id: ProcessId, command: &str) {
            let mut summary = process(id.0 as u32, command, Exit::default());
            (summary.ids.id, summary.reaped_ns) = (id, Some(self.now_ns));
            summary.may_have_unknown_children = true;
            self.calls.add_finalized(&summary, self.now_ns);
        }

        fn end(&mut self, id: ProcessId, command: &str, reaped_ns: Option<u64>) {
            let mut summary = process(id.0 as u32, command, Exit::default());
            (summary.ids.id, summary.reaped_ns) = (id, reaped_ns);
            self.calls.add_finalized(&summary, self.now_ns);
        }

        /// Reads these processes (id, `io`, `io` of the first thread), and the run's sum.
        fn read(&mut self, processes: &[(ProcessId, u64, Option<u64>)], sum: u64) {
            self.read_and_wait(processes, sum, true);
        }

        /// Reads them, and waits for all records from before, which have come if the reading `is_complete`.
        fn read_and_wait(
            &mut self,
            processes: &[(ProcessId, u64, Option<u64>)],
            sum: u64,
            is_complete: bool,
        ) {
            self.now_ns += S;
            let read = |(id, whole, first_thread): &(ProcessId, u64, Option<u64>)| ProcessCalls {
                id: *id,
                waits: self.tree.get(*id).unwrap().ancestry.waits,
                whole: bytes(*whole),
                first_thread: first_thread.map(|own| [bytes(own); 2]),
            };
            let processes = processes.iter().map(read).collect();
            let reading = CallsReading { processes, unread: Vec::new(), is_complete, began_ns: self.now_ns };
            self.calls.add(&self.tree, &reading, Ok(bytes(sum)));
        }

        /// What is certain of a command, and whether that is all.
        fn of(&self, command: &str) -> (u64, bool) {
            let sums = self.calls.of(command).unwrap();
            assert_eq!(sums.at_most, IoCalls::default());
            (sums.by_readings.plus(sums.by_run).read_bytes, !sums.is_incomplete)
        }

        /// What is certain of a command, what may be another's, and whether that is all.
        fn bound_of(&self, command: &str) -> (u64, u64, bool) {
            let sums = self.calls.of(command).unwrap();
            let certain = sums.by_readings.plus(sums.by_run).read_bytes;
            (certain, sums.at_most.read_bytes, !sums.is_incomplete)
        }
    }

    // Requirement: IO-59
    #[test]
    fn short_processes_of_one_command_have_at_most_what_their_parents_first_thread_did_not_do() {
        let mut run = Run::new();
        let shell = run.start(1, "sh");
        run.read(&[(shell, 10, None)], 10);
        for pid in 2..102 {
            let cat = run.start(pid, "cat");
            run.reap(cat, "cat", Some(shell));
        }
        run.read(&[(shell, 1012, Some(12))], 1012);
        run.read(&[(shell, 1015, None)], 1015);
        run.reap(shell, "sh", None);
        run.read(&[], 1015);
        run.calls.finish(Ok(bytes(1015)));
        // A thread of sh can have begun and ended meanwhile.
        assert_eq!((run.of("sh"), run.bound_of("cat")), ((15, false), (0, 1000, true)));
    }

    // Requirement: IO-7
    #[test]
    fn what_two_commands_did_since_they_were_read_is_in_neither() {
        let mut run = Run::new();
        let [dd, cat] = [run.start(1, "dd"), run.start(2, "cat")];
        run.read(&[(dd, 100, None), (cat, 90, None)], 190);
        run.reap(dd, "dd", None);
        run.reap(cat, "cat", None);
        run.read(&[], 250);
        run.calls.finish(Ok(bytes(250)));
        assert_eq!((run.of("dd"), run.of("cat")), ((100, false), (90, false)));
    }

    // Requirement: IO-7
    #[test]
    fn end_of_a_process_between_two_readings_is_its_commands_alone() {
        let mut run = Run::new();
        let [shell, gzip] = [run.start(1, "sh"), run.start(2, "gzip")];
        run.read(&[(shell, 5, None), (gzip, 100, None)], 105);
        run.reap(gzip, "gzip", Some(shell));
        let sort = run.start(3, "sort");
        run.read(&[(shell, 146, Some(6)), (sort, 50, None)], 196);
        run.reap(sort, "sort", Some(shell));
        run.reap(shell, "sh", None);
        run.read(&[], 300);
        run.calls.finish(Ok(bytes(300)));
        assert_eq!(run.bound_of("gzip"), (100, 40, true));
        assert_eq!((run.of("sort"), run.of("sh")), ((50, false), (6, false)));
    }

    // Requirement: IO-57
    #[test]
    fn parent_of_several_threads_shares_an_interval_with_the_children_that_it_waited_for() {
        let mut run = Run::new();
        let python = run.start(1, "python3");
        run.tree.get_mut(python).unwrap().observed.most_threads = 4;
        run.read(&[(python, 10, None)], 10);
        let cat = run.start(2, "cat");
        run.reap(cat, "cat", Some(python));
        run.read(&[(python, 50, None)], 50);
        run.read(&[(python, 70, None)], 70);
        run.reap(python, "python3", None);
        run.read(&[], 70);
        run.calls.finish(Ok(bytes(70)));
        assert_eq!((run.of("python3"), run.of("cat")), ((30, false), (0, false)));
    }

    // Requirement: IO-57
    #[test]
    fn ended_thread_of_a_parent_is_not_taken_for_a_child() {
        let mut run = Run::new();
        let python = run.start(1, "python3");
        run.read(&[(python, 100, None)], 100);
        let cat = run.start(2, "cat");
        run.reap(cat, "cat", Some(python));
        // Of the 100, the first thread has read 20.
        run.read(&[(python, 160, Some(30))], 160);
        run.calls.finish(Ok(bytes(160)));
        assert_eq!(run.of("cat"), (0, false));
    }

    // Requirement: IO-58
    #[test]
    fn child_that_the_kernel_reaped_makes_all_of_its_interval_lower_bounds() {
        let mut run = Run::new();
        let [lost, kept] = [run.start(1, "prog"), run.start(2, "prog")];
        run.read(&[(lost, 100, None), (kept, 100, None)], 200);
        run.end(lost, "prog", None);
        run.reap(kept, "prog", None);
        // The sum has lost 100, and has 150 that no reading has.
        run.read(&[], 250);
        run.calls.finish(Ok(bytes(250)));
        assert_eq!(run.of("prog"), (200, false));
    }

    // Requirement: IO-7
    #[test]
    fn process_that_is_missing_in_the_sum_while_it_is_reaped_counts_once() {
        let mut run = Run::new();
        let cat = run.start(1, "cat");
        run.read(&[(cat, 100, None)], 100);
        run.reap(cat, "cat", None);
        run.read(&[], 0);
        run.read(&[], 130);
        run.calls.finish(Ok(bytes(130)));
        assert_eq!(run.of("cat"), (130, true));
    }

    // Requirement: IO-58
    #[test]
    fn process_that_lives_on_has_a_lower_bound() {
        let mut run = Run::new();
        let server = run.start(1, "server");
        run.read(&[(server, 100, None)], 100);
        let mut summary = process(1, "server", Exit::default());
        (summary.ids.id, summary.is_still_running) = (server, true);
        run.calls.add_finalized(&summary, run.now_ns);
        run.calls.finish(Ok(bytes(100)));
        assert_eq!(run.of("server"), (100, false));
    }

    // Requirement: IO-7
    #[test]
    fn parent_of_the_same_command_shares_its_sums_with_its_children() {
        let mut run = Run::new();
        let shell = run.start(1, "sh");
        run.read(&[(shell, 10, None)], 10);
        let child = run.start(2, "sh");
        run.reap(child, "sh", Some(shell));
        run.read(&[(shell, 100, Some(12))], 100);
        run.reap(shell, "sh", None);
        run.read(&[], 100);
        run.calls.finish(Ok(bytes(100)));
        assert_eq!(run.of("sh"), (100, true));
    }

    // Requirement: IO-57
    #[test]
    fn reading_without_the_records_from_before_it_is_left_to_the_next_one() {
        let mut run = Run::new();
        let shell = run.start(1, "sh");
        run.read(&[(shell, 10, None)], 10);
        // Its child cat has ended, and no record has come.
        run.read_and_wait(&[(shell, 110, None)], 110, false);
        let cat = run.start(2, "cat");
        run.reap(cat, "cat", Some(shell));
        run.read(&[(shell, 110, Some(10))], 110);
        run.calls.finish(Ok(bytes(110)));
        assert_eq!(run.bound_of("cat"), (0, 100, true));
    }

    // Requirement: IO-59
    #[test]
    fn what_no_known_process_did_is_not_certainly_the_next_ones() {
        let mut run = Run::new();
        run.read(&[], 100);
        let cat = run.start(1, "cat");
        run.reap(cat, "cat", None);
        run.read(&[], 110);
        run.calls.finish(Ok(bytes(110)));
        assert_eq!(run.bound_of("cat"), (0, 110, true));
    }

    // Requirement: IO-59
    #[test]
    fn children_that_nothing_reports_may_have_done_what_their_parent_did() {
        let mut run = Run::new();
        let busybox = run.start(1, "busybox");
        run.read(&[(busybox, 100, None)], 100);
        run.reap_uninstrumented(busybox, "busybox");
        run.read(&[], 130);
        run.calls.finish(Ok(bytes(130)));
        assert_eq!(run.bound_of("busybox"), (0, 130, true));
    }
}
