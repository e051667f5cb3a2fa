//! Words under a sequence lock: one writer, and readers that never slow it down.
//!
//! The sequence is 0 before the first write, and odd while the words are being written. If the writer is killed in the middle, it
//! stays odd until the next writer writes the words anew. So a reader tries a bounded number of times.

use crate::sync::{AtomicU64, Ordering, fence};

/// `N` words under a sequence lock.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot<const N: usize> {
    pub(crate) sequence: AtomicU64,
    pub(crate) words: [AtomicU64; N],
}

/// How often a reader tries. A write takes nanoseconds to microseconds, so a second try seldom meets the same write. Loom is fast only
/// with few tries.
const TRIES: usize = if cfg!(loom) { 2 } else { 8 };

/// Why words could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// They were never written.
    Empty,
    /// They were being written at each try, or their writer was killed in the middle.
    Busy,
}

impl<const N: usize> Default for Slot<N> {
    fn default() -> Self {
        Self { sequence: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Slot<N> {
    /// Writes the words, at most `N`. A reader sees all of them, or none. There must be one writer at a time.
    pub fn write_words(&self, words: impl IntoIterator<Item = u64>) {
        // The sequence is already odd if the writer before was killed while it wrote.
        let writing = self.sequence.load(Ordering::Relaxed).wrapping_add(1) | 1;
        self.sequence.store(writing, Ordering::Relaxed);
        // SYNC POINT: a reader that sees a new word also sees the odd sequence.
        fence(Ordering::Release);
        for (cell, value) in self.words.iter().zip(words) {
            cell.store(value, Ordering::Relaxed);
        }
        self.sequence.store(writing.wrapping_add(1), Ordering::Release);
    }

    /// Reads the first words, as many as `into` has room for.
    ///
    /// # Errors
    /// If they were never written, or were being written at each try. Then the content of `into` means nothing.
    pub fn read_words(&self, into: &mut [u64]) -> Result<(), Unread> {
        for _ in 0..TRIES {
            let before = self.sequence.load(Ordering::Acquire);
            if before == 0 {
                return Err(Unread::Empty);
            }
            for (value, cell) in into.iter_mut().zip(&self.words) {
                *value = cell.load(Ordering::Relaxed);
            }
            // SYNC POINT: all words are read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return Ok(());
            }
        }
        Err(Unread::Busy)
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p gpu-track-abi --release`
#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;

    use super::*;

    fn read(slot: &Slot<2>) -> Option<[u64; 2]> {
        let mut words = [0; 2];
        slot.read_words(&mut words).ok().map(|()| words)
    }

    /// A reader that runs concurrently with the writer sees all words of a write or none.
    #[test]
    fn a_writer_and_a_reader() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let slot = Arc::new(Slot::<2>::default());
            // Both in threads of their own, because loom tries no other orders of the first thread's operations.
            let [writer, reader] = [Arc::clone(&slot), Arc::clone(&slot)];
            let writer = loom::thread::spawn(move || (1..=2).for_each(|n| writer.write_words([n; 2])));
            let reader = loom::thread::spawn(move || {
                if let Some([a, b]) = read(&reader) {
                    assert_eq!(a, b, "torn words");
                }
            });
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(read(&slot), Some([2; 2]));
        });
    }
}
