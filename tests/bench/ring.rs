//! Measures how many records per second the event ring takes from several writing processes while one process reads:
//! `ring WRITERS SLOTS SECONDS`. Prints "STORED_A_SECOND DROPPED_PERCENT COPIED_A_SECOND". The last figure is the upper
//! limit: each process copies the same records into shared memory of its own, without a reader.
#![allow(clippy::print_stdout, reason = "a program")]

use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpu_track_abi::record::RECORD_WORDS;
use gpu_track_abi::ring::{Pop, Push, Ring};

/// Shared counters, each on a cache line of its own, followed by the slots.
struct Shared {
    start: *mut u8,
    slots: usize,
}

const STATE: usize = 0;
const HEAD: usize = 64;
const TAIL: usize = 128;
const DROPPED: usize = 192;
const STORED: usize = 256;
const COPIED: usize = 320;
const WORDS: usize = 4096;

const GO: u32 = 1;
const COPY: u32 = 2;
const END: u32 = 3;

impl Shared {
    fn new(slots: usize, writers: usize) -> Option<Self> {
        let size = WORDS + slots * RECORD_WORDS * 8 + writers * RECORD_WORDS * 8;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which is never unmapped.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start: start.cast(), slots })
    }
    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, atomic.
        unsafe { &*self.start.add(at).cast() }
    }
    fn state(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.start.add(STATE).cast() }
    }
    fn ring(&self) -> Option<Ring<'_, RECORD_WORDS>> {
        // SAFETY: the mapping has this many words after the first page.
        let words = unsafe { slice::from_raw_parts(self.start.add(WORDS).cast(), self.slots * RECORD_WORDS) };
        Ring::new(self.counter(HEAD), self.counter(TAIL), self.counter(DROPPED), words)
    }
    fn write(&self, writer: usize) {
        let Some(ring) = self.ring() else { return };
        let mut record = [u32::try_from(writer).unwrap_or(0); RECORD_WORDS];
        while self.state().load(Ordering::Acquire) < GO {
            std::hint::spin_loop();
        }
        let mut stored = 0;
        while self.state().load(Ordering::Relaxed) == GO {
            record[1] = record[1].wrapping_add(1);
            match ring.push(&record) {
                Push::Stored | Push::StoredWake => stored += 1,
                Push::Full => ring.count_drop(),
            }
        }
        self.counter(STORED).fetch_add(stored, Ordering::Relaxed);
        // SAFETY: the mapping has a place for each writer after the slots.
        let place = unsafe { self.start.add(WORDS + (self.slots + writer) * RECORD_WORDS * 8) };
        let mut copied = 0;
        while self.state().load(Ordering::Relaxed) == COPY {
            record[1] = record[1].wrapping_add(1);
            // SAFETY: a record is half as large as its place, which only this writer uses.
            unsafe { ptr::write_volatile(place.cast(), record) };
            copied += 1;
        }
        self.counter(COPIED).fetch_add(copied, Ordering::Relaxed);
    }
}

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let &[writers, slots, seconds] = numbers.as_slice() else { std::process::exit(2) };
    let (writers, slots, time) = (writers as usize, slots as usize, Duration::from_secs_f64(seconds));
    let Some(shared) = Shared::new(slots, writers) else { std::process::exit(1) };
    for writer in 0..writers {
        // SAFETY: the process has one thread; the child only writes to the mapping and exits.
        if unsafe { libc::fork() } == 0 {
            shared.write(writer);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
    }
    let Some(ring) = shared.ring() else { std::process::exit(1) };
    let mut position = 0;
    let start = Instant::now();
    shared.state().store(GO, Ordering::Release);
    while start.elapsed() < time {
        for _ in 0..1024 {
            let Pop::Record(record) = ring.peek(position) else { break };
            std::hint::black_box(record);
            ring.release(position);
            position += 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    shared.state().store(COPY, Ordering::Release);
    let start = Instant::now();
    std::thread::sleep(time);
    let copying = start.elapsed().as_secs_f64();
    shared.state().store(END, Ordering::Release);
    // SAFETY: reaps children.
    while unsafe { libc::wait(ptr::null_mut()) } > 0 {}
    let stored = shared.counter(STORED).load(Ordering::Relaxed) as f64;
    let dropped = ring.dropped() as f64;
    let copied = shared.counter(COPIED).load(Ordering::Relaxed) as f64;
    println!("{} {} {}", stored / elapsed, 100.0 * dropped / (stored + dropped), copied / copying);
}
