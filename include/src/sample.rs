//! The sample ring of the live file ([`crate::live`]): the latest samples of the tree, while the job runs.
//!
//! The collector is the only writer. Each slot is under a sequence lock ([`crate::slot`]). Sample number `n` is in slot
//! `n % SAMPLE_CAPACITY`; the header's `samples` is the number of samples written so far.

use crate::slot::Slot;
use crate::words::{Words, struct_of_words};

/// Slots of the sample ring: 100 s of samples at the default interval of 0.1 s.
pub const SAMPLE_CAPACITY: usize = 1024;

struct_of_words! {
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
}

/// A slot of the sample ring.
pub type SampleSlot = Slot<{ Sample::WORDS }>;

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<SampleSlot>() == 64);

impl SampleSlot {
    /// Stores a sample. Only the collector may call this.
    pub fn write(&self, sample: Sample) {
        self.write_words(sample.words());
    }

    /// Reads the sample. `None`: the slot is empty, or was being written at each try.
    pub fn read(&self) -> Option<Sample> {
        let mut words = [0; Sample::WORDS];
        self.read_words(&mut words).ok().map(|()| Sample::of_words(&words))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    fn sample(n: u64) -> Sample {
        Sample::of_words(&[n; Sample::WORDS])
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
        slot.words[0].store(9, Ordering::Relaxed);
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
