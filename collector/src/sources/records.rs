//! Reads the event records of the shim from the ring, each once, in order.

use std::sync::atomic::Ordering;

use gpu_track_abi::layout::RING_CAPACITY;
use gpu_track_abi::record::{Event, RECORD_WORDS};
use gpu_track_abi::ring::Pop;

use crate::model::record_or_event::StoredRecord;
use crate::sys::clock;
use crate::sys::segment::Segment;

/// How long a writer may take to complete a claimed slot before the slot is retired.
///
/// A running writer needs 0.4 us. A killed writer never completes it. A writer that was stopped or lost the CPU claims a new slot
/// when it continues. Records that depend on that record are written after it. A longer wait only fills the ring.
const WRITER_GRACE_NS: u64 = 2_000_000;

/// A record's time that is further ahead than this, nanoseconds, and has not passed yet comes from another time namespace.
const MAX_AHEAD_NS: u64 = 100_000_000;

/// Maximum number of records that are passed on together. Their slots are freed together afterwards.
const BATCH_RECORDS: usize = 32;
/// Maximum number of rings full of records that one call reads: a writer at full speed must not keep the thread here.
const MAX_RINGS: usize = 4;

/// Whether a record was written after `now_ns`, so that it has to wait: connector events from before it may be unread.
///
/// Times are CLOCK_MONOTONIC, nanoseconds. A time far ahead of `now_ns` counts only if the clock has reached it meanwhile. Otherwise
/// it comes from another time namespace, and the record need not wait.
pub(super) fn is_young(written_ns: u64, now_ns: u64) -> bool {
    let ahead_ns = written_ns.saturating_sub(now_ns);
    ahead_ns > 0 && (ahead_ns <= MAX_AHEAD_NS || written_ns <= clock::monotonic_ns())
}

/// A record and the words that it was decoded from.
pub(crate) type Read = (StoredRecord, [u32; RECORD_WORDS]);

/// Reads the ring.
#[derive(Debug, Default)]
pub(crate) struct RecordReader {
    /// Position of the next record.
    position: u64,
    /// Records of the last batch that was read.
    batch: Vec<Read>,
    /// Since when the slot at `position` is known to be claimed and not complete, CLOCK_MONOTONIC nanoseconds.
    pending_since_ns: Option<u64>,
    /// Position of the last record that was too young, and so was left for the next call.
    postponed: Option<u64>,
    /// Number of slots and records that are not as the shim writes them.
    damaged: u64,
    /// Nothing is read any more, since the ring was overwritten or its records are forged.
    untrusted: bool,
}

/// Why reading stopped.
enum Stop {
    /// There are no more records.
    Empty,
    /// The next record is younger than the requested time.
    Young,
    /// The next slot is claimed but not complete.
    Pending,
    /// The next slot has a state that the shim never leaves.
    Damaged,
}

impl RecordReader {
    /// A reader that continues after the records that an earlier collector has read. `position` is that of the next
    /// record, as the run state has it. Ring and state can differ by what that collector did last before it was killed.
    pub(crate) fn resume(segment: &Segment, position: u64) -> Self {
        let freed = segment.header().tail.0.load(Ordering::Relaxed);
        let capacity = RING_CAPACITY as u64;
        if position.wrapping_sub(freed) <= capacity {
            // The collector was killed before it freed the last slots.
            (freed..position).for_each(|position| segment.ring().release(position));
            Self { position, ..Self::default() }
        } else if freed.wrapping_sub(position) <= capacity {
            // The collector was killed after it freed slots without a record, which are not in the state.
            Self { position: freed, ..Self::default() }
        } else {
            // No collector leaves such a tail: a process of the tree has overwritten it.
            Self { position, untrusted: true, damaged: 1, ..Self::default() }
        }
    }

    /// Passes the records in the ring to `take`, at most [`MAX_RINGS`] rings full, and frees their slots.
    ///
    /// Returns whether all records written before `now_ns` (CLOCK_MONOTONIC nanoseconds) were read. They were not if an
    /// incomplete slot hides the records after it, or if there are more. Younger records stay for the next call, so that
    /// events of other layers can be merged before them. An untrusted ring has no records to read.
    pub(crate) fn drain(&mut self, segment: &Segment, now_ns: u64, mut take: impl FnMut(&[Read])) -> bool {
        let ring = segment.ring();
        for _ in 0..MAX_RINGS * RING_CAPACITY / BATCH_RECORDS {
            if self.untrusted {
                return true;
            }
            let first = self.position;
            let stop = self.read_batch(segment, now_ns);
            if !self.batch.is_empty() {
                take(&self.batch);
            }
            // This comes last: once its slot is free, a record is nowhere but where `take` has put it.
            (first..self.position).for_each(|position| ring.release(position));
            match stop {
                None => {}
                Some(Stop::Empty | Stop::Young) => return true,
                Some(Stop::Pending) => {
                    // Its writer gets some time to complete it.
                    let since = *self.pending_since_ns.get_or_insert(now_ns);
                    if now_ns.saturating_sub(since) < WRITER_GRACE_NS {
                        return false;
                    }
                    // If the slot can't be retired, it has changed just now, and the next turn reads it.
                    if ring.retire(self.position) {
                        self.advance();
                    }
                }
                Some(Stop::Damaged) => self.skip_damaged(segment),
            }
        }
        // The ring may have more.
        false
    }

    /// Reads the records of the next [`BATCH_RECORDS`] slots into `batch`. A record that can't be decoded is counted and left out. Returns
    /// why reading stopped before that many slots. `None`: it did not.
    fn read_batch(&mut self, segment: &Segment, now_ns: u64) -> Option<Stop> {
        self.batch.clear();
        let ring = segment.ring();
        for _ in 0..BATCH_RECORDS {
            let record = match ring.peek(self.position) {
                Pop::Record(record) => record,
                Pop::Empty => return Some(Stop::Empty),
                Pop::Pending => return Some(Stop::Pending),
                Pop::Damaged => return Some(Stop::Damaged),
            };
            let decoded = Event::decode(&record);
            let written_ns = decoded.map_or(0, |(origin, _)| origin.monotonic_ns);
            if is_young(written_ns, now_ns) && self.postponed != Some(self.position) {
                // A record is postponed once: a clock that is always ahead must not block the records of others.
                self.postponed = Some(self.position);
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

    /// Passes on all records of a segment that has no writers any more. Does not wait for incomplete slots: each try pretends that
    /// the grace time of a slot has passed since the previous try.
    pub(crate) fn drain_rest(&mut self, segment: &Segment, mut take: impl FnMut(&[Read])) {
        let mut now_ns = clock::monotonic_ns();
        // The loop ends: a record is postponed once, an incomplete slot is within its grace time once, and a damaged one is
        // skipped.
        while self.position != segment.header().head.0.load(Ordering::Relaxed) && !self.untrusted {
            self.drain(segment, now_ns, &mut take);
            now_ns = now_ns.saturating_add(WRITER_GRACE_NS);
        }
    }

    /// Goes on to the next slot, whose grace time has not begun.
    fn advance(&mut self) {
        self.position = self.position.wrapping_add(1);
        self.pending_since_ns = None;
    }

    /// Skips a damaged slot, and counts it. If the ring's counters are impossible too, reading ends.
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

    /// Position after the last record that was read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Ends reading: the next calls read no records.
    pub(crate) fn give_up(&mut self) {
        self.untrusted = true;
    }

    /// Number of slots and records that are not as the shim writes them.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Whether reading has ended, because the ring was overwritten or its records are forged.
    pub(crate) fn is_untrusted(&self) -> bool {
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
            ..NewSession::default()
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
    fn slots_are_freed_after_their_records_were_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let count = 2 * BATCH_RECORDS + 1;
        (0..count).for_each(|error| push(&segment, error as i32));
        let (mut reader, mut sizes) = (RecordReader::default(), Vec::new());
        let is_all = reader.drain(&segment, 1, |batch| {
            let freed = segment.header().tail.0.load(Ordering::Relaxed);
            assert_eq!(batch.first().map(|(record, _)| record.position), Some(freed));
            sizes.push(batch.len());
        });
        assert_eq!((is_all, sizes), (true, vec![BATCH_RECORDS, BATCH_RECORDS, 1]));
        assert_eq!(segment.header().tail.0.load(Ordering::Relaxed), count as u64);
    }

    // Requirement: FAULT-92
    #[test]
    fn incomplete_slot_is_retired_after_the_grace_time() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let mut reader = RecordReader::default();
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        push(&segment, 5);
        assert!(drain(&mut reader, &segment, 1000).is_empty());
        assert!(drain(&mut reader, &segment, 1000 + WRITER_GRACE_NS - 1).is_empty());
        assert_eq!(drain(&mut reader, &segment, 1000 + WRITER_GRACE_NS), [5]);
    }

    /// Stores a payload beside the empty tag in the last word of a slot of the first lap, as no correct writer does.
    fn damage(segment: &Segment, slot: usize) {
        let end = gpu_track_abi::layout::HEADER_SIZE + (slot + 1) * gpu_track_abi::layout::SLOT_SIZE;
        let file = std::fs::File::options().write(true).open(segment.named().path()).unwrap();
        let at = (end - size_of::<u64>()) as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &7u64.to_ne_bytes(), at).unwrap();
    }

    // Requirement: FAULT-99
    #[test]
    fn slot_with_a_payload_and_no_record_is_skipped_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        let mut reader = RecordReader::default();
        push(&segment, 1);
        damage(&segment, 1);
        // A writer that finds such a slot takes the next one.
        push(&segment, 2);
        assert_eq!(drain(&mut reader, &segment, 1), [1, 2]);
        assert_eq!((reader.damaged(), reader.is_untrusted()), (1, false));
    }

    #[test]
    fn drain_rest_reads_past_incomplete_young_and_damaged_slots() {
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
        // A record of a clock that is ahead of ours.
        let monotonic_ns = clock::monotonic_ns() + MAX_AHEAD_NS;
        segment.push_event(&Origin { monotonic_ns, ..Origin::default() }, &Event::SpawnFailed { error: 2 });
        assert_eq!((rest(&mut reader), rest(&mut reader)), (2, 0));
        assert!(!reader.is_untrusted());
        damage(&segment, 4);
        push(&segment, 3);
        assert_eq!(rest(&mut reader), 1);
        assert_eq!((reader.damaged(), reader.is_untrusted()), (1, false));
    }

    #[test]
    fn reader_resumes_where_a_killed_one_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let segment = segment(dir.path());
        for error in 0..3 {
            push(&segment, error);
        }
        // The first reader journaled two records, and died before it freed the second slot.
        segment.ring().release(0);
        let mut reader = RecordReader::resume(&segment, 2);
        assert_eq!(drain(&mut reader, &segment, 1), [2]);
        // It journaled three, and skipped the slot of a dead writer.
        segment.header().head.0.fetch_add(1, Ordering::Relaxed);
        assert!(segment.ring().retire(3));
        push(&segment, 4);
        let mut reader = RecordReader::resume(&segment, 3);
        assert_eq!(drain(&mut reader, &segment, 1), [4]);
        segment.header().tail.0.store(u64::MAX / 2, Ordering::Relaxed);
        assert!(RecordReader::resume(&segment, 5).is_untrusted());
    }

    #[test]
    fn impossible_counters_end_reading() {
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
