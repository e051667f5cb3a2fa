//! The events of a run. All are counted. Those that are told to the user are listed, as far as there is room: all but steps of memory
//! that come too often.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::alert::{EventKind, RunEvent};

/// Maximum number of events in the list. When there is one more, every second event of the older half is dropped.
pub(super) const MAX_EVENTS: usize = 10_000;

/// The counts of a run's events, and the list of those that are told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct EventLog {
    /// Number of all events.
    pub(crate) count: u64,
    /// How many of them were told.
    pub(crate) told: u64,
    pub(crate) by_kind: BTreeMap<EventKind, u64>,
    /// Events that are told, in the order in which they were noted.
    pub(crate) list: Vec<RunEvent>,
}

impl EventLog {
    /// Counts an event, without listing it.
    pub(super) fn count(&mut self, kind: EventKind) {
        self.count += 1;
        *self.by_kind.entry(kind).or_default() += 1;
    }

    /// Counts and lists an event. If the list is too long then, every second event of its older half is dropped.
    pub(super) fn add(&mut self, event: RunEvent) {
        self.count(event.kind);
        self.told += 1;
        self.list.push(event);
        if self.list.len() > MAX_EVENTS {
            let mut index = 0;
            self.list.retain(|_| {
                index += 1;
                index > MAX_EVENTS / 2 || index % 2 == 0
            });
        }
    }
}

/// A moment of CLOCK_MONOTONIC as seconds after the command's start.
pub(super) fn seconds(start_ns: u64, at_ns: u64) -> f64 {
    at_ns.saturating_sub(start_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ALERT-5
    #[test]
    fn list_of_very_many_events_has_the_younger_ones_whole_and_older_ones_in_part() {
        let mut log = EventLog::default();
        for n in 0..50_000_u32 {
            log.add(RunEvent::new(f64::from(n), EventKind::Warning));
        }
        log.count(EventKind::Jump);
        assert_eq!((log.count, log.told, log.by_kind[&EventKind::Warning]), (50_001, 50_000, 50_000));
        assert!(log.list.len() <= MAX_EVENTS && log.list.len() > MAX_EVENTS / 2, "{}", log.list.len());
        let young: Vec<f64> = log.list.iter().rev().take(MAX_EVENTS / 4).map(|event| event.at_s).collect();
        assert!(young.windows(2).all(|two| two[0] - two[1] == 1.0), "the younger ones are all there");
        assert!(log.list[0].at_s < 20_000.0, "some of the first are there: {}", log.list[0].at_s);
        assert!(log.list.is_sorted_by(|a, b| a.at_s < b.at_s));
    }
}
