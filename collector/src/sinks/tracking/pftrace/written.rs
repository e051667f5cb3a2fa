//! What of the run is in a trace: so that nothing gets there twice, and a row can be raised.

use std::collections::VecDeque;

use super::annotations::{Name, argument};
use super::messages::{TracePacket, event};
use super::tracks;
use crate::model::ended_process::EndedProcess;
use crate::model::groups::Groups;
use crate::sinks::tracking::recent::Recent;

/// Most rows that can be raised: more than the core remembers samples.
const MOST_ROWS: usize = 4096;

/// The key of what is no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Process {
        pid: u64,
        start_ns: u64,
    },
    /// More RAM at a time of which no row is remembered.
    Revised {
        at_ns: u64,
        bytes: [u64; 3],
    },
}

impl Key {
    /// Gives the key of a process.
    pub(super) fn of(process: &EndedProcess) -> Self {
        Self::Process { pid: process.usage.pid.into(), start_ns: process.start_ns }
    }
}

/// A row. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenRow {
    /// Where its values stand.
    pub begin_ns: u64,
    /// Its end, which is its key.
    pub key_ns: u64,
    /// Its largest footprints, bytes.
    pub footprint_bytes: Groups<u64>,
}

/// What is in the file.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub known: Recent<Key>,
    rows: VecDeque<WrittenRow>,
    /// The number of the last sequence; 0: there is none.
    pub last_sequence: u32,
    /// It has the end of the run.
    pub has_end: bool,
    /// The footprints as the counters had them last: a packet has one of the three.
    footprint_bytes: Groups<u64>,
    /// The process whose begin the last packet was. `None`: it was another packet.
    begun: Option<Key>,
}

impl Written {
    /// Notes what a packet of the file tells; they come in the order of the file. Gives whether it is the last of those
    /// that were written at once. The last one has the key of a row or of a revised sample, or is the end of a process or
    /// of the run.
    pub(super) fn take(&mut self, packet: &TracePacket) -> bool {
        self.last_sequence = self.last_sequence.max(packet.trusted_packet_sequence_id.unwrap_or(0));
        let begun = self.begun.take();
        // Packets without an event begin a sequence or declare a track: others follow them.
        let (Some(at_ns), Some(event)) = (packet.timestamp, &packet.track_event) else { return false };
        if let Some(bytes) = event.counter_value
            && let Some(part) = tracks::footprint_of(event.track_uuid.unwrap_or(0), &mut self.footprint_bytes)
        {
            *part = u64::try_from(bytes).unwrap_or(0);
        }
        let bytes = self.footprint_bytes;
        // The last value of a row.
        if let Some(key_ns) = argument(event, Name::RowEnd) {
            self.add_row(WrittenRow { begin_ns: at_ns, key_ns, footprint_bytes: bytes });
            return true;
        }
        // The last value of what became known later, of a row or of a time without one.
        if let Some(key_ns) = argument(event, Name::Revised) {
            match self.row_of(key_ns) {
                Some(row) => row.footprint_bytes = bytes,
                None => {
                    self.known.add(Key::Revised { at_ns: key_ns, bytes: bytes.values() });
                }
            }
            return true;
        }
        match event.kind {
            Some(event::SLICE_BEGIN) => {
                let pid = argument(event, Name::Pid);
                self.begun = pid.map(|pid| Key::Process { pid, start_ns: at_ns });
                false
            }
            // Without its end, a process is cut off, and comes again.
            Some(event::SLICE_END) => {
                if let Some(process) = begun {
                    self.known.add(process);
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

    /// Remembers a row that follows the others. Forgets the first one if there are too many.
    pub(super) fn add_row(&mut self, row: WrittenRow) {
        self.rows.push_back(row);
        if self.rows.len() > MOST_ROWS {
            self.rows.pop_front();
        }
    }

    /// Gives the key of the last row, CLOCK_MONOTONIC nanoseconds; 0: there is none.
    pub(super) fn last_row_ns(&self) -> u64 {
        self.rows.back().map_or(0, |row| row.key_ns)
    }

    /// Gives the row within whose time `at_ns` is, CLOCK_MONOTONIC nanoseconds. `None`: no such row is remembered.
    pub(super) fn row_of(&mut self, at_ns: u64) -> Option<&mut WrittenRow> {
        let place = self.rows.partition_point(|row| row.key_ns < at_ns);
        self.rows.get_mut(place).filter(|row| row.begin_ns < at_ns)
    }
}
