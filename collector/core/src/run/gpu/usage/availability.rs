//! Which figures of a device are known, and why the others are not.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::gpu::{Figure, Missing, Reading};

/// The times during which a figure could not be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Why the latest failed reading failed.
    pub reason: Missing,
    /// The length of the times that are over, each from the first failed reading to the next one that succeeded, nanoseconds.
    ns: u64,
    /// Since when the figure can't be read now, CLOCK_MONOTONIC nanoseconds. `None`: it can.
    since_ns: Option<u64>,
    /// Largest amount of memory in use on the device during these times by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
}

impl Gap {
    /// For how long in all the figure could not be read, nanoseconds. If it still can't be read, that counts up to `until_ns`.
    pub(super) fn ns(&self, until_ns: u64) -> u64 {
        self.ns + self.since_ns.map_or(0, |since_ns| until_ns.saturating_sub(since_ns))
    }
}

/// What is known of the figures of a device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Availability {
    /// Figures that were known at any time.
    pub(super) known: BTreeSet<Figure>,
    /// Why a figure is not known by its last reading: the reading failed, or its value can't be used.
    pub missing: BTreeMap<Figure, Missing>,
    /// The times during which figures could not be read.
    pub gaps: BTreeMap<Figure, Gap>,
}

impl Availability {
    /// Takes in a reading of a figure at `at_ns`, CLOCK_MONOTONIC nanoseconds. A value closes the figure's gap, and a failure opens
    /// one. Returns the value. `None`: the figure was not read, or the reading failed.
    pub(super) fn note<'a, T>(
        &mut self,
        at_ns: u64,
        figure: Figure,
        reading: Option<&'a Reading<T>>,
    ) -> Option<&'a T> {
        match reading? {
            Ok(value) => {
                self.known.insert(figure);
                self.missing.remove(&figure);
                if let Some(gap) = self.gaps.get_mut(&figure) {
                    (gap.ns, gap.since_ns) = (gap.ns(at_ns), None);
                }
                Some(value)
            }
            Err(missing) => {
                self.missing.insert(figure, missing.clone());
                let new = || Gap { reason: missing.clone(), ns: 0, since_ns: None, used_bytes: None };
                let gap = self.gaps.entry(figure).or_insert_with(new);
                gap.reason.clone_from(missing);
                gap.since_ns.get_or_insert(at_ns);
                None
            }
        }
    }

    /// Takes in how much memory all processes of the machine use on the device, bytes. `None`: not known. Each gap that is open
    /// keeps the maximum, an upper bound of what the run can have used meanwhile. A warning tells it.
    pub(super) fn note_used(&mut self, bytes: Option<u64>) {
        for gap in self.gaps.values_mut().filter(|gap| gap.since_ns.is_some()) {
            gap.used_bytes = gap.used_bytes.max(bytes);
        }
    }

    /// Makes a figure unknown, also for earlier readings: what the driver reports of it proved unusable.
    pub(super) fn withdraw(&mut self, figure: Figure, reason: Missing) {
        self.known.remove(&figure);
        self.missing.insert(figure, reason);
    }
}
