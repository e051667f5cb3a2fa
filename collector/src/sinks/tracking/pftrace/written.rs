//! What a trace already has. With that, no item is written twice, and the RAM of a written row can be raised.

use std::collections::VecDeque;

use super::annotations::{Name, argument};
use super::messages::{TracePacket, event};
use super::tracks;
use crate::model::groups::Groups;
use crate::sinks::tracking::recent::{Key, Recent};

/// Maximum number of rows that are remembered. The core remembers fewer samples, and can revise only those.
const MOST_ROWS: usize = 4096;

/// A row. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenRow {
    /// Its start, which is the time of its values in the trace.
    pub begin_ns: u64,
    /// Its end, which is its key.
    pub key_ns: u64,
    /// Its largest footprints, bytes.
    pub footprint_bytes: Groups<u64>,
}

/// What is in the file.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// The keys of its processes and tasks, and of its revised RAM without a row.
    pub known: Recent<Key>,
    rows: VecDeque<WrittenRow>,
    /// The largest number of a sequence. 0: there is none.
    pub last_sequence: u32,
    /// Whether it has the end of the run.
    pub has_end: bool,
    /// The last values of the three RAM counters, bytes, each from a packet of its own.
    footprint_bytes: Groups<u64>,
    /// The process or task that the last packet begins. `None`: the last packet is another one.
    begun: Option<Key>,
}

impl Written {
    /// Notes what a packet of the file tells. The packets must come in the order of the file.
    ///
    /// Returns whether the packet is the last one of an item. Such a packet has the key of a row or of revised RAM, or is the end of
    /// a process, of a task or of the run.
    pub(super) fn take(&mut self, packet: &TracePacket) -> bool {
        self.last_sequence = self.last_sequence.max(packet.trusted_packet_sequence_id.unwrap_or(0));
        let begun = self.begun.take();
        // A packet without an event begins a sequence or declares a track, so it is never the last of its item.
        let (Some(at_ns), Some(event)) = (packet.timestamp, &packet.track_event) else { return false };
        if let Some(bytes) = event.counter_value
            && let Some(part) = tracks::footprint_of(event.track_uuid.unwrap_or(0), &mut self.footprint_bytes)
        {
            *part = u64::try_from(bytes).unwrap_or(0);
        }
        let bytes = self.footprint_bytes;
        if let Some(key_ns) = argument(event, Name::RowEnd) {
            self.add_row(WrittenRow { begin_ns: at_ns, key_ns, footprint_bytes: bytes });
            return true;
        }
        if let Some(key_ns) = argument(event, Name::Revised) {
            match self.row_of(key_ns) {
                Some(row) => row.footprint_bytes = bytes,
                None => {
                    self.known.insert(Key::Revised { at_ns: key_ns, bytes: bytes.values() });
                }
            }
            return true;
        }
        match event.kind {
            Some(event::SLICE_BEGIN) => {
                let pid = argument(event, Name::Pid);
                let task = argument(event, Name::Task).map(|id| Key::Task { id, mark: at_ns });
                self.begun = pid.map(|pid| Key::Process { pid, start_ns: at_ns }).or(task);
                false
            }
            // Only now is the process or task noted: without its end, it is cut off, and has to be written again.
            Some(event::SLICE_END) => {
                if let Some(slice) = begun {
                    self.known.insert(slice);
                }
                true
            }
            Some(event::INSTANT) => {
                self.has_end = true;
                true
            }
            _ => false,
        }
    }

    /// Remembers a row that follows the others. Forgets the oldest row if there are more than [`MOST_ROWS`].
    pub(super) fn add_row(&mut self, row: WrittenRow) {
        self.rows.push_back(row);
        if self.rows.len() > MOST_ROWS {
            self.rows.pop_front();
        }
    }

    /// The key of the last row, CLOCK_MONOTONIC nanoseconds; 0: there is none.
    pub(super) fn last_row_ns(&self) -> u64 {
        self.rows.back().map_or(0, |row| row.key_ns)
    }

    /// The row within whose time `at_ns` is, CLOCK_MONOTONIC nanoseconds. `None`: no such row is remembered.
    pub(super) fn row_of(&mut self, at_ns: u64) -> Option<&mut WrittenRow> {
        let first_not_before = self.rows.partition_point(|row| row.key_ns < at_ns);
        self.rows.get_mut(first_not_before).filter(|row| row.begin_ns < at_ns)
    }
}
