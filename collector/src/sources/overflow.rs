//! Records that found the ring full, from behind the segment, in the order in which they were appended.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use gpu_track_abi::overflow::{SLOT, START, record};
use gpu_track_abi::record::Event;
use rustix::fs::FallocateFlags;

use super::records::{Read, is_young};
use crate::model::finding::{MARK, StoredRecord};
use crate::sys::segment::Segment;

/// So many are read at once.
const MOST_AT_ONCE: usize = 256;

/// Reads what was appended.
#[derive(Debug, Default)]
pub struct Overflow {
    /// Number of the next one that is not in memory.
    next: u64,
    /// How many there were at the last look.
    end: u64,
    /// Beside each, the ring's position before which it comes.
    read: VecDeque<(Read, u64)>,
    /// What is younger is not handed on, except for what was held back at another time.
    now_ns: u64,
    held_back: Option<(u64, u64)>,
    /// Up to where in the file, if any was.
    given_back: u64,
    is_damaged: bool,
}

impl Overflow {
    /// A reader that goes on behind the first `count`, which another has read.
    #[must_use]
    pub fn resume(count: u64) -> Self {
        Self { next: count, end: count, ..Self::default() }
    }

    /// See what is there. Records younger than `now_ns` stay for the next time, as those of the ring do.
    pub fn look(&mut self, segment: &Segment, now_ns: u64) {
        self.now_ns = now_ns;
        if !self.is_damaged {
            self.end = self.end.max(segment.appended());
        }
    }

    /// The next record, if all that it may follow from is before this position in the ring.
    pub fn next_before(&mut self, segment: &Segment, position: u64) -> Option<Read> {
        if self.read.is_empty() && self.next < self.end {
            self.fetch(segment);
        }
        let ((record, _), before) = self.read.front()?;
        if *before > position {
            return None;
        }
        let is_young = is_young(record.origin.monotonic_ns, self.now_ns);
        let (number, now_ns) = self.held_back.unwrap_or_default();
        if is_young && (number != record.position || now_ns == self.now_ns) {
            self.held_back = Some((record.position, self.now_ns));
            return None;
        }
        self.read.pop_front().map(|(read, _)| read)
    }

    fn fetch(&mut self, segment: &Segment) {
        let count = usize::try_from(self.end - self.next).unwrap_or(MOST_AT_ONCE).min(MOST_AT_ONCE);
        let mut bytes = vec![0; count * SLOT];
        let at = START.saturating_add(self.next.saturating_mul(SLOT as u64));
        let length = rustix::io::pread(segment.named().file(), &mut bytes, at).unwrap_or(0);
        let head = segment.header().head.0.load(Ordering::Relaxed);
        for slot in bytes.get(..length).unwrap_or_default().chunks_exact(SLOT) {
            let (words, before) = record(slot);
            let Some((origin, event)) = Event::decode(&words).filter(|_| before <= head) else {
                self.is_damaged = true;
                break;
            };
            let stored = StoredRecord { position: MARK | self.next, origin, event };
            self.read.push_back(((stored, words), before));
            self.next += 1;
        }
        if self.is_damaged || self.read.is_empty() {
            // Cut short, or no writer of ours: nothing that follows can be told apart.
            self.is_damaged = true;
            self.end = self.next;
        }
    }

    /// Those that were handed on are taken down elsewhere: give their room back.
    pub fn give_back(&mut self, segment: &Segment) {
        let page = rustix::param::page_size() as u64;
        // Only whole pages are of use to anybody.
        let end = START.saturating_add(self.count().saturating_mul(SLOT as u64)) / page * page;
        let begin = self.given_back.max(START);
        if end > begin {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where it can't be given back, it stays until there is no room for more.
            let _ = rustix::fs::fallocate(segment.named().file(), flags, begin, end - begin);
            self.given_back = end;
        }
    }

    /// There was what no process of ours writes: nothing behind it is read.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// How many were handed on.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.next - self.read.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::segment::NewSession;
    use gpu_track_abi::layout::RING_CAPACITY;
    use gpu_track_abi::record::Origin;

    fn segment() -> (tempfile::TempDir, Segment) {
        let directory = tempfile::tempdir().unwrap();
        let segment = Segment::create(&directory.path().join("segment"), &NewSession::default()).unwrap();
        (directory, segment)
    }

    fn push(segment: &Segment, error: i32) {
        segment.push_event(&Origin::default(), &Event::SpawnFailed { error });
    }

    fn errors(overflow: &mut Overflow, segment: &Segment, position: u64) -> Vec<i32> {
        overflow.look(segment, u64::MAX);
        std::iter::from_fn(|| overflow.next_before(segment, position))
            .map(|(stored, _)| match stored.event {
                Event::SpawnFailed { error } => error,
                _ => -1,
            })
            .collect()
    }

    #[test]
    fn what_the_ring_has_no_room_for_comes_back_in_order_and_its_room_is_given_back() {
        let (_directory, segment) = segment();
        let capacity = RING_CAPACITY as u64;
        (0..RING_CAPACITY as i32 + 1000).for_each(|error| push(&segment, error));
        assert_eq!((segment.appended(), segment.ring().dropped()), (1000, 0));
        let mut overflow = Overflow::resume(0);
        assert!(errors(&mut overflow, &segment, capacity - 1).is_empty(), "the ring's are before it");
        let blocks = || rustix::fs::fstat(segment.named().file()).unwrap().st_blocks;
        let before = blocks();
        let expected: Vec<_> = (RING_CAPACITY as i32..).take(1000).collect();
        assert_eq!(errors(&mut overflow, &segment, capacity), expected);
        overflow.give_back(&segment);
        assert!(before - blocks() >= 1000 * SLOT as i64 / 512 - 8, "{before} {}", blocks());
        // Another goes on behind them, whatever was given back.
        let mut next = Overflow::resume(overflow.count());
        push(&segment, 7);
        assert_eq!(errors(&mut next, &segment, capacity), [7]);
        // There is room again: what comes next in the ring comes after what was appended before.
        segment.ring().release(0);
        push(&segment, 8);
        segment.append(&Event::SpawnFailed { error: 9 }.encode(&Origin::default())).unwrap();
        assert!(errors(&mut next, &segment, capacity).is_empty());
        assert_eq!(errors(&mut next, &segment, capacity + 1), [9]);
        assert!(!next.is_damaged());
    }

    #[test]
    fn what_is_younger_than_the_kernels_events_that_were_read_waits_for_them_once() {
        let (_directory, segment) = segment();
        let event = Event::SpawnFailed { error: 1 };
        for monotonic_ns in [100, 200, 300] {
            segment.append(&event.encode(&Origin { monotonic_ns, ..Origin::default() })).unwrap();
        }
        let mut overflow = Overflow::resume(0);
        let mut count = |now_ns| {
            overflow.look(&segment, now_ns);
            std::iter::from_fn(|| overflow.next_before(&segment, 0)).count()
        };
        assert_eq!(
            [100, 100, 150, 150, 400].map(&mut count),
            [1, 0, 1, 0, 1],
            "a clock may be ahead for good"
        );
    }

    #[test]
    fn what_nobody_of_ours_appended_ends_it() {
        let (_directory, segment) = segment();
        rustix::fs::ftruncate(segment.named().file(), 1 << 40).unwrap();
        let mut overflow = Overflow::resume(0);
        for _ in 0..2 {
            assert!(errors(&mut overflow, &segment, u64::MAX).is_empty() && overflow.is_damaged());
        }
        assert_eq!(overflow.count(), 0);
    }
}
