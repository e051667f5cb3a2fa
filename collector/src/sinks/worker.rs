//! A sink's thread, in which it writes the run's items: closed samples, ended processes and events, from the core's outbox. The queue is
//! bounded, and an item that finds it full is dropped and counted. So a slow disk neither holds the loop nor fills the memory.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::sink::{Loss, Resume, Sink};
use crate::model::observation::Observation;
use crate::model::report::{Report, Stage};
use crate::model::tree_sample::Wants;
use crate::run::outbox::{Outbox, Outgoing};
use crate::sys::signal_mask;

/// Maximum number of tasks that wait for a sink.
const MAX_TASKS: usize = 1024;

/// Bytes of the stack of a sink's thread. SQLite needs most of it.
const STACK: usize = 256 * 1024;

/// What a sink's thread does next.
enum Task {
    /// An item of the outbox, with its number.
    Item(u64, Arc<Outgoing>),
    /// The report.
    Report(Arc<Report>, Stage),
}

/// What became of a task for a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queued {
    Yes,
    /// The queue is full, so the task was dropped.
    IsFull,
    /// The sink has failed, so the task was dropped. [`Trouble::failed`] has the error.
    HasFailed,
}

/// What a sink's thread tells the loop.
#[derive(Debug, Default)]
struct Progress {
    /// All items before this number are written or lost.
    written: AtomicU64,
    /// The sink takes no more tasks: the queue was closed and is empty, or the sink has failed.
    has_ended: AtomicBool,
    trouble: Mutex<Trouble>,
}

/// Why output of a sink is missing.
#[derive(Debug, Default, Clone)]
struct Trouble {
    /// The error that closed the sink.
    failed: Option<String>,
    loss: Loss,
}

impl Progress {
    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sink with a thread, as the loop sees it.
pub(super) struct Worker {
    name: String,
    pub(super) wants: Wants,
    /// Whether the sink takes a report-so-far, and whether it takes the last report.
    takes_report: [bool; 2],
    /// `None`: it was closed, or the sink has failed.
    queue: Option<SyncSender<Task>>,
    progress: Arc<Progress>,
    /// Receives nothing, but is disconnected when the thread ends.
    end: Receiver<()>,
    /// The number of the last item that was queued, plus 1.
    queued: u64,
    /// How many items were dropped because the queue or the outbox was full.
    dropped: u64,
    /// The last report found the queue full.
    lacks_report: bool,
    /// The part of `Progress::trouble` that the core was told of.
    told: Trouble,
    /// How many of the dropped items the core was told of.
    told_dropped: u64,
}

impl Worker {
    /// Starts the thread of a sink, where the sink is opened. If there can be no thread, the sink has failed, which [`Self::news`] tells.
    pub(super) fn start(sink: Box<dyn Sink>, resume: Resume) -> Self {
        let (queue, tasks) = sync_channel(MAX_TASKS);
        let (alive, end) = channel();
        let progress = Arc::new(Progress::default());
        let mut worker = Self {
            name: sink.name(),
            wants: sink.wants(),
            takes_report: [Stage::SoFar, Stage::Over].map(|stage| sink.wants_report(stage)),
            queue: Some(queue),
            progress: Arc::clone(&progress),
            end,
            queued: 0,
            dropped: 0,
            lacks_report: false,
            told: Trouble::default(),
            told_dropped: 0,
        };
        let thread = std::thread::Builder::new().name("gpu-track-sink".into()).stack_size(STACK);
        let started = thread.spawn(move || {
            signal_mask::block_all();
            work(sink, resume, &tasks, &progress);
            drop(alive);
        });
        if let Err(error) = started {
            worker.progress.trouble().failed = Some(error.to_string());
            worker.queue = None;
        }
        worker
    }

    /// Counts the items that this sink wants, and that the outbox dropped before they could be queued.
    pub(super) fn miss(&mut self, outbox: &Outbox) {
        self.dropped += outbox.missed(&self.wants);
    }

    /// Queues the item of the outbox that has this number, if the sink wants it.
    pub(super) fn hand(&mut self, number: u64, item: &Arc<Outgoing>) {
        if self.wants.contains(&item.kind()) {
            match self.queue(Task::Item(number, Arc::clone(item))) {
                Queued::Yes => self.queued = number + 1,
                Queued::IsFull => self.dropped += item.lines(),
                Queued::HasFailed => {}
            }
        }
    }

    /// Queues the report, if the sink takes it.
    pub(super) fn hand_report(&mut self, report: &Arc<Report>, stage: Stage) {
        let [so_far, over] = self.takes_report;
        let is_wanted = if stage == Stage::SoFar { so_far } else { over };
        if is_wanted {
            let queued = self.queue(Task::Report(Arc::clone(report), stage));
            // A later report takes the place of a report-so-far.
            self.lacks_report = stage == Stage::Over && queued == Queued::IsFull;
        }
    }

    /// Queues a task without waiting. Drops the task if that fails. If the sink has failed, closes the queue.
    fn queue(&mut self, task: Task) -> Queued {
        match self.queue.as_ref().map(|queue| queue.try_send(task)) {
            Some(Ok(())) => Queued::Yes,
            Some(Err(TrySendError::Full(_))) => Queued::IsFull,
            Some(Err(TrySendError::Disconnected(_))) | None => {
                self.queue = None;
                Queued::HasFailed
            }
        }
    }

    /// The number of the first queued item that the sink has not yet written; those before it need not be kept for a restart. `None`:
    /// all are written, or the sink has failed and writes no more.
    pub(super) fn first_open(&self) -> Option<u64> {
        let written = self.progress.written.load(Ordering::Acquire);
        // A failed sink takes nothing more, though its thread may hold the other end of the queue for a moment.
        let is_taking = self.queue.is_some() && self.progress.trouble().failed.is_none();
        (is_taking && written < self.queued).then_some(written)
    }

    /// Returns what the core does not know yet: a failure, and lines that were lost or dropped. From then on, the core knows them.
    pub(super) fn news(&mut self) -> Vec<Observation> {
        let trouble = self.progress.trouble().clone();
        let mut news = Vec::new();
        let sink = || self.name.clone();
        let lost = trouble.loss.lines - self.told.loss.lines;
        if lost > 0 {
            news.push(Observation::SinkLost { sink: sink(), lost, error: trouble.loss.error.clone() });
        }
        let dropped = self.dropped - self.told_dropped;
        if dropped > 0 {
            news.push(Observation::SinkLost { sink: sink(), lost: dropped, error: None });
        }
        if let Some(error) = trouble.failed.clone().filter(|_| self.told.failed.is_none()) {
            news.push(Observation::SinkFailed { sink: sink(), error });
        }
        (self.told, self.told_dropped) = (trouble, self.dropped);
        news
    }

    /// Closes the queue: nothing more comes.
    pub(super) fn end(&mut self) {
        self.queue = None;
    }

    /// Waits for the thread until `deadline`. Then the thread is left, even if it still writes.
    ///
    /// Returns a line for the user about the first thing that came too late for the report. In this order: the thread still
    /// writes, a loss or failure is new to the core, or the last report found the queue full.
    pub(super) fn close(mut self, deadline: Instant) -> Option<String> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let is_running = self.end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        let news = self.news();
        let has_ended = self.progress.has_ended.load(Ordering::Acquire);
        let name = &self.name;
        // A thread that has ended its work has written all, even if it has not yet exited.
        if is_running && !has_ended {
            return Some(format!("{name}: it takes too long to write, and its last lines can be missing"));
        }
        for observation in news {
            match observation {
                Observation::SinkFailed { error, .. } => return Some(format!("{name}: {error}")),
                Observation::SinkLost { lost, error, .. } => {
                    let why = error.map_or(String::new(), |error| format!(": {error}"));
                    return Some(format!("{name}: {lost} of its last lines are missing{why}"));
                }
                _ => {}
            }
        }
        self.lacks_report.then(|| {
            format!(
                "{name}: it was written too slowly to take the report: its last line and its totals can be missing"
            )
        })
    }
}

/// What a sink's thread wakes for.
enum Next {
    Task(Task),
    /// What the sink has gathered is due.
    Due,
    /// Nothing more comes.
    Closed,
}

/// Waits for a task, but no longer than `due`, when the sink wants to write what it has gathered.
fn next(tasks: &Receiver<Task>, due: Option<Instant>) -> Next {
    let Some(due) = due else { return tasks.recv().map_or(Next::Closed, Next::Task) };
    match tasks.recv_timeout(due.saturating_duration_since(Instant::now())) {
        Ok(task) => Next::Task(task),
        Err(RecvTimeoutError::Timeout) => Next::Due,
        Err(RecvTimeoutError::Disconnected) => Next::Closed,
    }
}

/// Runs the sink in its thread until the queue is closed, or the sink fails. Notes how it ended in `progress`.
fn work(mut sink: Box<dyn Sink>, resume: Resume, tasks: &Receiver<Task>, progress: &Progress) {
    if let Err(error) = serve(sink.as_mut(), resume, tasks, progress) {
        progress.trouble().failed = Some(error.to_string());
    }
    progress.has_ended.store(true, Ordering::Release);
}

/// Opens the sink and hands it all tasks, until the queue is closed. After each task, notes in `progress` which items are
/// written, and what was lost.
///
/// # Errors
/// The first error of the sink.
fn serve(sink: &mut dyn Sink, resume: Resume, tasks: &Receiver<Task>, progress: &Progress) -> io::Result<()> {
    sink.open(resume)?;
    // The number of the last item that the sink took, plus 1.
    let mut taken = 0;
    loop {
        let next = next(tasks, sink.due());
        match &next {
            Next::Task(Task::Item(number, item)) => {
                match &**item {
                    Outgoing::Sample(sample) => sink.sample(sample)?,
                    Outgoing::Ended(process) => sink.process_ended(process)?,
                    Outgoing::Tasks(tasks) => sink.tasks_ended(tasks)?,
                    Outgoing::Event(event) => sink.event(event)?,
                    Outgoing::Happened(event) => sink.happened(event)?,
                }
                taken = number + 1;
            }
            Next::Task(Task::Report(report, stage)) => sink.report(report, *stage)?,
            Next::Due | Next::Closed => sink.flush()?,
        }
        if sink.is_written() {
            progress.written.store(taken, Ordering::Release);
        }
        let loss = sink.loss();
        if loss.lines > 0 {
            progress.trouble().loss = loss;
        }
        if let Next::Closed = next {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::groups::Groups;
    use crate::model::tree_sample::{Event, ItemKind, TreeSample};

    /// Takes an item each time that the test allows it.
    struct Gated {
        gate: Receiver<()>,
        taken: std::sync::mpsc::Sender<u64>,
        fails_at: u64,
    }

    impl Sink for Gated {
        fn name(&self) -> String {
            "gated".into()
        }

        fn open(&mut self, _resume: Resume) -> io::Result<()> {
            Ok(())
        }

        fn wants(&self) -> Wants {
            Wants::from([ItemKind::Sample])
        }

        fn wants_report(&self, _stage: Stage) -> bool {
            true
        }

        fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
            self.gate.recv().map_err(io::Error::other)?;
            if sample.at_ns == self.fails_at {
                return Err(io::Error::other("broken"));
            }
            self.taken.send(sample.at_ns).map_err(io::Error::other)
        }
    }

    fn gated(fails_at: u64) -> (Worker, std::sync::mpsc::Sender<()>, Receiver<u64>) {
        let ((open, gate), (taken, seen)) = (channel(), channel());
        (Worker::start(Box::new(Gated { gate, taken, fails_at }), Resume::New), open, seen)
    }

    fn sample(at_ns: u64) -> Arc<Outgoing> {
        Arc::new(Outgoing::Sample(Box::new(TreeSample { at_ns, ..TreeSample::default() })))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    // Requirement: TIME-4
    #[test]
    fn full_queue_drops_and_counts_and_no_call_waits() {
        let (mut worker, open, seen) = gated(u64::MAX);
        assert_eq!(worker.first_open(), None);
        let handed = MAX_TASKS as u64 + 100;
        for number in 0..handed {
            worker.hand(number, &sample(number));
        }
        worker.hand(
            handed,
            &Arc::new(Outgoing::Event(Event::Revised { at_ns: 1, max_footprint_bytes: Groups::default() })),
        );
        // One may have been taken out of the queue.
        assert!((99..=100).contains(&worker.dropped), "{}", worker.dropped);
        assert_eq!(worker.first_open(), Some(0));
        let news = worker.news();
        assert!(matches!(news[..], [Observation::SinkLost { lost: 99..=100, error: None, .. }]), "{news:?}");
        assert!(worker.news().is_empty());
        for _ in 0..handed {
            open.send(()).unwrap();
        }
        let taken = handed - worker.dropped;
        worker.end();
        assert_eq!(worker.close(soon()), None);
        let seen: Vec<u64> = seen.iter().collect();
        // The one that made room came after those that were dropped.
        assert!(seen.len() as u64 == taken && seen.starts_with(&(0..MAX_TASKS as u64).collect::<Vec<_>>()));
    }

    #[test]
    fn report_that_finds_the_queue_full_is_no_missing_line() {
        let (mut worker, open, _seen) = gated(u64::MAX);
        // One is with the thread, and the others fill the queue.
        for number in 0..=MAX_TASKS as u64 {
            while worker.queue(Task::Item(number, sample(number))) == Queued::IsFull {
                std::thread::yield_now();
            }
        }
        let report = Arc::new(gpu_track_core::fixtures::unknown());
        worker.hand_report(&report, Stage::SoFar);
        assert!(!worker.lacks_report, "a later one follows");
        worker.hand_report(&report, Stage::Over);
        assert!(worker.news().is_empty());
        (0..=MAX_TASKS).for_each(|_| open.send(()).unwrap());
        worker.end();
        let line = worker.close(soon()).unwrap();
        assert!(line.contains("too slowly to take the report") && !line.contains("1 of"), "{line}");
    }

    // Requirement: TIME-4
    #[test]
    fn sink_that_fails_is_closed_and_said_once() {
        let (mut worker, open, seen) = gated(1);
        for number in 0..3 {
            worker.hand(number, &sample(number));
            // The sink is gone once it has failed.
            let _ = open.send(());
        }
        assert_eq!(seen.iter().collect::<Vec<_>>(), [0], "the thread has ended");
        let news = worker.news();
        assert!(
            matches!(&news[..], [Observation::SinkFailed { error, .. }] if error == "broken"),
            "{news:?}"
        );
        worker.hand(3, &sample(3));
        assert_eq!((worker.first_open(), worker.news().len()), (None, 0));
        assert_eq!(worker.close(soon()), None, "the report has it");
    }

    // Requirement: TIME-4
    #[test]
    fn sink_that_hangs_is_left_and_said() {
        let (mut worker, open, _seen) = gated(u64::MAX);
        worker.hand(0, &sample(0));
        worker.end();
        let line = worker.close(Instant::now()).unwrap();
        assert!(line.contains("takes too long"), "{line}");
        drop(open);
    }
}
