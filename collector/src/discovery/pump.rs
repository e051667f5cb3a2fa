//! Keeps the ring from filling up while the collector is busy: a thread that only moves records from the ring into
//! memory, woken by the doorbell, whatever the sampling of thousands of processes takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use gpu_track_abi::record::RECORD_WORDS;

use super::records::{RecordReader, Stored};
use crate::account::Damage;
use crate::segment::Segment;
use crate::state::{ReadUpTo, StateFile};
use crate::{clock, priority};

/// The ring is looked at this often at least.
const LONGEST_NAP: Duration = Duration::from_millis(50);
/// It is looked at again this soon where a writer was not done.
const PENDING_NAP: Duration = Duration::from_millis(1);
/// How long a sample waits for records that are in the ring.
const FRESHEN_WAIT: Duration = Duration::from_millis(2);
/// How long the end of a run waits for them.
const LONGEST_FLUSH_NS: u64 = 1_000_000_000;
/// Records that may wait in memory; beyond it they stay in the ring, which counts what it drops.
const MOST_WAITING: usize = 1 << 18;

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
    damaged: AtomicU64,
    is_untrusted: AtomicBool,
    is_over: AtomicBool,
}

/// The thread, and what it has read.
#[derive(Debug)]
pub struct Pump {
    shared: Arc<Shared>,
    batches: Receiver<Vec<Stored>>,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    fn run(&self, batches: &Sender<Vec<Stored>>, main: &Thread) {
        priority::prefer_at_once();
        let mut reader = RecordReader::resume(&self.segment, self.begin.position);
        let mut journal = Journal { state: Some(&self.state), entries: self.begin.count };
        let mut rang = false;
        while !self.is_over.load(Ordering::Acquire) {
            let doorbell = self.segment.doorbell();
            let now_ns = clock::monotonic_ns();
            let mut is_drained = false;
            if self.waiting.load(Ordering::Relaxed) < MOST_WAITING {
                let mut batch = Vec::new();
                is_drained = reader.drain(&self.segment, now_ns, |record, words| {
                    journal.append(record.position, words);
                    batch.push(record);
                });
                self.waiting.fetch_add(batch.len(), Ordering::Relaxed);
                // The collector outlives this thread.
                let _ = batches.send(batch);
                self.damaged.store(reader.damaged(), Ordering::Relaxed);
                self.is_untrusted.store(reader.is_untrusted(), Ordering::Relaxed);
                if is_drained {
                    self.complete_ns.store(now_ns, Ordering::Release);
                }
            }
            if std::mem::take(&mut rang) {
                main.unpark();
            }
            self.segment.wait_doorbell(doorbell, if is_drained { LONGEST_NAP } else { PENDING_NAP });
            rang = self.segment.doorbell() != doorbell;
        }
    }
}

/// What was read, for the next collector.
struct Journal<'a> {
    state: Option<&'a StateFile>,
    entries: u64,
}

impl Journal<'_> {
    fn append(&mut self, position: u64, words: &[u32; RECORD_WORDS]) {
        let Some(state) = self.state else { return };
        // A journal with a gap would be taken for the truth.
        if state.is_discarded() {
            self.state = None;
        } else if state.append(self.entries, position, words).is_err() {
            state.discard();
        }
        self.entries += 1;
    }
}

impl Pump {
    /// Start reading behind what was read before, taking it down in `state`; `main` is unparked whenever the doorbell
    /// rang and all is read.
    ///
    /// # Errors
    /// If there can't be another thread.
    pub fn start(
        segment: Arc<Segment>,
        state: Arc<StateFile>,
        begin: ReadUpTo,
        main: Thread,
    ) -> std::io::Result<Self> {
        let (sender, batches) = std::sync::mpsc::channel();
        let shared = Arc::new(Shared {
            segment,
            state,
            begin,
            waiting: AtomicUsize::new(0),
            complete_ns: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            is_untrusted: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("gpu-track-pump".into())
            // It needs little, and the collector is small.
            .stack_size(64 * 1024)
            .spawn(move || of_thread.run(&sender, &main))?;
        Ok(Self { shared, batches, thread: Some(thread) })
    }

    /// All records that were read since the last time, in order, and the time (CLOCK_MONOTONIC, nanoseconds) up to
    /// which those and the ones before are all that were written.
    pub fn take(&self) -> (Vec<Stored>, u64) {
        // The time first: what is complete up to it was sent before it was stored.
        let complete_ns = self.shared.complete_ns.load(Ordering::Acquire);
        let records: Vec<Stored> = self.batches.try_iter().flatten().collect();
        self.shared.waiting.fetch_sub(records.len(), Ordering::Relaxed);
        (records, complete_ns)
    }

    /// If there is something in the ring, have it read now: what a sample sees should find its process known.
    pub fn freshen(&self) {
        let header = self.shared.segment.header();
        if header.head.0.load(Ordering::Relaxed) != header.tail.0.load(Ordering::Relaxed) {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(FRESHEN_WAIT);
        }
    }

    /// Wait until all that was written up to now has been read, at most for a second.
    pub fn flush(&self) {
        let start_ns = clock::monotonic_ns();
        let is_complete = || self.shared.complete_ns.load(Ordering::Acquire) >= start_ns;
        while !is_complete() && clock::monotonic_ns() < start_ns + LONGEST_FLUSH_NS {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(FRESHEN_WAIT);
        }
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
