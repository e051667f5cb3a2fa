//! Keeps the ring from filling up while the collector is busy: a thread that only moves records from the ring into
//! memory, woken by the doorbell, whatever the sampling of thousands of processes takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use gpu_track_abi::record::{Event, Origin};

use super::records::RecordReader;
use crate::segment::Segment;
use crate::{clock, priority};

/// The ring is looked at this often at least.
const LONGEST_NAP: Duration = Duration::from_millis(50);
/// It is looked at again this soon where a writer was not done.
const PENDING_NAP: Duration = Duration::from_millis(1);
/// Records that may wait in memory; beyond it they stay in the ring, which counts what it drops.
const MOST_WAITING: usize = 1 << 18;

/// A record that was read.
pub type Stored = (Origin, Event);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Stored>,
    complete_ns: u64,
    damaged: u64,
    is_untrusted: bool,
}

#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    state: Mutex<State>,
    is_over: AtomicBool,
    /// The doorbell rang: when all is read, the collector is woken.
    rung: AtomicBool,
}

/// The thread, and what it has read.
#[derive(Debug)]
pub struct Pump {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked with it left whole values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, main: &Thread) {
        priority::prefer_at_once();
        let mut reader = RecordReader::default();
        let mut read = Vec::new();
        while !self.is_over.load(Ordering::Acquire) {
            let doorbell = self.segment.doorbell();
            let now_ns = clock::monotonic_ns();
            let is_drained = self.lock().waiting.len() < MOST_WAITING
                && reader.drain(&self.segment, now_ns, |origin, event| read.push((*origin, *event)));
            {
                let mut state = self.lock();
                state.waiting.append(&mut read);
                state.damaged = reader.damaged();
                state.is_untrusted = reader.is_untrusted();
                if is_drained {
                    state.complete_ns = now_ns;
                }
            }
            if self.rung.swap(false, Ordering::AcqRel) {
                main.unpark();
            }
            self.segment.wait_doorbell(doorbell, if is_drained { LONGEST_NAP } else { PENDING_NAP });
            if self.segment.doorbell() != doorbell {
                self.rung.store(true, Ordering::Release);
            }
        }
    }
}

impl Pump {
    /// Start reading; `main` is unparked whenever the doorbell rings.
    pub fn start(segment: Arc<Segment>, main: Thread) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            segment,
            state: Mutex::default(),
            is_over: AtomicBool::new(false),
            rung: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("gpu-track-pump".into())
            // It needs little, and the collector is small.
            .stack_size(64 * 1024)
            .spawn(move || of_thread.run(&main))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// All records that were read since the last time, in order, and the time (CLOCK_MONOTONIC, nanoseconds) up to
    /// which those and the ones before are all that were written.
    pub fn take(&self) -> (Vec<Stored>, u64) {
        // The lock is held for moments only: the thread that keeps the ring from filling must never wait for us.
        let mut state = self.shared.lock();
        (std::mem::take(&mut state.waiting), state.complete_ns)
    }

    /// Wait until all that was written up to now has been read, at most for a second.
    pub fn flush(&self) {
        let start_ns = clock::monotonic_ns();
        while self.shared.lock().complete_ns < start_ns && clock::monotonic_ns() < start_ns + 1_000_000_000 {
            self.shared.segment.ring_doorbell();
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Records that made no sense, and whether the ring can no longer be read at all.
    #[must_use]
    pub fn damage(&self) -> (u64, bool) {
        let state = self.shared.lock();
        (state.damaged, state.is_untrusted)
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
