//! A thread that keeps the ring and the process connector's socket from filling up while the collector is busy.
//!
//! The doorbell, a futex in the segment, wakes the thread. It merges records and connector events in order of time, and moves them
//! into memory, also while thousands of processes are sampled. A record or event of the merge is a finding.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connector::{Connector, Members};
use super::connector_queue::{Backlog, ConnectorQueue, START_GRACE_NS};
use super::membership::Membership;
use super::merge::Merge;
use super::records::RecordReader;
use crate::model::journal::Journal;
use crate::model::kernel_event::KernelEvent;
use crate::model::record_or_event::{Damage, Finding, ReadUpTo};
use crate::sys::segment::Segment;
use crate::sys::{clock, priority};

/// Longest time between two looks of the thread at the ring.
const LONGEST_NAP: Duration = Duration::from_millis(50);
/// Longest time between two looks with the process connector: an ordinary user's socket buffer holds some 500 events.
const CONNECTOR_NAP: Duration = Duration::from_millis(10);
/// After so long without findings the thread rests: it looks every [`LONGEST_NAP`], and the next record wakes it. It does not rest
/// while programs run that write no records: what they start would be gone before it is read.
const QUIET_NS: u64 = 500_000_000;
/// So many connector events since the last look keep the thread from resting: the socket's buffer could fill up during a long nap.
const MANY_EVENTS: usize = 16;
/// Longest time between two looks in the first [`YOUNG_NS`]. No record tells that the command's first uninstrumented program
/// began, and what that starts may be over in 10 ms. A nap of 1 ms would make each spawn of that time 5-10% dearer.
const YOUNG_NAP: Duration = Duration::from_millis(4);
const YOUNG_NS: u64 = 200_000_000;
/// Longest time between two looks while a slot of the ring is incomplete, or processes must be read before they are gone.
const SHORT_NAP: Duration = Duration::from_millis(1);
/// How long the collector waits for the thread at a time.
const PENDING_WAIT: Duration = Duration::from_millis(2);
/// Findings that may wait in memory (14 MB). Beyond that, records stay in the ring, which counts what it drops.
const MAX_WAITING: usize = 1 << 16;
/// After an uninstrumented program was seen, findings are read every millisecond for this time: such programs must be read from
/// /proc before they are gone.
const EAGER_NS: u64 = 200_000_000;
/// Waiting findings that are worth waking the collector for (0.4 MB).
const WAKE_AT: usize = 1 << 11;

/// State of both threads, without locks: the thread must never wait for a collector that lost its CPU.
#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    /// Findings that were sent and not taken yet.
    waiting: AtomicUsize,
    /// All findings up to this time (CLOCK_MONOTONIC, nanoseconds) were sent.
    complete_ns: AtomicU64,
    /// Number of records sent from the overflow area.
    overflow_read: AtomicU64,
    /// Number of damaged records, as the thread's reader counts them.
    damaged: AtomicU64,
    /// The thread has found that the ring can't be trusted, and reads no more records.
    is_untrusted: AtomicBool,
    /// The collector wants no more records to be read.
    must_distrust: AtomicBool,
    /// The connector is read.
    has_connector: AtomicBool,
    /// Findings are read every millisecond, see [`EAGER_NS`].
    is_eager: AtomicBool,
    /// There are programs that write no records.
    has_uninstrumented: AtomicBool,
    /// The thread must end.
    must_end: AtomicBool,
    /// When the thread was started, CLOCK_MONOTONIC nanoseconds.
    begun_ns: u64,
    /// Rounds of the thread's loop.
    turns: AtomicU64,
    /// There may be findings that are read and not sent.
    is_reading: AtomicBool,
}

/// The thread, and the findings that it sends.
#[derive(Debug)]
pub(crate) struct Pump {
    shared: Arc<Shared>,
    batches: Receiver<Vec<Finding>>,
    /// Takes the pids of members that scans of /proc find.
    newcomers: Sender<u32>,
    thread: Option<JoinHandle<()>>,
    /// The process connector's socket, to poll for events only.
    socket: Option<OwnedFd>,
    /// Number of uninstrumented programs that were seen.
    uninstrumented: u64,
    /// Until when findings are read every millisecond, CLOCK_MONOTONIC nanoseconds.
    eager_until_ns: u64,
}

/// Where findings come from.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The segment.
    pub(crate) segment: Arc<Segment>,
    /// Where findings are kept for the next collector.
    pub(crate) journal: Arc<dyn Journal>,
    /// What an earlier collector has read.
    pub(crate) begin: ReadUpTo,
    /// The process connector, if there is one.
    pub(crate) connector: Option<Connector>,
    /// Number of lost connector events that an earlier collector has reported.
    pub(crate) dropped: u32,
    /// Number of uninstrumented programs that it had seen.
    pub(crate) uninstrumented: u64,
    /// The run's programs write records, except uninstrumented ones.
    pub(crate) has_records: bool,
    /// The launcher, and the processes that an earlier collector knew.
    pub(crate) members: Members,
    /// Inode of the collector's pid namespace.
    pub(crate) pid_ns: u32,
    /// Decides whether other pids belong to the tree.
    pub(crate) membership: Membership,
}

/// Reads the sources in turns. The first turn is that of the thread that starts the pump, the others are those of its own thread.
struct Reading {
    shared: Arc<Shared>,
    reader: RecordReader,
    merge: Merge,
    batches: Sender<Vec<Finding>>,
    /// The collector's thread.
    main: Thread,
    /// The doorbell's value before the last turn.
    doorbell: u32,
    /// The doorbell has rung since then.
    rang: bool,
    /// When there were last findings, or many events, CLOCK_MONOTONIC nanoseconds.
    busy_ns: u64,
}

impl Reading {
    /// Sleeps for `nap` at most, or until the doorbell rings, and takes a turn; and so on, until the pump must end. Then ends the
    /// connector's subscription.
    fn run(mut self, mut nap: Duration) {
        priority::prefer_at_once();
        loop {
            self.shared.segment.wait_doorbell(self.doorbell, nap);
            self.shared.is_reading.store(true, Ordering::SeqCst);
            if self.shared.must_end.load(Ordering::Acquire) {
                break;
            }
            self.rang = self.shared.segment.doorbell() != self.doorbell;
            nap = self.turn();
        }
        self.merge.queue.end();
    }

    /// Reads what there is, sends the findings, and wakes the collector as [`Pump::start`] says. Returns how long to sleep at most.
    fn turn(&mut self) -> Duration {
        let shared = Arc::clone(&self.shared);
        self.doorbell = shared.segment.doorbell();
        let now_ns = clock::monotonic_ns();
        // This comes after `now_ns` was read. So earlier events are in the socket by now, and later ones stay in the queue.
        let events = self.merge.read_connector();
        shared.has_connector.store(self.merge.queue.is_active(), Ordering::Relaxed);
        if shared.must_distrust.load(Ordering::Relaxed) {
            self.reader.give_up();
        }
        let has_room = shared.waiting.load(Ordering::Relaxed) < MAX_WAITING;
        let (is_drained, findings) = if has_room { self.drain(now_ns) } else { (false, 0) };
        shared.turns.fetch_add(1, Ordering::Release);
        let grace_ns = if shared.is_eager.load(Ordering::Relaxed) { 0 } else { START_GRACE_NS };
        // Unreported: a process forked or exec'd that long ago, without a record. It must be read from /proc before it is gone.
        let is_unreported = self.merge.queue.take_unreported(now_ns.saturating_sub(grace_ns));
        let has_many = shared.waiting.load(Ordering::Relaxed) >= WAKE_AT;
        if std::mem::take(&mut self.rang) || is_unreported || has_many {
            self.main.unpark();
        }
        // Events that are still queued are younger than `now_ns`, or wait for a slot of the ring. Their processes must be read soon.
        let is_all = is_drained && self.merge.queue.len() == 0;
        shared.is_reading.store(!is_all, Ordering::SeqCst);
        if findings > 0 || events >= MANY_EVENTS {
            self.busy_ns = now_ns;
        }
        let rests = is_all && shared.may_rest(now_ns.saturating_sub(self.busy_ns));
        if rests {
            shared.segment.header().begin_rest();
        }
        if rests { LONGEST_NAP } else { shared.nap(is_all, now_ns) }
    }

    /// Sends the records in the ring and the overflow area, merged with the connector's events. Returns whether all records and
    /// events from before `now_ns` (CLOCK_MONOTONIC) were sent, and the number of findings. If all were, the collector finds that time in
    /// `complete_ns`.
    fn drain(&mut self, now_ns: u64) -> (bool, usize) {
        let Self { shared, reader, merge, .. } = self;
        let is_drained = reader.drain(&shared.segment, now_ns, |batch| {
            // This comes after the batch was read. So it notes all records that were appended before a record of the batch was
            // written.
            merge.overflow.note_appended(&shared.segment, now_ns);
            for (record, words) in batch {
                merge.push_overflow_before(record.position);
                merge.push_events_by(record.origin.monotonic_ns);
                merge.queue.note_record(record);
                merge.push(Finding::Record(*record), words);
            }
            merge.write_journal();
        });
        if is_drained {
            // Once the ring can't be trusted, further records of the overflow area are not read either.
            if !reader.is_untrusted() {
                merge.overflow.note_appended(&shared.segment, now_ns);
            }
            merge.push_overflow_before(reader.position());
            merge.push_events_by(now_ns);
            merge.write_journal();
        }
        if merge.overflow.is_damaged() {
            reader.give_up();
        }
        let findings = self.send();
        if is_drained {
            self.shared.complete_ns.fetch_max(now_ns, Ordering::Release);
        }
        (is_drained, findings)
    }

    /// Sends the findings to the collector, and shows it how many records were read from the overflow area and were damaged. Returns
    /// the number of findings.
    fn send(&mut self) -> usize {
        let Self { shared, reader, merge, batches, .. } = self;
        let findings = std::mem::take(&mut merge.findings);
        let count = findings.len();
        if count > 0 {
            shared.waiting.fetch_add(count, Ordering::Relaxed);
            // The collector outlives this thread, so the channel is open.
            let _ = batches.send(findings);
        }
        let damaged = reader.damaged() + u64::from(merge.overflow.is_damaged());
        shared.damaged.store(damaged, Ordering::Relaxed);
        shared.overflow_read.store(merge.overflow.count(), Ordering::Relaxed);
        shared.is_untrusted.store(reader.is_untrusted(), Ordering::Relaxed);
        count
    }
}

impl Shared {
    /// Whether the thread may rest, after so long without findings.
    fn may_rest(&self, quiet_ns: u64) -> bool {
        let has_urgent = [&self.is_eager, &self.has_uninstrumented];
        quiet_ns >= QUIET_NS && !has_urgent.iter().any(|urgent| urgent.load(Ordering::Relaxed))
    }

    /// How long the thread sleeps at most. `is_all`: all records and events were sent.
    fn nap(&self, is_all: bool, now_ns: u64) -> Duration {
        if !is_all || self.is_eager.load(Ordering::Relaxed) {
            SHORT_NAP
        } else if self.has_connector.load(Ordering::Relaxed) {
            let is_young = now_ns.saturating_sub(self.begun_ns) < YOUNG_NS;
            if is_young { YOUNG_NAP } else { CONNECTOR_NAP }
        } else {
            LONGEST_NAP
        }
    }
}

impl Pump {
    /// Starts reading after `sources.begin`.
    ///
    /// The thread unparks `main` after a ring of the doorbell, once it has read the records. It also does when many findings
    /// wait, or a process must be read from /proc because it has written no record.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(sources: Sources, main: Thread) -> std::io::Result<Self> {
        let Sources { segment, journal, begin, connector, dropped, members, pid_ns, membership, .. } =
            sources;
        let (sender, batches) = std::sync::mpsc::channel();
        let (newcomers, received) = std::sync::mpsc::channel();
        let socket = connector.as_ref().and_then(Connector::socket);
        let pending = journal.events(begin.events);
        // Where events are forbidden, the kernel sends none at all. An earlier collector got some, so they arrive.
        let has_proof = begin.events > 0 || !pending.is_empty();
        let pending = pending.iter().filter_map(|slot| KernelEvent::decode(slot)).collect();
        let backlog = Backlog { pending, has_proof, dropped };
        let queue = ConnectorQueue::new(connector, members, membership, pid_ns, received, backlog);
        let shared = Arc::new(Shared {
            segment,
            waiting: AtomicUsize::new(0),
            complete_ns: AtomicU64::new(0),
            overflow_read: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            is_untrusted: AtomicBool::new(false),
            must_distrust: AtomicBool::new(false),
            has_connector: AtomicBool::new(false),
            is_eager: AtomicBool::new(false),
            has_uninstrumented: AtomicBool::new(!sources.has_records || sources.uninstrumented > 0),
            must_end: AtomicBool::new(false),
            begun_ns: clock::monotonic_ns(),
            turns: AtomicU64::new(0),
            is_reading: AtomicBool::new(true),
        });
        let mut reading = Reading {
            reader: RecordReader::resume(&shared.segment, begin.position),
            merge: Merge::resume(Arc::clone(&shared.segment), journal, begin, queue),
            batches: sender,
            main,
            doorbell: 0,
            rang: false,
            busy_ns: shared.begun_ns,
            shared: Arc::clone(&shared),
        };
        // What there is already is read here: to wait for the new thread would take a short run longer.
        let nap = reading.turn();
        let thread = std::thread::Builder::new()
            .name("gpu-track-pump".into())
            // The thread needs little, and a small stack keeps the collector small.
            .stack_size(64 * 1024)
            .spawn(move || reading.run(nap))?;
        let uninstrumented = sources.uninstrumented;
        Ok(Self {
            shared,
            batches,
            newcomers,
            thread: Some(thread),
            socket,
            uninstrumented,
            eager_until_ns: 0,
        })
    }

    /// Takes new findings in order. Also returns the time (CLOCK_MONOTONIC, nanoseconds) up to which the findings are complete.
    pub(crate) fn take(&mut self) -> (impl Iterator<Item = Vec<Finding>>, u64) {
        // The time is loaded first: the thread stores it after it has sent the findings.
        let complete_ns = self.shared.complete_ns.load(Ordering::Acquire);
        let waiting = &self.shared.waiting;
        let batches = self.batches.try_iter();
        // A batch no longer waits once the caller has it.
        let taken = batches.inspect(|batch| _ = waiting.fetch_sub(batch.len(), Ordering::Relaxed));
        (taken, complete_ns)
    }

    /// Tells the thread the pid of a process of the tree that a scan of /proc found, so that its connector events count.
    pub(crate) fn add_member(&self, pid: u32) {
        // Fails only after the thread has ended.
        let _ = self.newcomers.send(pid);
    }

    /// Makes the thread read no more records, because some are forged.
    pub(crate) fn distrust(&self) {
        self.shared.must_distrust.store(true, Ordering::Relaxed);
    }

    /// Programs that began by the returned time (CLOCK_MONOTONIC nanoseconds) have had time enough to report.
    pub(crate) fn reported_by_ns(&self, now_ns: u64) -> u64 {
        let is_eager = now_ns < self.eager_until_ns;
        now_ns.saturating_sub(if is_eager { 0 } else { START_GRACE_NS })
    }

    /// If the number of uninstrumented programs (`count`) has changed, makes the thread read every millisecond for [`EAGER_NS`], and
    /// rest no more. Meanwhile programs get no grace to report, see [`Self::reported_by_ns`]. Must be called at each look at the
    /// tree: the first call after that time ends the frequent reading.
    pub(crate) fn note_uninstrumented(&mut self, count: u64, now_ns: u64) {
        if count != self.uninstrumented {
            self.uninstrumented = count;
            self.shared.has_uninstrumented.store(true, Ordering::Relaxed);
            self.eager_until_ns = now_ns.saturating_add(EAGER_NS);
        }
        let is_eager = now_ns < self.eager_until_ns;
        let was_eager = self.shared.is_eager.swap(is_eager, Ordering::Relaxed);
        // The thread may be in a longer nap.
        if is_eager && !was_eager {
            self.shared.segment.ring_doorbell();
        }
    }

    /// Makes the thread read all records and events that wait, and waits for that, [`PENDING_WAIT`] at most. Called before a sample,
    /// so that the sample knows the processes to read.
    pub(crate) fn read_pending(&self) {
        if !self.note_if_nothing_waits() {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(PENDING_WAIT);
        }
    }

    /// Looks whether records or events wait to be read or sent. If none do, all findings up to now have come, and that is noted. This
    /// look costs far less than to wake the thread. Returns whether none do.
    fn note_if_nothing_waits(&self) -> bool {
        let now_ns = clock::monotonic_ns();
        // `is_reading` comes last: it is set before records are taken out of the ring, so a load that sees them gone sees it, too.
        let waits = self.unread() > 0 || self.has_events() || self.shared.is_reading.load(Ordering::SeqCst);
        if !waits {
            self.shared.complete_ns.fetch_max(now_ns, Ordering::Release);
        }
        !waits
    }

    /// Whether connector events wait; true if that can't be told.
    fn has_events(&self) -> bool {
        if !self.shared.has_connector.load(Ordering::Relaxed) {
            return false;
        }
        let Some(socket) = &self.socket else { return true };
        let mut polled = [PollFd::new(socket, PollFlags::IN)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut polled, Some(&no_wait)), Ok(0))
    }

    /// Waits until all findings from before `at_ns` (CLOCK_MONOTONIC nanoseconds) have come, but no longer than `at_most`.
    pub(crate) fn await_complete(&self, at_ns: u64, at_most: Duration) {
        let begun = Instant::now();
        while !self.is_complete(at_ns) && begun.elapsed() < at_most {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(PENDING_WAIT);
        }
    }

    /// Waits for the last findings of a run, which nothing will read later. It waits as long as the thread makes progress or gets
    /// no CPU time, within the limits of [`Patience`]. Returns whether all findings before `at_ns` (CLOCK_MONOTONIC) were read.
    pub(crate) fn await_last(&self, at_ns: u64) -> bool {
        let begun = Instant::now();
        let mut patience = Patience::default();
        while !self.is_complete(at_ns) {
            let turns = self.shared.turns.load(Ordering::Acquire);
            let read = self.shared.segment.header().tail.0.load(Ordering::Acquire);
            if patience.is_over(begun.elapsed(), turns, read) {
                return false;
            }
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(PENDING_WAIT);
        }
        true
    }

    /// Whether all findings from before `at_ns` (CLOCK_MONOTONIC nanoseconds, not later than now) have come.
    fn is_complete(&self, at_ns: u64) -> bool {
        self.shared.complete_ns.load(Ordering::Acquire) >= at_ns || self.note_if_nothing_waits()
    }

    /// Makes the thread end, without waiting for that. Nothing is read any more.
    pub(crate) fn end(&self) {
        self.shared.must_end.store(true, Ordering::Release);
        self.shared.segment.ring_doorbell();
    }

    /// Counts the records, in ring and overflow area, that were written and not read.
    pub(crate) fn unread(&self) -> u64 {
        let segment = &self.shared.segment;
        let tail = segment.header().tail.0.load(Ordering::Acquire);
        let in_ring = segment.header().head.0.load(Ordering::Relaxed).saturating_sub(tail);
        let overflow_read = self.shared.overflow_read.load(Ordering::Relaxed);
        in_ring + segment.appended().saturating_sub(overflow_read)
    }

    /// How many damaged records the thread has read, and whether it trusts the ring.
    pub(crate) fn damage(&self) -> Damage {
        Damage {
            events: self.shared.damaged.load(Ordering::Relaxed),
            is_untrusted: self.shared.is_untrusted.load(Ordering::Relaxed),
        }
    }
}

/// How long to wait for a thread on a machine that may give it no CPU time.
#[derive(Debug, Default)]
struct Patience {
    /// When the thread last made progress, since the wait began.
    progress_at: Duration,
    /// Up to which position of the ring it had read by then.
    read: u64,
    /// Rounds of its loop by then.
    turns: u64,
}

impl Patience {
    /// A thread is stuck if it made no progress for this long, and in [`Self::STUCK_TURNS`].
    const STUCK_AFTER: Duration = Duration::from_secs(1);
    /// Number of rounds without progress. In the first of them, the thread may still have made its last progress.
    const STUCK_TURNS: u64 = 3;
    /// Longest wait in any case.
    const LONGEST: Duration = Duration::from_secs(10);

    /// Whether to wait no longer: the thread is stuck, or the whole wait takes too long. `waited` is the time since the wait
    /// began. `turns` is the number of the thread's rounds by now, and `read` the position in the ring up to which it has read.
    fn is_over(&mut self, waited: Duration, turns: u64, read: u64) -> bool {
        // No turn is noted yet at the first call.
        if self.turns == 0 || read != self.read {
            *self = Self { progress_at: waited, read, turns };
        }
        let is_stuck = turns - self.turns >= Self::STUCK_TURNS
            && waited.saturating_sub(self.progress_at) >= Self::STUCK_AFTER;
        is_stuck || waited >= Self::LONGEST
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            // After a panic of the thread nothing is left to save.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    // Requirement: FAULT-84
    #[test]
    fn waits_for_a_thread_without_cpu_time() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 5, 100));
        assert!(!patience.is_over(at(5000), 5, 100), "no turn");
        assert!(!patience.is_over(at(9000), 6, 100), "a turn that began before");
        assert!(patience.is_over(at(10_000), 6, 100));
    }

    // Requirement: FAULT-84
    #[test]
    fn waits_for_a_thread_that_has_not_started() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 0, 0));
        assert!(!patience.is_over(at(9000), 0, 0));
        assert!(!patience.is_over(at(9001), 1, 0));
    }

    // Requirement: FAULT-84
    #[test]
    fn gives_up_a_thread_without_progress() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 5, 100));
        assert!(!patience.is_over(at(900), 50, 100));
        assert!(patience.is_over(at(1000), 60, 100));
    }

    // Requirement: FAULT-84
    #[test]
    fn waits_for_a_slow_thread_up_to_the_longest_wait() {
        let mut patience = Patience::default();
        for second in 0..10 {
            assert!(!patience.is_over(at(second * 999), 5 * second + 5, 100 + second));
        }
        assert!(patience.is_over(at(10_000), 60, 120), "the longest wait");
    }
}
