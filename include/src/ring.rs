//! The event ring: many writers, one reader, lock-free, bounded. Writers may be stopped or killed at any instruction.
//!
//! A slot is N words of 64 bits: the lap tag in the upper 32 bits, the payload in the lower. In lap L an empty word
//! has tag 2L and a written one 2L+1, so an all-zero file is a valid empty ring. A payload of 0 is not written,
//! except in the last word, which publishes the record. This saves time, since many words of a record are upper halves of small
//! numbers.
//!
//! - A writer takes a ticket by CAS on `head`, but only while `head - tail < capacity`.
//! - It then writes each word that is not 0, and the last one, by CAS from (2L, 0) to (2L+1, payload). The CAS of the
//!   last word has release ordering. If a CAS fails, the slot was retired. Then the writer takes a new ticket, at most `TRIES`
//!   in all.
//! - The reader waits until the last word is written. It copies and checks all words, stores tag 2L+2 in each, and
//!   advances `tail`.
//! - The reader retires a slot that is unpublished past a grace period. It first changes the *last* word to 2L+2 by
//!   CAS. If that fails, the record was published at this moment, and the reader reads it. Otherwise it changes the other words, and
//!   advances `tail`.
//!
//! Tickets are unique, tags only grow, and `tail` moves only when all words have the next lap's tag. So the CAS of a
//! writer that was stopped and continues late fails, where a plain store would overwrite the slot.
//!
//! The reader keeps its own position, so a hostile writer can't make it read a slot twice by changing `tail`.

use crate::sync::{AtomicU64, Ordering};

/// How many tickets a writer takes for a record before it gives up. A ticket is lost only if the reader retires its slot, which
/// takes a whole grace period.
const TRIES: u32 = 4;

/// A ring in memory that the caller provides. `N` is the number of words of a record.
#[derive(Clone, Copy)]
pub struct Ring<'a, const N: usize> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    dropped: &'a AtomicU64,
    words: &'a [AtomicU64],
}

/// The result of writing a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// The record is in the ring.
    Stored,
    /// The record is in the ring and made a quarter of it used: wake the reader.
    StoredWake,
    /// The record is not in the ring, which is full or retired the writer's slot `TRIES` times.
    Full,
}

/// What the reader finds at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pop<const N: usize> {
    /// The record at the position.
    Record([u32; N]),
    /// No writer has taken this ticket yet.
    Empty,
    /// A writer has the ticket and has not published its record.
    Pending,
    /// The slot or the counters have values that no correct writer leaves.
    Damaged,
}

/// The tag of a word that is empty in this lap.
const fn empty(lap: u32) -> u32 {
    lap.wrapping_mul(2)
}

/// Makes a word of a tag and a payload.
const fn word(tag: u32, payload: u32) -> u64 {
    ((tag as u64) << 32) | payload as u64
}

/// The tag in a word.
const fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Stores `value`, whatever the cell had before.
#[cfg(not(loom))]
fn overwrite(cell: &AtomicU64, value: u64) {
    cell.store(value, Ordering::Relaxed);
}

/// Stores `value` by an exchange, because loom does not order a plain store after a writer's successful exchange of the same cell.
/// Real machines do: an exchange after the store would have failed.
#[cfg(loom)]
fn overwrite(cell: &AtomicU64, value: u64) {
    cell.swap(value, Ordering::Relaxed);
}

impl<'a, const N: usize> Ring<'a, N> {
    /// Makes a ring over `words.len() / N` slots. `None`: that number is not whole, or no power of two.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        dropped: &'a AtomicU64,
        words: &'a [AtomicU64],
    ) -> Option<Self> {
        let capacity = words.len().checked_div(N)?;
        if capacity == 0 || !capacity.is_power_of_two() || capacity.checked_mul(N)? != words.len() {
            return None;
        }
        Some(Self { head, tail, dropped, words })
    }

    /// The number of slots.
    fn capacity(&self) -> u64 {
        (self.words.len() / N) as u64
    }

    /// The words of a ticket's slot, and its lap. Never `None`, because the index is masked by the capacity.
    fn slot(&self, ticket: u64) -> Option<(&'a [AtomicU64], u32)> {
        let capacity = self.capacity();
        let start = (ticket & (capacity - 1)) as usize * N;
        let lap = (ticket / capacity) as u32;
        self.words.get(start..start + N).map(|words| (words, lap))
    }

    /// How many records were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Counts a dropped record.
    pub fn count_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes one record. Never waits, and is async-signal-safe. If the ring is full, the caller stores the record elsewhere, or
    /// calls [`Self::count_drop`].
    pub fn push(&self, record: &[u32; N]) -> Push {
        for _ in 0..TRIES {
            let Some((ticket, used)) = self.ticket() else { break };
            let Some((slot, lap)) = self.slot(ticket) else { break };
            if Self::write(slot, lap, record) {
                // While the reader does not rest, only the record with which a quarter of the ring is used wakes it.
                return if used + 1 == self.capacity().div_ceil(4) { Push::StoredWake } else { Push::Stored };
            }
        }
        Push::Full
    }

    /// Takes a ticket. Returns it, and how many slots were used before it. `None`: the ring is full.
    fn ticket(&self) -> Option<(u64, u64)> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SYNC POINT: a writer that sees this tail sees the slots emptied before it.
            let used = head.wrapping_sub(self.tail.load(Ordering::Acquire));
            if used >= self.capacity() {
                // `head` may be out of date: if the tail has passed it, the difference wraps to a huge number.
                let now = self.head.load(Ordering::Relaxed);
                if now == head {
                    return None;
                }
                head = now;
                continue;
            }
            match self.head.compare_exchange_weak(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((head, used)),
                Err(now) => head = now,
            }
        }
    }

    /// Writes a record's words in order, and stops at the first one that it can't write. Returns whether all were written. If not, the
    /// reader has retired the slot.
    fn write(slot: &[AtomicU64], lap: u32, record: &[u32; N]) -> bool {
        let free = word(empty(lap), 0);
        let full_tag = empty(lap).wrapping_add(1);
        for (i, (cell, payload)) in slot.iter().zip(record).enumerate() {
            let is_last = i + 1 == N;
            // A payload of 0 need not be written: the reader takes a word that is still free for 0.
            if *payload == 0 && !is_last {
                continue;
            }
            // SYNC POINT: the last word publishes the record; the reader loads it with acquire.
            let order = if is_last { Ordering::Release } else { Ordering::Relaxed };
            if cell.compare_exchange(free, word(full_tag, *payload), order, Ordering::Relaxed).is_err() {
                return false;
            }
        }
        true
    }

    /// Reads the record at `position`, which must be the value of `tail`. For the reader only.
    pub fn peek(&self, position: u64) -> Pop<N> {
        let ahead = self.head.load(Ordering::Relaxed).wrapping_sub(position);
        if ahead == 0 {
            return Pop::Empty;
        }
        if ahead > self.capacity() {
            return Pop::Damaged;
        }
        let Some((slot, lap)) = self.slot(position) else { return Pop::Damaged };
        let Some(last) = slot.last() else { return Pop::Damaged };
        let full = empty(lap).wrapping_add(1);
        // SYNC POINT: it pairs with the release of the last word in `write`.
        match last.load(Ordering::Acquire) {
            value if tag_of(value) == full => {}
            // A payload beside the empty tag is damage: no writer can complete the slot, and `retire` can't free it.
            value if value == word(empty(lap), 0) => return Pop::Pending,
            _ => return Pop::Damaged,
        }
        let mut record = [0u32; N];
        for (i, (out, cell)) in record.iter_mut().zip(slot).enumerate() {
            let value = cell.load(Ordering::Relaxed);
            // A writer leaves a payload of 0 unwritten, but in the last word.
            let is_zero = i + 1 < N && value == word(empty(lap), 0);
            // The last word had the right tag a moment ago. If it no longer has, the file was truncated and reads as zeros.
            if tag_of(value) != full && !is_zero {
                return Pop::Damaged;
            }
            *out = value as u32;
        }
        Pop::Record(record)
    }

    /// Frees the slot at `position` for the next lap and moves `tail` after it. For the reader only.
    pub fn release(&self, position: u64) {
        if let Some((slot, lap)) = self.slot(position) {
            for cell in slot {
                overwrite(cell, word(empty(lap).wrapping_add(2), 0));
            }
        }
        // SYNC POINT: a writer that sees this tail sees the emptied words.
        self.tail.store(position.wrapping_add(1), Ordering::Release);
    }

    /// Retires the slot at `position`, which [`Self::peek`] found pending. Returns false if its last word has changed since: the
    /// record was published after all, or the slot is damaged. `peek` tells which. For the reader only.
    pub fn retire(&self, position: u64) -> bool {
        let Some((slot, lap)) = self.slot(position) else { return false };
        let Some(last) = slot.last() else { return false };
        let next = word(empty(lap).wrapping_add(2), 0);
        // The last word first: afterwards the late writer can't publish.
        if last.compare_exchange(word(empty(lap), 0), next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.release(position);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const N: usize = 4;

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        dropped: AtomicU64,
        words: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(slots: usize) -> Self {
            let zero = || AtomicU64::new(0);
            Self {
                head: zero(),
                tail: zero(),
                dropped: zero(),
                words: (0..slots * N).map(|_| zero()).collect(),
            }
        }
        fn ring(&self) -> Ring<'_, N> {
            Ring::new(&self.head, &self.tail, &self.dropped, &self.words).unwrap()
        }
    }

    #[test]
    fn records_come_back_in_order_over_many_laps() {
        let memory = Memory::new(4);
        let ring = memory.ring();
        let mut position = 0;
        for i in 0..1000u32 {
            assert_ne!(ring.push(&[i, i + 1, i + 2, !i]), Push::Full);
            if i % 3 == 2 {
                for j in i - 2..=i {
                    assert_eq!(ring.peek(position), Pop::Record([j, j + 1, j + 2, !j]));
                    ring.release(position);
                    position += 1;
                }
            }
        }
    }

    #[test]
    fn zero_payload_is_not_written_and_reads_as_zero() {
        let memory = Memory::new(1);
        let ring = memory.ring();
        for (position, record) in [[1, 2, 3, 4], [0, 7, 0, 0], [0; N]].into_iter().enumerate() {
            assert_eq!(ring.push(&record), Push::StoredWake);
            let lap = position as u32;
            let written =
                memory.words.iter().filter(|w| tag_of(w.load(Ordering::Relaxed)) == 2 * lap + 1).count();
            assert_eq!(written, [4, 2, 1][position]);
            assert_eq!(ring.peek(position as u64), Pop::Record(record));
            ring.release(position as u64);
        }
        // No writer leaves a payload in a word with an empty tag.
        assert_eq!(ring.push(&[0; N]), Push::StoredWake);
        memory.words[1].store(word(6, 1), Ordering::Relaxed);
        assert_eq!(ring.peek(3), Pop::Damaged);
    }

    #[test]
    fn full_ring_refuses_and_first_quarter_wakes() {
        let memory = Memory::new(8);
        let ring = memory.ring();
        let pushes: Vec<_> = (0..10).map(|i| ring.push(&[i; N])).collect();
        assert_eq!(pushes.iter().filter(|p| **p == Push::StoredWake).count(), 1);
        assert_eq!(pushes[1], Push::StoredWake);
        assert_eq!(pushes[8..], [Push::Full; 2]);
    }

    // Requirement: FAULT-6
    #[test]
    fn slot_of_a_dead_writer_is_retired() {
        let memory = Memory::new(2);
        let ring = memory.ring();
        ring.ticket().unwrap();
        ring.push(&[7; N]);
        assert_eq!(ring.peek(0), Pop::Pending);
        assert!(ring.retire(0));
        assert_eq!(ring.peek(1), Pop::Record([7; N]));
    }

    // Requirement: FAULT-6
    #[test]
    fn writer_of_a_retired_slot_takes_a_new_one() {
        let memory = Memory::new(2);
        let ring = memory.ring();
        let (ticket, _) = ring.ticket().unwrap();
        let (slot, lap) = ring.slot(ticket).unwrap();
        // A writer wrote its first word, was stopped, and its slot was retired.
        slot[0].store(word(1, 9), Ordering::Relaxed);
        assert!(ring.retire(0));
        assert!(!Ring::<N>::write(slot, lap, &[9; N]));
        assert_eq!(ring.peek(1), Pop::Empty);
        assert_ne!(ring.push(&[9; N]), Push::Full);
        assert_eq!(ring.peek(1), Pop::Record([9; N]));
    }

    #[test]
    fn garbage_is_damaged_and_does_not_panic() {
        let memory = Memory::new(2);
        let ring = memory.ring();
        memory.head.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ring.peek(0), Pop::Damaged);
        memory.head.store(1, Ordering::Relaxed);
        memory.words[3].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(ring.peek(0), Pop::Damaged);
    }

    // Requirement: FAULT-99
    #[test]
    fn payload_beside_an_empty_tag_in_the_last_word_is_damaged() {
        let memory = Memory::new(2);
        let ring = memory.ring();
        ring.ticket().unwrap();
        assert_eq!(ring.peek(0), Pop::Pending);
        memory.words[3].store(word(0, 7), Ordering::Relaxed);
        assert_eq!(ring.peek(0), Pop::Damaged);
    }

    #[test]
    fn four_writers_lose_no_stored_record() {
        let memory = Memory::new(64);
        let ring = memory.ring();
        let (stored, read) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u32)
                .map(|w| {
                    scope.spawn(move || {
                        (0..20_000u32).filter(|i| ring.push(&[w, *i, w ^ *i, 5]) != Push::Full).count()
                    })
                })
                .collect();
            let (mut position, mut read) = (0, 0usize);
            let mut next = [0u32; 4];
            loop {
                let done = writers.iter().all(|w| w.is_finished());
                match ring.peek(position) {
                    Pop::Record([w, i, x, 5]) if x == w ^ i => {
                        assert!(i >= next[w as usize], "records of one writer keep their order");
                        next[w as usize] = i + 1;
                        ring.release(position);
                        position += 1;
                        read += 1;
                    }
                    Pop::Empty if done => break,
                    Pop::Empty | Pop::Pending => std::hint::spin_loop(),
                    other => panic!("{other:?}"),
                }
            }
            (writers.into_iter().map(|w| w.join().unwrap()).sum::<usize>(), read)
        });
        assert_eq!(stored, read);
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p gpu-track-abi --release`
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    const N: usize = 3;

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        dropped: AtomicU64,
        words: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(slots: usize) -> Arc<Self> {
            let zero = || AtomicU64::new(0);
            Arc::new(Self {
                head: zero(),
                tail: zero(),
                dropped: zero(),
                words: (0..slots * N).map(|_| zero()).collect(),
            })
        }
        fn ring(&self) -> Ring<'_, N> {
            Ring::new(&self.head, &self.tail, &self.dropped, &self.words).unwrap()
        }
    }

    #[derive(Default)]
    struct Reader {
        seen: [u32; 4],
        position: u64,
    }

    impl Reader {
        fn read(&mut self, memory: &Memory, retire: bool) {
            let ring = memory.ring();
            match ring.peek(self.position) {
                Pop::Record([w, 0, x]) => {
                    assert_eq!(x, w + 100, "torn record");
                    self.seen[w as usize] += 1;
                    ring.release(self.position);
                    self.position += 1;
                }
                Pop::Pending if retire && ring.retire(self.position) => self.position += 1,
                Pop::Record(_) | Pop::Damaged => panic!("damaged"),
                Pop::Empty | Pop::Pending => {}
            }
        }
    }

    fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(f);
    }

    /// Three writers, two slots, and a reader that also retires pending slots: every record that `push` called stored
    /// is read once and undamaged.
    // Requirement: FAULT-6
    #[test]
    fn three_writers_two_slots() {
        model(2, || {
            let memory = Memory::new(2);
            let writers: Vec<_> = (1..=3u32)
                .map(|w| {
                    let memory = memory.clone();
                    loom::thread::spawn(move || memory.ring().push(&[w, 0, w + 100]) != Push::Full)
                })
                .collect();
            // In a thread of its own, because loom tries no other orders of the first thread's operations.
            let reader = {
                let memory = memory.clone();
                loom::thread::spawn(move || {
                    let mut reader = Reader::default();
                    reader.read(&memory, true);
                    reader
                })
            };
            let stored: Vec<bool> = writers.into_iter().map(|w| w.join().unwrap()).collect();
            let mut reader = reader.join().unwrap();
            for _ in 0..4 {
                reader.read(&memory, false);
            }
            for (w, stored) in stored.into_iter().enumerate() {
                assert_eq!(reader.seen[w + 1], u32::from(stored), "writer {}", w + 1);
            }
        });
    }
}
