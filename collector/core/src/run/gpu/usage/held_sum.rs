//! The largest sum of memory over devices at one time, from readings of one device after another.
//!
//! At the time of a reading, the memory of one device alone is known. Each other device counts with the smaller of its readings
//! before and after that time. So memory that moves from one device to another is not counted twice, though readings of both
//! showed it. A sum is a lower bound as long as the memory of no device falls and rises again between two of its readings.
//!
//! A sum is open until each other device was read again. Meanwhile it counts with what is known, so a device that stops answering
//! holds no sum up.

use crate::model::sorting::Sorting;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::amount::Amount;

/// Memory of the devices at their last readings, and the sums to which later readings still add.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HeldSum<T> {
    /// The last reading of each device, by its number.
    last: BTreeMap<u32, LastHeld<T>>,
    /// The open sums, the newest last.
    open: Vec<OpenSum<T>>,
}

/// The last reading of a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct LastHeld<T> {
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
    held: T,
}

/// The sum at the time of a reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OpenSum<T> {
    /// CLOCK_MONOTONIC, nanoseconds.
    at_ns: u64,
    /// The memory on the devices that are known at that time.
    sum: T,
    /// The other devices, which were read before that time and not since. Their next readings add to the sum.
    awaits: BTreeSet<u32>,
}

impl<T: Amount> HeldSum<T> {
    /// Takes in a reading of a device, by its number: what is held on it at `at_ns`, CLOCK_MONOTONIC nanoseconds. Adds that to
    /// the open sums that await the device, and opens the sum at this time. Returns the largest of these
    /// sums.
    pub(super) fn add_reading(&mut self, device: u32, at_ns: u64, held: T) -> T {
        let newest_ns = self.open.last().map_or(0, |open| open.at_ns);
        if at_ns > newest_ns {
            self.drop_needless_sums();
        }
        let before = self.last.insert(device, LastHeld { at_ns, held });
        let mut largest = held;
        let mut is_joined = false;
        for open in &mut self.open {
            let is_awaited = open.awaits.remove(&device);
            if open.at_ns == at_ns && before.is_none_or(|before| before.at_ns < at_ns) {
                // Some drivers read all devices at once. So this is the device's memory at the time of the sum.
                is_joined = true;
                open.sum = open.sum.plus(held);
            } else if let Some(before) = before
                && is_awaited
                && open.at_ns < at_ns
            {
                // The device was read before and after the time of this sum: it held the smaller of both then.
                open.sum = open.sum.plus(before.held.smaller(held));
            }
            largest = largest.larger(open.sum);
        }
        // Without memory on this device, the sum at this time is no larger than that at the reading before. A late reading opens
        // no sum either: the newest stays last.
        let is_new_sum_needed = held != T::default() && !is_joined && at_ns >= newest_ns;
        if is_new_sum_needed {
            let was_read_before = |(_, last): &(&u32, &LastHeld<T>)| last.at_ns < at_ns;
            let awaits = self.last.iter().filter(was_read_before).map(|(device, _)| *device).collect();
            self.open.push(OpenSum { at_ns, sum: held, awaits });
        }
        largest
    }

    /// The sum of the last readings, each of its own time.
    pub(super) fn last(&self) -> T {
        self.last.values().fold(T::default(), |sum, last| sum.plus(last.held))
    }

    /// Whether a device had memory at its last reading.
    pub(super) fn is_held_on(&self, device: u32) -> bool {
        self.last.get(&device).is_some_and(|last| last.held != T::default())
    }

    /// Drops the sums that await no device. Of sums that await the same devices, the larger is kept, since all of them gain the
    /// same. At most one sum is left for each device: the devices that an earlier sum awaits are among those that a later one
    /// awaits.
    fn drop_needless_sums(&mut self) {
        let mut kept: Vec<OpenSum<T>> = Vec::new();
        for open in self.open.drain(..).filter(|open| !open.awaits.is_empty()) {
            match kept.iter_mut().find(|other| other.awaits == open.awaits) {
                Some(other) => *other = OpenSum { sum: other.sum.larger(open.sum), ..open },
                None => kept.push(open),
            }
        }
        kept.order_by_key(|open| open.at_ns);
        // Readings that came late can leave more. Then the oldest are kept, which await the fewest devices.
        kept.truncate(2 * self.last.len());
        self.open = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest sum of readings of (device, time, bytes).
    fn largest(readings: &[(u32, u64, u64)]) -> u64 {
        let mut sum = HeldSum::default();
        readings
            .iter()
            .map(|(device, at_ns, held)| sum.add_reading(*device, *at_ns, *held))
            .max()
            .unwrap_or(0)
    }

    // Requirement: GPU-1
    #[test]
    fn memory_that_moves_between_two_readings_counts_once() {
        // Freed on the second device, then allocated on the first: both were read with it.
        assert_eq!(largest(&[(0, 10, 0), (1, 11, 5), (0, 20, 5), (1, 21, 0), (0, 30, 5)]), 5);
        assert_eq!(largest(&[(1, 10, 5), (0, 11, 0), (1, 20, 0), (0, 21, 5), (1, 30, 0)]), 5);
        // Held on both for longer than a round.
        assert_eq!(largest(&[(0, 10, 5), (1, 11, 5), (0, 20, 5)]), 10);
    }

    // Requirement: GPU-73
    #[test]
    fn memory_that_comes_back_between_two_readings_counts_as_if_it_had_stayed() {
        // It was on the second device for a moment.
        assert_eq!(largest(&[(0, 10, 5), (1, 11, 5), (0, 20, 5), (1, 21, 0)]), 10);
        // Both held it, but not for a whole round.
        assert_eq!(largest(&[(0, 10, 0), (1, 11, 5), (0, 20, 5), (1, 21, 0)]), 5);
    }

    #[test]
    fn devices_that_are_read_at_once_add_up() {
        assert_eq!(largest(&[(0, 10, 5), (1, 10, 7), (2, 10, 1)]), 13);
        assert_eq!(largest(&[(2, 5, 3), (0, 10, 5), (1, 10, 7), (2, 15, 2)]), 14);
    }

    #[test]
    fn reading_that_comes_late_adds_nothing_to_later_sums() {
        assert_eq!(largest(&[(0, 10, 5), (1, 20, 5), (0, 15, 5)]), 5);
        assert_eq!(largest(&[(0, 10, 5), (1, 20, 5), (0, 15, 5), (1, 30, 5), (0, 40, 5)]), 10);
    }

    #[test]
    fn device_that_stops_answering_holds_nothing_up() {
        let mut sum = HeldSum::default();
        for device in 0..8 {
            sum.add_reading(device, 1, 100);
        }
        for round in 1..1000 {
            let readings =
                (0..7).map(|device| sum.add_reading(device, 10 * round + u64::from(device), round));
            let largest = readings.max();
            assert!(sum.open.len() <= 8, "{sum:?}");
            // In the second round each of the others was read before and after.
            assert!(round < 100 || largest == Some(7 * round - 6), "{largest:?} in {round}");
        }
    }
}
