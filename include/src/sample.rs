//! The sample ring of the live file ([`crate::live`]): the latest samples of the tree, while the job runs.
//!
//! The collector is the only writer, and readers never slow it down. Each slot is a sequence lock, whose sequence is
//! odd while it is being written. Sample number `n` is in slot `n % SAMPLE_CAPACITY`; the header's `samples` is the
//! number of samples written so far.

use crate::sync::{AtomicU64, Ordering, fence};

/// Slots of the sample ring: 100 s of samples at the default interval of 0.1 s.
pub const SAMPLE_CAPACITY: usize = 1024;

/// One sample of the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC, nanoseconds, in the collector's time namespace.
    pub monotonic_ns: u64,
    /// RAM of the command's first process, bytes.
    pub main_bytes: u64,
    /// RAM of all its descendants, shared memory counted once, bytes.
    pub descendants_bytes: u64,
    /// RAM of the whole tree, shared memory counted once, bytes.
    pub combined_bytes: u64,
    /// CPU time of the whole tree so far, ended processes included, nanoseconds.
    pub cpu_ns: u64,
    /// Live processes.
    pub processes: u64,
    /// Threads of the live processes.
    pub threads: u64,
}

/// Fields of a sample.
const FIELDS: usize = 7;

/// A slot of the sample ring.
pub type SampleSlot = Slot<FIELDS>;

/// `N` words under a sequence lock.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot<const N: usize> {
    sequence: AtomicU64,
    fields: [AtomicU64; N],
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<SampleSlot>() == 64);

/// How often a reader tries. A write takes nanoseconds, so a second try seldom meets it; loom needs few to be fast.
const TRIES: usize = if cfg!(loom) { 2 } else { 8 };

impl Sample {
    /// Gives the fields in the order in which a slot has them.
    pub(crate) fn to_fields(self) -> [u64; FIELDS] {
        [
            self.monotonic_ns,
            self.main_bytes,
            self.descendants_bytes,
            self.combined_bytes,
            self.cpu_ns,
            self.processes,
            self.threads,
        ]
    }

    /// Takes fields in the order in which a slot has them.
    fn from_fields(f: [u64; FIELDS]) -> Self {
        let [monotonic_ns, main_bytes, descendants_bytes, combined_bytes, cpu_ns, processes, threads] = f;
        Self { monotonic_ns, main_bytes, descendants_bytes, combined_bytes, cpu_ns, processes, threads }
    }
}

impl<const N: usize> Default for Slot<N> {
    fn default() -> Self {
        Self { sequence: AtomicU64::new(0), fields: core::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Slot<N> {
    /// Writes the fields. A reader sees all of them, or none.
    fn write_fields(&self, fields: [u64; N]) {
        // The sequence is odd where the writer before was killed while it wrote.
        let writing = self.sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
        self.sequence.store(writing, Ordering::Relaxed);
        // SYNC POINT: a reader that sees a new field also sees the odd sequence.
        fence(Ordering::Release);
        for (cell, value) in self.fields.iter().zip(fields) {
            cell.store(value, Ordering::Relaxed);
        }
        self.sequence.store(writing.wrapping_add(1), Ordering::Release);
    }

    /// Reads the fields. `None`: the slot is empty, or was being written at each try.
    fn read_fields(&self) -> Option<[u64; N]> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            let fields =
                core::array::from_fn(|i| self.fields.get(i).map_or(0, |f| f.load(Ordering::Relaxed)));
            // SYNC POINT: all fields are read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Some(fields);
            }
        }
        None
    }
}

impl SampleSlot {
    /// Stores a sample. For the collector only.
    pub fn write(&self, sample: Sample) {
        self.write_fields(sample.to_fields());
    }

    /// Reads the sample. `None`: the slot is empty, or was being written at each try.
    #[must_use]
    pub fn read(&self) -> Option<Sample> {
        self.read_fields().map(Sample::from_fields)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sample(n: u64) -> Sample {
        Sample::from_fields([n; FIELDS])
    }

    #[test]
    fn unwritten_slot_is_none() {
        assert_eq!(SampleSlot::default().read(), None);
    }

    #[test]
    fn slot_of_a_killed_writer_is_written_again() {
        let slot = SampleSlot::default();
        slot.write(sample(1));
        slot.sequence.fetch_add(1, Ordering::Relaxed);
        slot.fields[0].store(9, Ordering::Relaxed);
        assert_eq!(slot.read(), None);
        slot.write(sample(2));
        assert_eq!(slot.read(), Some(sample(2)));
    }

    #[test]
    fn readers_never_see_a_torn_sample() {
        let slot = SampleSlot::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..200_000).for_each(|n| slot.write(sample(n))));
            let mut last = 0;
            while !writer.is_finished() {
                if let Some(seen) = slot.read() {
                    assert_eq!(seen, sample(seen.monotonic_ns));
                    assert!(seen.monotonic_ns >= last);
                    last = seen.monotonic_ns;
                }
            }
        });
        assert_eq!(slot.read(), Some(sample(199_999)));
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p gpu-track-abi --release`
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;

    use super::*;

    /// A reader that runs concurrently with the writer sees a whole sample or none.
    #[test]
    fn a_writer_and_a_reader() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let slot = Arc::new(Slot::<2>::default());
            // Both in threads of their own, because loom tries no other orders of the first thread's operations.
            let [writer, reader] = [Arc::clone(&slot), Arc::clone(&slot)];
            let writer = loom::thread::spawn(move || (1..=2).for_each(|n| writer.write_fields([n; 2])));
            let reader = loom::thread::spawn(move || {
                if let Some([a, b]) = reader.read_fields() {
                    assert_eq!(a, b, "torn sample");
                }
            });
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(slot.read_fields(), Some([2; 2]));
        });
    }
}
