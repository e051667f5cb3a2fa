//! Keeps the ring and the process connector's socket from filling up while the collector is busy: a thread that only
//! moves what comes into memory, in the order of time, woken by the doorbell, whatever the sampling of thousands of
//! processes takes.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use gpu_track_abi::record::RECORD_WORDS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connector::Members;
use super::connector_queue::{ConnectorQueue, Earlier, START_GRACE_NS};
use super::membership::Membership;
use super::overflow::Overflow;
use super::records::RecordReader;
use crate::model::finding::Damage;
use crate::model::finding::{Entry, ReadUpTo};
use crate::model::finding::{Finding, KernelEvent};
use crate::store::state_file::StateFile;
use crate::sys::segment::Segment;
use crate::sys::{clock, priority};

/// The ring is looked at this often at least.
const LONGEST_NAP: Duration = Duration::from_millis(50);
/// And the process connector: what an unprivileged user may have as buffer holds some 500 events.
const CONNECTOR_NAP: Duration = Duration::from_millis(10);
/// They are looked at again this soon where a writer was not done, or where what the kernel tells must be looked at
/// while it is there.
const SHORT_NAP: Duration = Duration::from_millis(1);
/// How long is waited at a time for what is there to be read.
const FRESHEN_WAIT: Duration = Duration::from_millis(2);
/// Records that may wait in memory (14 MB); beyond it they stay in the ring, which counts what it drops.
const MOST_WAITING: usize = 1 << 16;
/// So many are worth a wake (0.4 MB).
const WORTH_A_WAKE: usize = 1 << 11;

/// What both threads see. Nothing here can be held: the pump must never wait for a collector that lost its CPU.
#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    /// Takes down what is read, for the next collector.
    state: Arc<StateFile>,
    /// What an earlier collector has read.
    begin: ReadUpTo,
    /// Records that were sent and not taken yet.
    waiting: AtomicUsize,
    /// All that was written before this time was sent.
    complete_ns: AtomicU64,
    /// How many of those behind the segment were handed on.
    appended_read: AtomicU64,
    damaged: AtomicU64,
    is_untrusted: AtomicBool,
    is_distrusted: AtomicBool,
    has_connector: AtomicBool,
    is_eager: AtomicBool,
    is_over: AtomicBool,
    /// How often the thread has looked at what there is.
    turns: AtomicU64,
    /// The thread may have read what it has not sent yet.
    is_reading: AtomicBool,
}

/// The thread, and what it has read.
#[derive(Debug)]
pub struct Pump {
    shared: Arc<Shared>,
    batches: Receiver<Vec<Finding>>,
    newcomers: Sender<u32>,
    thread: Option<JoinHandle<()>>,
    /// The process connector's socket, only to see whether there is something to be read.
    socket: Option<OwnedFd>,
}

/// Where findings come from.
#[derive(Debug)]
pub struct Sources {
    /// The ring.
    pub segment: Arc<Segment>,
    /// Takes down what is found.
    pub state: Arc<StateFile>,
    /// What an earlier collector has read.
    pub begin: ReadUpTo,
    /// The process connector's socket, where there is one.
    pub connector: Option<OwnedFd>,
    /// How many of its events an earlier collector told to be lost.
    pub dropped: u32,
    /// The launcher, and the processes that an earlier collector knew.
    pub members: Members,
    /// Inode of its pid namespace.
    pub pid_ns: u32,
    /// Tells who else is of the tree.
    pub membership: Membership,
}

impl Shared {
    fn run(&self, mut kernel: ConnectorQueue, batches: &Sender<Vec<Finding>>, main: &Thread) {
        priority::prefer_at_once();
        let mut reader = RecordReader::resume(&self.segment, self.begin.position);
        let events = self.begin.events + kernel.held_back() as u64;
        let entries = self.begin.count;
        let mut merge = Merge {
            segment: &self.segment,
            overflow: Overflow::resume(self.begin.overflow),
            journal: Journal { state: Some(&self.state), entries, noted: Vec::new(), events },
            findings: Vec::new(),
        };
        // Whoever rang before this thread was there waits for it all the same.
        let mut rang = true;
        while !self.is_over.load(Ordering::Acquire) {
            let doorbell = self.segment.doorbell();
            let now_ns = clock::monotonic_ns();
            // After the clock: what the kernel told by then is there, and what it told later is held back.
            kernel.read(|events| merge.journal.append_events(events));
            self.has_connector.store(kernel.is_active(), Ordering::Relaxed);
            if self.is_distrusted.load(Ordering::Relaxed) {
                reader.give_up();
            }
            let mut is_drained = false;
            if self.waiting.load(Ordering::Relaxed) < MOST_WAITING {
                is_drained = reader.drain(&self.segment, now_ns, |batch| {
                    // After they were read: what was appended before one of them was written is there.
                    merge.overflow.look(&self.segment, now_ns);
                    for (record, words) in batch {
                        merge.hand_on_appended(&mut kernel, record.position);
                        merge.hand_on_told(&mut kernel, record.origin.monotonic_ns);
                        kernel.hear(record);
                        merge.hand_on(Finding::Record(*record), words);
                    }
                    merge.write_down();
                });
                if is_drained {
                    if !reader.is_untrusted() {
                        merge.overflow.look(&self.segment, now_ns);
                    }
                    merge.hand_on_appended(&mut kernel, reader.position());
                    merge.hand_on_told(&mut kernel, now_ns);
                    merge.write_down();
                }
                if merge.overflow.is_damaged() {
                    reader.give_up();
                }
                let findings = std::mem::take(&mut merge.findings);
                self.waiting.fetch_add(findings.len(), Ordering::Relaxed);
                // The collector outlives this thread.
                let _ = batches.send(findings);
                let damaged = reader.damaged() + u64::from(merge.overflow.is_damaged());
                self.damaged.store(damaged, Ordering::Relaxed);
                self.appended_read.store(merge.overflow.count(), Ordering::Relaxed);
                self.is_untrusted.store(reader.is_untrusted(), Ordering::Relaxed);
                if is_drained {
                    self.complete_ns.store(now_ns, Ordering::Release);
                }
            }
            self.turns.fetch_add(1, Ordering::Release);
            let loading_ns = if self.is_eager.load(Ordering::Relaxed) { 0 } else { START_GRACE_NS };
            let is_unheard = kernel.take_unheard(now_ns.saturating_sub(loading_ns));
            let has_many = self.waiting.load(Ordering::Relaxed) >= WORTH_A_WAKE;
            if std::mem::take(&mut rang) || is_unheard || has_many {
                main.unpark();
            }
            // What is held back would be lost with this collector.
            self.is_reading.store(false, Ordering::SeqCst);
            self.segment.wait_doorbell(doorbell, self.nap(is_drained && kernel.held_back() == 0));
            self.is_reading.store(true, Ordering::SeqCst);
            rang = self.segment.doorbell() != doorbell;
        }
        kernel.end();
    }

    fn nap(&self, is_all: bool) -> Duration {
        if !is_all || self.is_eager.load(Ordering::Relaxed) {
            SHORT_NAP
        } else if self.has_connector.load(Ordering::Relaxed) {
            CONNECTOR_NAP
        } else {
            LONGEST_NAP
        }
    }
}

/// Puts what comes from three places in one order.
struct Merge<'a> {
    segment: &'a Segment,
    overflow: Overflow,
    journal: Journal<'a>,
    /// What was not sent yet.
    findings: Vec<Finding>,
}

impl Merge<'_> {
    fn hand_on(&mut self, finding: Finding, words: &[u32; RECORD_WORDS]) {
        self.journal.note(&finding, words);
        self.findings.push(finding);
    }

    /// What was appended and comes before this position in the ring.
    fn hand_on_appended(&mut self, kernel: &mut ConnectorQueue, position: u64) {
        while let Some((record, words)) = self.overflow.next_before(self.segment, position) {
            self.hand_on_told(kernel, record.origin.monotonic_ns);
            kernel.hear(&record);
            self.hand_on(Finding::Record(record), &words);
        }
    }

    /// What the kernel told before `at_ns`.
    fn hand_on_told(&mut self, kernel: &mut ConnectorQueue, at_ns: u64) {
        while let Some(event) = kernel.next_before(at_ns) {
            self.hand_on(Finding::Kernel(event), &[0; RECORD_WORDS]);
        }
    }

    /// What was handed on can be read again from the journal only.
    fn write_down(&mut self) {
        self.journal.write();
        self.overflow.give_back(self.segment);
    }
}

/// What was read, for the next collector.
struct Journal<'a> {
    state: Option<&'a StateFile>,
    entries: u64,
    /// Those behind them that are not written yet.
    noted: Vec<Entry>,
    events: u64,
}

impl Journal<'_> {
    /// They were read and can't be read again, but their turn comes later.
    fn append_events(&mut self, events: &[KernelEvent]) {
        let Some(state) = self.state.filter(|state| !state.is_discarded() && !events.is_empty()) else {
            return;
        };
        let slots: Vec<_> = events.iter().map(KernelEvent::encode).collect();
        if state.append_events(self.events, &slots).is_err() {
            state.discard();
        }
        self.events += slots.len() as u64;
    }

    fn note(&mut self, finding: &Finding, words: &[u32; RECORD_WORDS]) {
        self.noted.push(finding.entry(words));
    }

    /// Write down what was noted: only then may the records' slots be freed.
    fn write(&mut self) {
        // A journal with a gap would be taken for the truth.
        self.state = self.state.filter(|state| !state.is_discarded());
        if let Some(state) = self.state.filter(|_| !self.noted.is_empty())
            && state.append(self.entries, &self.noted).is_err()
        {
            state.discard();
        }
        self.entries += self.noted.len() as u64;
        self.noted.clear();
    }
}

impl Pump {
    /// Start reading behind what was read before; `main` is unparked whenever the doorbell rang and all is
    /// read, and when the kernel told of a program that has not spoken.
    ///
    /// # Errors
    /// If there can't be another thread.
    pub fn start(sources: Sources, main: Thread) -> std::io::Result<Self> {
        let Sources { segment, state, begin, connector, dropped, members, pid_ns, membership } = sources;
        let (sender, batches) = std::sync::mpsc::channel();
        let (newcomers, of_others) = std::sync::mpsc::channel();
        let socket = connector.as_ref().and_then(|socket| socket.try_clone().ok());
        let pending = state.events(begin.events);
        let has_proof = begin.events > 0 || !pending.is_empty();
        let pending = pending.iter().filter_map(|slot| KernelEvent::decode(slot)).collect();
        let earlier = Earlier { pending, has_proof, dropped };
        let kernel = ConnectorQueue::new(connector, members, membership, pid_ns, of_others, earlier);
        let shared = Arc::new(Shared {
            segment,
            state,
            begin,
            waiting: AtomicUsize::new(0),
            complete_ns: AtomicU64::new(0),
            appended_read: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            is_untrusted: AtomicBool::new(false),
            is_distrusted: AtomicBool::new(false),
            has_connector: AtomicBool::new(false),
            is_eager: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            is_reading: AtomicBool::new(true),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("gpu-track-pump".into())
            // It needs little, and the collector is small.
            .stack_size(64 * 1024)
            .spawn(move || of_thread.run(kernel, &sender, &main))?;
        Ok(Self { shared, batches, newcomers, thread: Some(thread), socket })
    }

    /// All that was found since the last time, in order, and the time (CLOCK_MONOTONIC, nanoseconds) up to which that
    /// and what came before is all that happened.
    pub fn take(&mut self) -> (impl Iterator<Item = Vec<Finding>>, u64) {
        // The time first: what is complete up to it was sent before it was stored.
        let complete_ns = self.shared.complete_ns.load(Ordering::Acquire);
        let waiting = &self.shared.waiting;
        let batches = self.batches.try_iter();
        let taken = batches.inspect(|batch| _ = waiting.fetch_sub(batch.len(), Ordering::Relaxed));
        (taken, complete_ns)
    }

    /// A process of the tree that another layer found.
    pub fn add_member(&self, pid: u32) {
        // Where the thread is gone, nobody asks.
        let _ = self.newcomers.send(pid);
    }

    /// The records are forged: read no more of them.
    pub fn distrust(&self) {
        self.shared.is_distrusted.store(true, Ordering::Relaxed);
    }

    /// Whether to read very often: what the kernel tells must be looked at while it is there.
    pub fn be_eager(&self, is_eager: bool) {
        if self.shared.is_eager.swap(is_eager, Ordering::Relaxed) != is_eager && is_eager {
            self.shared.segment.ring_doorbell();
        }
    }

    /// If there is something to be read, have it read now: what a sample sees should find its process known.
    pub fn freshen(&self) {
        let header = self.shared.segment.header();
        // Acquire: a tail that the thread has moved shows that it reads.
        let has_records = header.head.0.load(Ordering::Relaxed) != header.tail.0.load(Ordering::Acquire);
        if has_records || self.has_events() || self.shared.is_reading.load(Ordering::SeqCst) {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(FRESHEN_WAIT);
        }
    }

    /// Whether the kernel told something that was not read yet: to wake the thread costs far more than to ask.
    fn has_events(&self) -> bool {
        if !self.shared.has_connector.load(Ordering::Relaxed) {
            return false;
        }
        let Some(socket) = &self.socket else { return true };
        let mut polled = [PollFd::new(socket, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut polled, Some(&now)), Ok(0))
    }

    /// Wait until all that was written before this time has been read, at most for so long.
    pub fn await_complete(&self, at_ns: u64, at_most: Duration) {
        let is_complete = || self.shared.complete_ns.load(Ordering::Acquire) >= at_ns;
        let begun = Instant::now();
        while !is_complete() && begun.elapsed() < at_most {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(FRESHEN_WAIT);
        }
    }

    /// The same for the end of a run, when nobody reads what is left: as long as the thread gets on, or does not get the
    /// CPU to. Whether all was read.
    #[must_use]
    pub fn await_last(&self, at_ns: u64) -> bool {
        let is_complete = || self.shared.complete_ns.load(Ordering::Acquire) >= at_ns;
        let begun = Instant::now();
        let mut patience = Patience::default();
        while !is_complete() {
            let turns = self.shared.turns.load(Ordering::Acquire);
            let read = self.shared.segment.header().tail.0.load(Ordering::Acquire);
            if patience.is_over(begun.elapsed(), turns, read) {
                return false;
            }
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(FRESHEN_WAIT);
        }
        true
    }

    /// Records that were written and not read.
    #[must_use]
    pub fn unread(&self) -> u64 {
        let segment = &self.shared.segment;
        let tail = segment.header().tail.0.load(Ordering::Acquire);
        let in_ring = segment.header().head.0.load(Ordering::Relaxed).saturating_sub(tail);
        let appended_read = self.shared.appended_read.load(Ordering::Relaxed);
        in_ring + segment.appended().saturating_sub(appended_read)
    }

    /// What was wrong with what this thread has read.
    #[must_use]
    pub fn damage(&self) -> Damage {
        Damage {
            events: self.shared.damaged.load(Ordering::Relaxed),
            is_untrusted: self.shared.is_untrusted.load(Ordering::Relaxed),
        }
    }
}

/// How long to wait for a thread on a machine that may not let it run.
#[derive(Debug, Default)]
struct Patience {
    /// When it was last seen to get on.
    progress_at: Duration,
    /// What it had read by then, and in how many turns.
    read: u64,
    turns: u64,
}

impl Patience {
    /// For a thread that runs and gets nowhere.
    const OF_ONE_THAT_IS_STUCK: Duration = Duration::from_secs(1);
    /// So many turns without progress are not the one that had begun before.
    const TURNS_OF_ONE_THAT_IS_STUCK: u64 = 3;
    /// Whatever it does.
    const LONGEST: Duration = Duration::from_secs(10);

    fn is_over(&mut self, waited: Duration, turns: u64, read: u64) -> bool {
        if self.turns == 0 || read != self.read {
            *self = Self { progress_at: waited, read, turns };
        }
        let is_stuck = turns - self.turns >= Self::TURNS_OF_ONE_THAT_IS_STUCK
            && waited.saturating_sub(self.progress_at) >= Self::OF_ONE_THAT_IS_STUCK;
        is_stuck || waited >= Self::LONGEST
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.segment.ring_doorbell();
        if let Some(thread) = self.thread.take() {
            // It can't have panicked with anything that is still of use.
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

    #[test]
    fn a_thread_that_gets_no_cpu_is_waited_for() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 5, 100));
        assert!(!patience.is_over(at(5000), 5, 100), "no turn");
        assert!(!patience.is_over(at(9000), 6, 100), "the turn that had begun before");
        assert!(patience.is_over(at(10_000), 6, 100));
    }

    #[test]
    fn a_thread_that_has_not_begun_is_waited_for() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 0, 0));
        assert!(!patience.is_over(at(9000), 0, 0));
        assert!(!patience.is_over(at(9001), 1, 0));
    }

    #[test]
    fn a_thread_that_runs_and_gets_nowhere_is_not() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(at(0), 5, 100));
        assert!(!patience.is_over(at(900), 50, 100));
        assert!(patience.is_over(at(1000), 60, 100));
    }

    #[test]
    fn a_thread_that_reads_slowly_is_waited_for() {
        let mut patience = Patience::default();
        for second in 0..10 {
            assert!(!patience.is_over(at(second * 999), 5 * second + 5, 100 + second));
        }
        assert!(patience.is_over(at(10_000), 60, 120), "but not for ever");
    }
}
