//! The tables of the live file: the GPUs, the largest live processes, and the summary, a text of JSON.
//!
//! A table is under one sequence lock ([`crate::slot`]), so all entries are of one time. Its first words are that time, how many
//! entries it has, and how many more there would be. The entries follow. What is not known is [`crate::words::UNKNOWN`] or NaN, never 0.

use crate::slot::Slot;
use crate::words::{Words, struct_of_words};

/// Maximum number of GPUs that have an entry: eight devices of seven MIG instances each, and themselves.
pub const GPU_CAPACITY: usize = 64;
/// Maximum number of processes that have an entry.
pub const PROCESS_CAPACITY: usize = 256;
/// Maximum number of bytes of the summary.
pub const SUMMARY_CAPACITY: usize = 64 * 1024;

/// Words of a table between its sequence and its entries: the time, the number of entries, the number of others, and four zeros.
pub const HEAD_WORDS: usize = 7;
/// Bytes of a GPU's id, with a NUL at the end.
const UUID_BYTES: usize = 80;
/// Bytes of a GPU's product name, with a NUL at the end.
const NAME_BYTES: usize = 48;
/// Bytes of a process's command, with a NUL at the end.
const COMMAND_BYTES: usize = 64;

/// The table of GPUs.
pub type GpuTable = Slot<{ HEAD_WORDS + GPU_CAPACITY * GpuEntry::WORDS }>;
/// The table of the largest live processes.
pub type ProcessTable = Slot<{ HEAD_WORDS + PROCESS_CAPACITY * ProcessEntry::WORDS }>;
/// The summary. Its entries are bytes.
pub type SummaryTable = Slot<{ HEAD_WORDS + SUMMARY_CAPACITY / 8 }>;

/// A text of at most `N - 1` bytes. A longer one is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Text<N> {
    /// Takes the text up to its first NUL, cut between two characters if it is too long.
    pub fn new(text: &str) -> Self {
        let text = text.split('\0').next().unwrap_or_default();
        let length = end_of_character(text, N - 1);
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(text.as_bytes().iter().take(length)) {
            *to = *from;
        }
        Self(bytes)
    }

    /// Its bytes up to the first NUL. Another program may have written them, so they can be anything.
    pub fn bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl<const N: usize> Words for Text<N> {
    const WORDS: usize = {
        assert!(N.is_multiple_of(8));
        N / 8
    };

    fn words(&self) -> impl Iterator<Item = u64> {
        words_of(&self.0)
    }

    fn take(words: &mut core::slice::Iter<'_, u64>) -> Self {
        let mut bytes = [0; N];
        let (chunks, _) = bytes.as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.to_ne_bytes();
        }
        Self(bytes)
    }
}

/// The largest length of the text, at most `most` bytes, that cuts no character.
fn end_of_character(text: &str, most: usize) -> usize {
    (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Packs bytes into words, with zeros after the last byte.
pub fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        u64::from_ne_bytes(word)
    })
}

struct_of_words! {
    /// One GPU as the last sample has it. A figure is the largest that was read since the sample before, or the last one if none was
    /// read. `None`: it is not known, or was not read within two intervals.
    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    pub struct GpuEntry {
        /// The driver's own number for it.
        pub index: Option<u64>,
        /// When it was read last, CLOCK_MONOTONIC nanoseconds; `None`: never.
        pub read_ns: Option<u64>,
        /// Memory capacity, bytes.
        pub total_bytes: Option<u64>,
        /// Memory in use by all processes of the machine, bytes.
        pub used_bytes: Option<u64>,
        /// Memory of the run's processes, bytes.
        pub run_bytes: Option<u64>,
        /// Utilisation, percent.
        pub utilization_percent: Option<f64>,
        /// Power, watts.
        pub power_w: Option<f64>,
        /// Temperature, degrees Celsius.
        pub temperature_c: Option<f64>,
        /// Clock of the processors, MHz.
        pub sm_clock_mhz: Option<f64>,
        /// Its UUID, or its PCI address where it has none.
        pub uuid: Text<UUID_BYTES>,
        /// Its product name; empty: not known.
        pub name: Text<NAME_BYTES>,
    }
}

struct_of_words! {
    /// A live process as the last sample found it.
    #[derive(Debug, Clone, Copy, Default, PartialEq)]
    pub struct ProcessEntry {
        /// Its pid in the collector's pid namespace.
        pub pid: Option<u64>,
        /// The pid there of the process that made it; `None`: that is gone, or not known.
        pub parent_pid: Option<u64>,
        /// When it started, CLOCK_MONOTONIC nanoseconds.
        pub start_ns: Option<u64>,
        /// RSS and huge pages of hugetlbfs, bytes.
        pub rss_bytes: Option<u64>,
        /// Its own CPU time since its start, nanoseconds.
        pub cpu_ns: Option<u64>,
        /// Its memory on all GPUs, bytes.
        pub gpu_bytes: Option<u64>,
        /// Its command name.
        pub command: Text<COMMAND_BYTES>,
    }
}

const _: () = assert!(GpuEntry::WORDS * 8 == 200 && ProcessEntry::WORDS * 8 == 112);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::words::UNKNOWN;

    #[test]
    fn entries_come_back_from_their_words_and_unknown_is_no_number() {
        let gpu = GpuEntry {
            index: Some(0),
            used_bytes: Some(7),
            power_w: Some(0.0),
            uuid: Text::new("GPU-1"),
            ..GpuEntry::default()
        };
        let words: Vec<u64> = gpu.words().collect();
        assert_eq!(words.len(), GpuEntry::WORDS);
        assert_eq!(words[1], UNKNOWN);
        assert!(f64::from_bits(words[5]).is_nan());
        assert_eq!(GpuEntry::of_words(&words), gpu);
        let process = ProcessEntry { pid: Some(1), command: Text::new("sh"), ..ProcessEntry::default() };
        let words: Vec<u64> = process.words().collect();
        assert_eq!((words.len(), ProcessEntry::of_words(&words)), (ProcessEntry::WORDS, process));
        assert_eq!(ProcessEntry::of_words(&[]), ProcessEntry::default());
        assert_eq!(GpuEntry::of_words(&[]), GpuEntry::default());
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_end_at_a_nul() {
        assert_eq!(Text::<8>::new("1234567890").bytes(), b"1234567");
        assert_eq!(Text::<8>::new("123456ü").bytes(), b"123456");
        assert_eq!(Text::<8>::new("ab\0cd").bytes(), b"ab");
        assert_eq!(Text::<8>::of_words(&[u64::MAX]).bytes(), [255; 8], "no NUL at its end");
    }
}
