//! Reads the overflow area after the segment: records that found the ring full, in the order of their writes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use gpu_track_abi::overflow::{SLOT, START, record};
use gpu_track_abi::record::Event;
use rustix::fs::FallocateFlags;

use super::records::{Read, is_young};
use crate::model::record_or_event::{OVERFLOW_MARK, StoredRecord};
use crate::sys::segment::Segment;

/// Records read per system call.
const BATCH: usize = 256;

/// Reads the overflow area.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// Number of the next record to read from the file.
    next: u64,
    /// Number of records in the file, at the last [`Self::note_appended`].
    end: u64,
    /// Records that were read and not passed on, each with the ring position that it comes before.
    read: VecDeque<(Read, u64)>,
    /// The time that the last [`Self::note_appended`] was given, CLOCK_MONOTONIC nanoseconds. Records that are younger are
    /// postponed, each once.
    now_ns: u64,
    /// Position of the last postponed record, and the value of `now_ns` when it was postponed.
    postponed: Option<(u64, u64)>,
    /// Offset up to which the file's space was released.
    released: u64,
    /// Reading has ended: a slot is not as the shim writes it, or the file has lost records.
    is_damaged: bool,
}

impl Overflow {
    /// A reader that continues after the first `count` records, which an earlier collector has read.
    pub(crate) fn resume(count: u64) -> Self {
        Self { next: count, end: count, ..Self::default() }
    }

    /// Notes how many records the file has by now, so that [`Self::next_before`] gives them. Records younger than `now_ns`
    /// (CLOCK_MONOTONIC nanoseconds) are postponed, each once, as the ring's reader does.
    pub(crate) fn note_appended(&mut self, segment: &Segment, now_ns: u64) {
        self.now_ns = now_ns;
        if !self.is_damaged {
            // A process can truncate the file. The end stays, so that the missing records show as damage.
            self.end = self.end.max(segment.appended());
        }
    }

    /// The next record, if it comes before this position in the ring. `None`: there is no record, or the next one comes
    /// later or is postponed.
    pub(crate) fn next_before(&mut self, segment: &Segment, position: u64) -> Option<Read> {
        if self.read.is_empty() && self.next < self.end {
            self.fetch(segment);
        }
        let ((record, _), before) = self.read.front()?;
        if *before > position {
            return None;
        }
        // A record that was postponed at an earlier time comes now, however young it is.
        let was_postponed =
            self.postponed.is_some_and(|(number, now_ns)| number == record.position && now_ns != self.now_ns);
        if is_young(record.origin.monotonic_ns, self.now_ns) && !was_postponed {
            self.postponed = Some((record.position, self.now_ns));
            return None;
        }
        self.read.pop_front().map(|(read, _)| read)
    }

    /// Reads the next batch of records from the file into `read`, which must be empty. The file must have one (`next < end`). Ends
    /// reading for good at a damaged record, or if none can be read.
    fn fetch(&mut self, segment: &Segment) {
        let count = usize::try_from(self.end - self.next).unwrap_or(BATCH).min(BATCH);
        let mut bytes = vec![0; count * SLOT];
        let at = START.saturating_add(self.next.saturating_mul(SLOT as u64));
        let length = rustix::io::pread(segment.named().file(), &mut bytes, at).unwrap_or(0);
        // Read after the records: each writer took its record's `before` from the ring's head, which only grows.
        let head = segment.header().head.0.load(Ordering::Relaxed);
        for slot in bytes.get(..length).unwrap_or_default().chunks_exact(SLOT) {
            let (words, before) = record(slot);
            let is_possible = before <= head;
            let Some((origin, event)) = Event::decode(&words).filter(|_| is_possible) else {
                self.is_damaged = true;
                break;
            };
            // The mark tells this position from one in the ring.
            let stored = StoredRecord { position: OVERFLOW_MARK | self.next, origin, event };
            self.read.push_back(((stored, words), before));
            self.next += 1;
        }
        if self.is_damaged || self.read.is_empty() {
            // The file was truncated, or its records are not the shim's: later slots cannot be trusted.
            self.is_damaged = true;
            self.end = self.next;
        }
    }

    /// Releases the file's space of records that were passed on. They must be in the journal by now.
    pub(crate) fn release(&mut self, segment: &Segment) {
        let page = rustix::param::page_size() as u64;
        // Only whole pages can be released.
        let end = START.saturating_add(self.count().saturating_mul(SLOT as u64)) / page * page;
        let begin = self.released.max(START);
        if end > begin {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // If this fails, the space stays in use.
            let _ = rustix::fs::fallocate(segment.named().file(), flags, begin, end - begin);
            self.released = end;
        }
    }

    /// Whether reading has ended: a slot is not as the shim writes it, or the file has lost records.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Number of records that were passed on.
    pub(crate) fn count(&self) -> u64 {
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
        overflow.note_appended(segment, u64::MAX);
        std::iter::from_fn(|| overflow.next_before(segment, position))
            .map(|(stored, _)| match stored.event {
                Event::SpawnFailed { error } => error,
                _ => -1,
            })
            .collect()
    }

    // Requirement: FAULT-7
    #[test]
    fn overflow_is_read_in_order_and_its_space_released() {
        let (_directory, segment) = segment();
        let capacity = RING_CAPACITY as u64;
        (0..RING_CAPACITY as i32 + 1000).for_each(|error| push(&segment, error));
        assert_eq!((segment.appended(), segment.ring().dropped()), (1000, 0));
        let mut overflow = Overflow::resume(0);
        assert!(errors(&mut overflow, &segment, capacity - 1).is_empty(), "records of the ring come first");
        let blocks = || rustix::fs::fstat(segment.named().file()).unwrap().st_blocks;
        let before = blocks();
        let expected: Vec<_> = (RING_CAPACITY as i32..).take(1000).collect();
        assert_eq!(errors(&mut overflow, &segment, capacity), expected);
        overflow.release(&segment);
        assert!(before - blocks() >= 1000 * SLOT as i64 / 512 - 8, "{before} {}", blocks());
        // A new reader continues after the released space.
        let mut next = Overflow::resume(overflow.count());
        push(&segment, 7);
        assert_eq!(errors(&mut next, &segment, capacity), [7]);
        // The ring has room again: its next record comes after the records that were appended before.
        segment.ring().release(0);
        push(&segment, 8);
        segment.append(&Event::SpawnFailed { error: 9 }.encode(&Origin::default())).unwrap();
        assert!(errors(&mut next, &segment, capacity).is_empty());
        assert_eq!(errors(&mut next, &segment, capacity + 1), [9]);
        assert!(!next.is_damaged());
    }

    #[test]
    fn young_record_is_postponed_once() {
        let (_directory, segment) = segment();
        let event = Event::SpawnFailed { error: 1 };
        for monotonic_ns in [100, 200, 300] {
            segment.append(&event.encode(&Origin { monotonic_ns, ..Origin::default() })).unwrap();
        }
        let mut overflow = Overflow::resume(0);
        let mut count = |now_ns| {
            overflow.note_appended(&segment, now_ns);
            std::iter::from_fn(|| overflow.next_before(&segment, 0)).count()
        };
        assert_eq!([100, 100, 150, 150, 400].map(&mut count), [1, 0, 1, 0, 1], "a clock can stay ahead");
    }

    #[test]
    fn slot_not_written_by_the_shim_ends_reading() {
        let (_directory, segment) = segment();
        rustix::fs::ftruncate(segment.named().file(), 1 << 40).unwrap();
        let mut overflow = Overflow::resume(0);
        for _ in 0..2 {
            assert!(errors(&mut overflow, &segment, u64::MAX).is_empty() && overflow.is_damaged());
        }
        assert_eq!(overflow.count(), 0);
    }
}
