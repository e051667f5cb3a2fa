//! Records of the ring, records that found it full (overflow area), and connector events, merged in order of time and written to the
//! journal.

use std::sync::Arc;

use gpu_track_abi::record::RECORD_WORDS;

use super::connector_queue::ConnectorQueue;
use super::overflow::Overflow;
use crate::model::journal::Journal;
use crate::model::kernel_event::KernelEvent;
use crate::model::record_or_event::{Entry, Finding, ReadUpTo};
use crate::sys::segment::Segment;

/// Merges records of the ring, records of the overflow area, and connector events in order of time.
pub(super) struct Merge {
    segment: Arc<Segment>,
    pub(super) overflow: Overflow,
    pub(super) queue: ConnectorQueue,
    journal: JournalWriter,
    /// Merged records and events (findings) that were not sent yet.
    pub(super) findings: Vec<Finding>,
}

impl Merge {
    /// Makes a merge that goes on after what an earlier collector has merged (`begin`). `queue`: the connector's events that it had
    /// read and not merged.
    pub(super) fn resume(
        segment: Arc<Segment>,
        journal: Arc<dyn Journal>,
        begin: ReadUpTo,
        queue: ConnectorQueue,
    ) -> Self {
        // Events are journaled when they are read. So the earlier collector has journaled those that it merged, and those in the
        // queue.
        let events = begin.events + queue.len() as u64;
        let journal = JournalWriter { journal, count: begin.count, entries: Vec::new(), events };
        Self { segment, overflow: Overflow::resume(begin.overflow), queue, journal, findings: Vec::new() }
    }

    /// Queues the connector's new events, and journals them. Returns the number of events read, those of other processes included.
    pub(super) fn read_connector(&mut self) -> usize {
        let journal = &mut self.journal;
        self.queue.read(|events| journal.write_events(events))
    }

    /// Adds a finding to those that are sent and journaled next. `words` are those of a record; 0 for a connector event.
    pub(super) fn push(&mut self, finding: Finding, words: &[u32; RECORD_WORDS]) {
        self.journal.entries.push(finding.entry(words));
        self.findings.push(finding);
    }

    /// Pushes the records of the overflow area that come before this position in the ring, each after the connector's events up
    /// to its time.
    pub(super) fn push_overflow_before(&mut self, position: u64) {
        while let Some((record, words)) = self.overflow.next_before(&self.segment, position) {
            self.push_events_by(record.origin.monotonic_ns);
            self.queue.note_record(&record);
            self.push(Finding::Record(record), &words);
        }
    }

    /// Pushes the connector's events up to `at_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn push_events_by(&mut self, at_ns: u64) {
        while let Some(event) = self.queue.next_by(at_ns) {
            self.push(Finding::Kernel(event), &[0; RECORD_WORDS]);
        }
    }

    /// Writes pushed findings to the journal. Only then may the slots of their records be freed. This frees those of the
    /// overflow area; the reader of the ring frees its own.
    pub(super) fn write_journal(&mut self) {
        self.journal.write();
        self.overflow.release(&self.segment);
    }
}

/// Writes the journal and numbers its entries.
struct JournalWriter {
    journal: Arc<dyn Journal>,
    /// Number of entries written.
    count: u64,
    /// Entries that are not written yet.
    entries: Vec<Entry>,
    /// Number of connector events written.
    events: u64,
}

impl JournalWriter {
    /// Writes events as soon as they are read: they cannot be read again, and their turn in the merge comes later.
    fn write_events(&mut self, events: &[KernelEvent]) {
        if events.is_empty() {
            return;
        }
        let slots: Vec<_> = events.iter().map(KernelEvent::encode).collect();
        self.journal.write_events(self.events, &slots);
        self.events += slots.len() as u64;
    }

    /// Writes the entries that were added since the last call.
    fn write(&mut self) {
        if !self.entries.is_empty() {
            self.journal.write_findings(self.count, &self.entries);
        }
        self.count += self.entries.len() as u64;
        self.entries.clear();
    }
}
