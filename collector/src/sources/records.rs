//! The preload layer's reading end: event records out of the ring, in order, each once.

use std::sync::atomic::Ordering;

use gpu_track_abi::layout::RING_CAPACITY;
use gpu_track_abi::record::{Event, RECORD_WORDS};
use gpu_track_abi::ring::Pop;

use crate::model::finding::StoredRecord;
use crate::sys::clock;
use crate::sys::segment::Segment;

/// How long a writer may take between its ticket and its last word before its slot is retired. Running it needs 0.4 us.
/// If it was killed, there is nothing to wait for; if it was stopped or lost the CPU, it takes a new ticket when it
/// goes on, and whatever follows from its record can only come after that. Waiting longer would only fill the ring.
const WRITER_GRACE_NS: u64 = 2_000_000;

/// A record that is younger than this says nothing of its time.
const MOST_AHEAD_NS: u64 = 100_000_000;

/// Whether a record was written after `now_ns`, a time that may be long past where the machine is busy. Far ahead is the
/// clock of another time namespace.
pub(super) fn is_young(written_ns: u64, now_ns: u64) -> bool {
    let ahead_ns = written_ns.saturating_sub(now_ns);
    ahead_ns > 0 && (ahead_ns <= MOST_AHEAD_NS || written_ns <= clock::monotonic_ns())
}

/// A record beside its words.
pub type Read = (StoredRecord, [u32; RECORD_WORDS]);

/// Records are handed on so many at once at most: their slots are freed together after that.
const MOST_AT_ONCE: usize = 32;

/// Reads the ring.
#[derive(Debug, Default)]
pub struct RecordReader {
    position: u64,
    batch: Vec<Read>,
    pending_since_ns: Option<u64>,
    /// Position of a record that was too young.
    held_back: Option<u64>,
    damaged: u64,
    untrusted: bool,
}

/// What is behind the records that were read.
enum Stop {
    /// Nothing.
    Empty,
    /// A record of a later time than was asked for.
    Young,
    /// A writer that is not done.
    Pending,
    /// What no writer of ours leaves.
    Damaged,
}

impl RecordReader {
    /// A reader that goes on behind the records before `position`, which another has read.
    #[must_use]
    pub fn resume(segment: &Segment, position: u64) -> Self {
        let freed = segment.header().tail.0.load(Ordering::Relaxed);
        let capacity = RING_CAPACITY as u64;
        // It may have died before it freed the last one, or after it passed slots that held no record. Any other
        // tail was written by no collector.
        if position.wrapping_sub(freed) <= capacity {
            (freed..position).for_each(|position| segment.ring().release(position));
            Self { position, ..Self::default() }
        } else if freed.wrapping_sub(position) <= capacity {
            Self { position: freed, ..Self::default() }
        } else {
            Self { position, untrusted: true, damaged: 1, ..Self::default() }
        }
    }

    /// Hand on all records that are there, at most a few rings full (a writer at full speed must not keep us here), and
    /// free their slots. Tells whether all that were written before `now_ns` were read: one writer that is not done yet
    /// hides those behind it. Younger ones stay for the next time, so that what other layers say can be put in between.
    pub fn drain(&mut self, segment: &Segment, now_ns: u64, mut take: impl FnMut(&[Read])) -> bool {
        let ring = segment.ring();
        for _ in 0..4 * RING_CAPACITY / MOST_AT_ONCE {
            if self.untrusted {
                return true;
            }
            let first = self.position;
            let stop = self.read_batch(segment, now_ns);
            if !self.batch.is_empty() {
                take(&self.batch);
            }
            (first..self.position).for_each(|position| ring.release(position));
            match stop {
                None => {}
                Some(Stop::Empty | Stop::Young) => return true,
                Some(Stop::Pending) => {
                    let since = *self.pending_since_ns.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since) < WRITER_GRACE_NS {
                        return false;
                    }
                    if ring.retire(self.position) {
                        self.advance();
                    }
                }
                Some(Stop::Damaged) => self.skip_damaged(segment),
            }
        }
        false
    }

    /// Read the next records, as many as are there and are handed on at once. Tells what is behind them, if not another.
    fn read_batch(&mut self, segment: &Segment, now_ns: u64) -> Option<Stop> {
        self.batch.clear();
        let ring = segment.ring();
        for _ in 0..MOST_AT_ONCE {
            let record = match ring.peek(self.position) {
                Pop::Record(record) => record,
                Pop::Empty => return Some(Stop::Empty),
                Pop::Pending => return Some(Stop::Pending),
                Pop::Damaged => return Some(Stop::Damaged),
            };
            let decoded = Event::decode(&record);
            let written_ns = decoded.map_or(0, |(origin, _)| origin.monotonic_ns);
            if is_young(written_ns, now_ns) && self.held_back != Some(self.position) {
                // Once: a clock that is always ahead must not keep others' records.
                self.held_back = Some(self.position);
                return Some(Stop::Young);
            }
            match decoded {
                Some((origin, event)) => {
                    self.batch.push((StoredRecord { position: self.position, origin, event }, record));
                }
                None => self.damaged += 1,
            }
            self.advance();
        }
        None
    }

    /// Hand on all records of a segment to which nobody writes any more: a writer that was killed is not waited for.
    pub fn drain_rest(&mut self, segment: &Segment, mut take: impl FnMut(&[Read])) {
        // Held back once, given its time, retired: a slot that is still there after that was made by no writer of ours.
        const MOST_TRIES: u32 = 4;
        let (mut now_ns, mut tries) = (clock::monotonic_ns(), 0);
        while self.position != segment.header().head.0.load(Ordering::Relaxed) && !self.untrusted {
            let before = self.position;
            self.drain(segment, now_ns, &mut take);
            now_ns = now_ns.saturating_add(WRITER_GRACE_NS);
            tries = if self.position == before { tries + 1 } else { 0 };
            if tries >= MOST_TRIES {
                self.damaged += 1;
                self.untrusted = true;
            }
        }
    }

    fn advance(&mut self) {
        self.position = self.position.wrapping_add(1);
        self.pending_since_ns = None;
    }

    /// No writer of ours leaves a slot like that. One slot is given up; impossible counters end the layer.
    fn skip_damaged(&mut self, segment: &Segment) {
        self.damaged += 1;
        let ahead = segment.header().head.0.load(Ordering::Relaxed).wrapping_sub(self.position);
        if ahead > RING_CAPACITY as u64 {
            self.untrusted = true;
            return;
        }
        segment.ring().release(self.position);
        self.advance();
    }

    /// What was read is before this position.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Read nothing more.
    pub fn give_up(&mut self) {
        self.untrusted = true;
    }

    /// Records that were not what any process of ours writes.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// The ring's counters were overwritten, or its records are forged: nothing more is read.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        self.untrusted
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::record::Origin;

    use super::*;
    use crate::sys::segment::NewSession;

    fn segment(dir: &std::path::Path) -> Segment {
        let session = NewSession {
            flags: 0,
            session_id: 1,
            launcher_pid: 1,
            launcher_pid_ns: 1,
            monotonic_ns: 1,
            realtime_ns: 1,
        };
        Segment::create(&dir.join("segment"), &session).unwrap()
    }

    fn push(segment: &Segment, error: i32) {
        segment.push_event(&Origin::default(), &Event::SpawnFailed { error });
    }

    fn drain(reader: &mut RecordReader, segment: &Segment, now_ns: u64) -> Vec<i32> {
        let mut seen = Vec::new();
        reader.drain(segment, now_ns, |batch| {
            seen.extend(batch.iter().filter_map(|(record, _)| match record.event {
                Event::SpawnFailed { error } => Some(error),
                _ => None,
            }));
        });
        seen
    }

    #[test]
    fn a_slot_is_freed_only_after_its_record_was_taken() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let count = 2 * MOST_AT_ONCE + 1;
        (0..count).for_each(|error| push(&segment, error as i32));
        let (mut reader, mut sizes) = (RecordReader::default(), Vec::new());
        let is_all = reader.drain(&segment, 1, |batch| {
            let freed = segment.header().tail.0.load(Ordering::Relaxed);
            assert_eq!(batch.first().map(|(record, _)| record.position), Some(freed));
            sizes.push(batch.len());
        });
        assert_eq!((is_all, sizes), (true, vec![MOST_AT_ONCE, MOST_AT_ONCE, 1]));
        assert_eq!(segment.header().tail.0.load(Ordering::Relaxed), count as u64);
    }

    #[test]
    fn a_writer_that_never_finishes_is_passed_after_the_grace_period() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let mut reader = RecordReader::default();
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        push(&segment, 5);
        assert!(drain(&mut reader, &segment, 1000).is_empty());
        assert!(drain(&mut reader, &segment, 1000 + WRITER_GRACE_NS - 1).is_empty());
        assert_eq!(drain(&mut reader, &segment, 1000 + WRITER_GRACE_NS), [5]);
    }

    #[test]
    fn the_rest_is_read_at_once_whatever_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let rest = |reader: &mut RecordReader| {
            let mut count = 0;
            reader.drain_rest(&segment, |batch| count += batch.len());
            count
        };
        let mut reader = RecordReader::default();
        push(&segment, 1);
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        // From a clock that is ahead of ours.
        let monotonic_ns = clock::monotonic_ns() + MOST_AHEAD_NS;
        segment.push_event(&Origin { monotonic_ns, ..Origin::default() }, &Event::SpawnFailed { error: 2 });
        assert_eq!((rest(&mut reader), rest(&mut reader)), (2, 0));
        assert!(!reader.is_untrusted());
        // The last word of the next slot has a payload, and the tag of an empty one.
        let at = 5 * gpu_track_abi::layout::SLOT_SIZE - size_of::<u64>() + gpu_track_abi::layout::HEADER_SIZE;
        let file = std::fs::File::options().write(true).open(segment.named().path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &7u32.to_ne_bytes(), at as u64).unwrap();
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        push(&segment, 3);
        assert_eq!(rest(&mut reader), 0);
        assert!(reader.is_untrusted());
    }

    #[test]
    fn another_reader_goes_on_where_the_first_one_died() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        for error in 0..3 {
            push(&segment, error);
        }
        // The first one took down two records, and died before it freed the second one's slot.
        segment.ring().release(0);
        let mut reader = RecordReader::resume(&segment, 2);
        assert_eq!(drain(&mut reader, &segment, 1), [2]);
        // It took down three, and passed a dead writer's slot.
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        assert!(segment.ring().retire(3));
        push(&segment, 4);
        let mut reader = RecordReader::resume(&segment, 3);
        assert_eq!(drain(&mut reader, &segment, 1), [4]);
        segment.header().tail.0.store(u64::MAX / 2, Ordering::Relaxed);
        assert!(RecordReader::resume(&segment, 5).is_untrusted());
    }

    #[test]
    fn random_words_end_in_a_count_and_never_in_a_hang() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let mut reader = RecordReader::default();
        push(&segment, 1);
        assert_eq!(drain(&mut reader, &segment, 1), [1]);
        segment.header().head.0.store(u64::MAX / 2, Ordering::Relaxed);
        assert!(drain(&mut reader, &segment, 2).is_empty());
        assert!(reader.is_untrusted() && reader.damaged() > 0);
    }
}
