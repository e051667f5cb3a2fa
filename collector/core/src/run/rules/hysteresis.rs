//! When an alert goes on, and when it is over.
//!
//! An alert goes on when its figure was beyond the threshold for a second. It is over when the figure is back by a tenth, for a second
//! at first. A figure that trembles about its threshold must not alert the user again and again. So each time that an alert goes on
//! again, its figure must stay back for longer until the alert is over ([`STAYS_BACK_NS`]). Whatever a figure does, there are at most
//! 2 events an hour over a day.

use serde::{Deserialize, Serialize};

use super::figures::Level;

/// An alert goes on when its figure was beyond the threshold for this time, nanoseconds.
const BEYOND_NS: u64 = 1_000_000_000;
/// A figure is back when it is on the good side of the threshold, by at least this part of the threshold.
const BACK_BY: f64 = 0.1;
/// For how long the figure must be back until its alert is over, nanoseconds. The values are for the first time that it is on, the
/// second, and so on.
const STAYS_BACK_NS: [u64; 4] = [1_000_000_000, 60_000_000_000, 900_000_000_000, 7_200_000_000_000];
/// An alert that was off for this time, nanoseconds, begins with the first of [`STAYS_BACK_NS`] again.
const FORGOTTEN_NS: u64 = 4 * 3_600_000_000_000;
/// An alert goes on at most once in this time, nanoseconds.
const AGAIN_NS: u64 = 30_000_000_000;

/// The state of an alert. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hysteresis {
    /// Since when its figure is beyond the threshold. `None`: it is not.
    beyond_ns: Option<u64>,
    /// Since when its figure is back. `None`: it is not.
    back_ns: Option<u64>,
    /// When it went on. `None`: it is off.
    pub on_ns: Option<u64>,
    last_on_ns: Option<u64>,
    last_off_ns: Option<u64>,
    /// How often it went on again: the index into [`STAYS_BACK_NS`], at most the last one.
    pub returns: usize,
    /// How often it went on.
    pub times: u64,
    pub first_on_ns: Option<u64>,
    /// How long it was on in all, without the time since it last went on if it is on, nanoseconds.
    was_on_ns: u64,
}

/// Where the figure of an alert is, seen from the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// On the bad side, so that the alert can go on.
    Beyond,
    /// On the good side, and away from the threshold by more than [`BACK_BY`] of it, so that the alert can end.
    Back,
    /// At the threshold, or on the good side but nearer: the alert stays on or off.
    Between,
}

impl Side {
    /// The side of a figure (`amount`) by its threshold (`allowed`). `is_below`: the bad side, where its alert goes on, is below the
    /// threshold, not above.
    pub(super) fn new(Level { amount, allowed }: Level, is_below: bool) -> Self {
        let (is_beyond, is_back) = if is_below {
            (amount < allowed, amount > allowed * (1.0 + BACK_BY))
        } else {
            (amount > allowed, amount < allowed * (1.0 - BACK_BY))
        };
        match (is_beyond, is_back) {
            (true, _) => Self::Beyond,
            (_, true) => Self::Back,
            _ => Self::Between,
        }
    }
}

/// An alert goes on, or is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It went on. `since_ns`: since when its figure is beyond the threshold.
    On { since_ns: u64 },
    /// It is over. `since_ns`: when it had gone on.
    Off { since_ns: u64 },
}

impl Hysteresis {
    /// Takes in where the figure is at `now_ns`, CLOCK_MONOTONIC nanoseconds. Returns how the alert changes. `None`: it does
    /// not.
    pub(super) fn take(&mut self, side: Side, now_ns: u64) -> Option<Change> {
        self.beyond_ns = if side == Side::Beyond { self.beyond_ns.or(Some(now_ns)) } else { None };
        self.back_ns = if side == Side::Back { self.back_ns.or(Some(now_ns)) } else { None };
        match self.on_ns {
            None => self.go_on_if_due(now_ns),
            Some(on_ns) => self.end_if_due(on_ns, now_ns),
        }
    }

    /// Goes on if the figure was beyond the threshold for [`BEYOND_NS`], and the alert did not go on within [`AGAIN_NS`] before. Chooses
    /// how long its figure must then stay back. `None`: it stays off.
    fn go_on_if_due(&mut self, now_ns: u64) -> Option<Change> {
        let since_ns = self.beyond_ns?;
        let went_on_lately = self.last_on_ns.is_some_and(|last| now_ns.saturating_sub(last) < AGAIN_NS);
        if now_ns.saturating_sub(since_ns) < BEYOND_NS || went_on_lately {
            return None;
        }
        let is_return = self.last_off_ns.is_some_and(|off| now_ns.saturating_sub(off) < FORGOTTEN_NS);
        self.returns = if is_return { (self.returns + 1).min(STAYS_BACK_NS.len() - 1) } else { 0 };
        self.times += 1;
        self.first_on_ns.get_or_insert(now_ns);
        (self.on_ns, self.last_on_ns) = (Some(now_ns), Some(now_ns));
        Some(Change::On { since_ns })
    }

    /// Ends the alert if the figure was back for the time that [`STAYS_BACK_NS`] asks for. `on_ns`: when the alert went on. `None`: it
    /// stays on.
    fn end_if_due(&mut self, on_ns: u64, now_ns: u64) -> Option<Change> {
        let stays_back_ns = STAYS_BACK_NS.get(self.returns).copied().unwrap_or(u64::MAX);
        if now_ns.saturating_sub(self.back_ns?) < stays_back_ns {
            return None;
        }
        self.was_on_ns = self.was_on_ns.saturating_add(now_ns.saturating_sub(on_ns));
        (self.on_ns, self.last_off_ns) = (None, Some(now_ns));
        Some(Change::Off { since_ns: on_ns })
    }

    /// Notes that the figure is unknown. The times for which it was beyond the threshold or back begin anew. The alert stays on or off.
    pub(super) fn take_unknown(&mut self) {
        (self.beyond_ns, self.back_ns) = (None, None);
    }

    /// How long the alert was on until `now_ns`, nanoseconds.
    pub(crate) fn on_ns_until(&self, now_ns: u64) -> u64 {
        let open_ns = self.on_ns.map_or(0, |on| now_ns.saturating_sub(on));
        self.was_on_ns.saturating_add(open_ns)
    }
}
