//! The largest sum of utilization over devices at one time.
//!
//! A driver's samples are of stretches of time before the reading that returned them, and each device is read at times of its own.
//! So the stretches of all devices are laid on one timeline, which keeps their sum at any time. The stretches of one device are
//! laid one after another, so that a device has one value at any time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use crate::run::gpu::policy::GpuPolicy;

/// The sum over the devices, kept for the time that some devices have not covered yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct BusySum<T> {
    /// Until when the utilization of each device is known, by its number, CLOCK_MONOTONIC nanoseconds.
    known_until: BTreeMap<u32, u64>,
    /// The sum from each time on, CLOCK_MONOTONIC nanoseconds.
    steps: BTreeMap<u64, T>,
    /// The last reading of any device, CLOCK_MONOTONIC nanoseconds.
    read_ns: u64,
}

impl<T: Amount> BusySum<T> {
    /// Takes in a reading of a device, by its number, at `read_ns`: the stretches before it, oldest first. Each has its length in
    /// nanoseconds and its utilization. Lays them on the timeline, except where the device's utilization is known already. Notes
    /// until when it is known. Returns the largest sum in the time of these stretches.
    pub(super) fn add_reading(&mut self, device: u32, read_ns: u64, stretches: &[(u64, T)]) -> T {
        // Only a later reading makes what is kept older. Several devices can be read at one time, and readings can come late.
        if read_ns > self.read_ns {
            self.forget(read_ns);
            self.read_ns = read_ns;
        }
        // A stretch without length counts, too: it is laid as one nanosecond.
        let length_ns = |ns: u64| ns.max(1);
        let total_ns = stretches.iter().map(|(ns, _)| length_ns(*ns)).fold(0, u64::saturating_add);
        let known_until = self.known_until.get(&device).copied();
        let latest_ns = read_ns.saturating_sub(total_ns);
        // They begin where the stretches of the reading before end, unless they would then end after this reading, or much too early.
        let end_of_last_ns = known_until.filter(|until_ns| {
            *until_ns <= latest_ns && latest_ns - until_ns <= GpuPolicy::LONGEST_SAMPLE_AGE_NS
        });
        let from_ns = end_of_last_ns.unwrap_or(latest_ns);
        let mut largest = T::default();
        let mut at_ns = from_ns;
        for (ns, busy) in stretches {
            let until_ns = at_ns.saturating_add(length_ns(*ns));
            // What is known already stays as it is.
            let begin_ns = at_ns.max(known_until.unwrap_or(0));
            // The sum is at least this device alone.
            largest = largest.larger(*busy);
            if *busy != T::default() && begin_ns < until_ns {
                largest = largest.larger(self.add(begin_ns, until_ns, *busy));
            }
            at_ns = until_ns;
        }
        // A first reading begins the device's known time, even without stretches. A later one without stretches says nothing new.
        if !stretches.is_empty() || known_until.is_none() {
            self.known_until.insert(device, at_ns.max(known_until.unwrap_or(0)));
        }
        largest
    }

    /// Adds a utilization to the sum from one time to another, CLOCK_MONOTONIC nanoseconds. Returns the largest sum
    /// there.
    fn add(&mut self, from_ns: u64, until_ns: u64, busy: T) -> T {
        // The sum changes at both times, so a step begins at each.
        for at_ns in [from_ns, until_ns] {
            let sum = self.steps.range(..=at_ns).next_back().map_or_else(T::default, |(_, sum)| *sum);
            self.steps.entry(at_ns).or_insert(sum);
        }
        let mut largest = T::default();
        for (_, sum) in self.steps.range_mut(from_ns..until_ns) {
            *sum = sum.plus(busy);
            largest = largest.larger(*sum);
        }
        // A step that is as high as the one before it is dropped.
        for at_ns in [from_ns, until_ns] {
            let before = self.steps.range(..at_ns).next_back().map_or_else(T::default, |(_, sum)| *sum);
            if self.steps.get(&at_ns) == Some(&before) {
                self.steps.remove(&at_ns);
            }
        }
        largest
    }

    /// Drops the time for which all devices are known, and time so old that no late device is waited for any longer. Drops the
    /// oldest steps, too, if there are too many.
    fn forget(&mut self, now_ns: u64) {
        let oldest_ns = now_ns.saturating_sub(GpuPolicy::BUSY_KEPT_NS);
        // A device whose known time ends before that is not waited for.
        let known_until = self.known_until.values().copied().filter(|until_ns| *until_ns >= oldest_ns);
        let mut until_ns = known_until.min().unwrap_or(oldest_ns);
        if self.steps.len() > GpuPolicy::MOST_BUSY_STEPS {
            let oldest_kept = self.steps.keys().rev().nth(GpuPolicy::MOST_BUSY_STEPS);
            until_ns = until_ns.max(oldest_kept.copied().unwrap_or(0));
        }
        // The last step that is dropped goes on after `until_ns`.
        let Some(sum) = self.steps.range(..=until_ns).next_back().map(|(_, sum)| *sum) else { return };
        self.steps = self.steps.split_off(&until_ns);
        self.steps.insert(until_ns, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // Requirement: GPU-33
    #[test]
    fn devices_that_are_always_busy_have_the_whole_sum() {
        let mut sum = BusySum::default();
        let mut largest = 0.0_f64;
        for reading in 1..40_u64 {
            let device = (reading % 8) as u32;
            // Samples of 20 ms; each device is read every 360 ms, up to 20 ms after its newest sample.
            let count = if reading > 8 { 18 } else { 10 };
            let at_ns = (1000 + reading * 45) * MS;
            largest = largest.max(sum.add_reading(device, at_ns, &vec![(20 * MS, 100.0); count]));
            assert!(sum.steps.len() < 20, "{}", sum.steps.len());
        }
        assert_eq!(largest, 800.0);
    }

    #[test]
    fn devices_that_are_busy_in_turn_never_add_up() {
        let mut sum = BusySum::default();
        for device in 0..2 {
            sum.add_reading(device, 0, &[]);
        }
        // Both are read at 1000 ms and at 2000: one was busy in the first half of that time, the other in the second.
        let stretches = [[100.0, 0.0], [0.0, 100.0]];
        for at_ms in [1000, 2000, 3000] {
            for (device, of_device) in (0..).zip(&stretches) {
                let stretches: Vec<_> = of_device.iter().map(|busy| (500 * MS, *busy)).collect();
                assert_eq!(
                    sum.add_reading(device, (at_ms + u64::from(device)) * MS, &stretches),
                    100.0,
                    "{at_ms}"
                );
            }
        }
    }

    #[test]
    fn stretches_that_overlap_those_before_count_once() {
        let mut sum = BusySum::default();
        for at_ms in 1..100 {
            assert_eq!(sum.add_reading(0, at_ms * 20 * MS, &[(1000 * MS, 80.0)]), 80.0);
        }
    }

    #[test]
    fn device_that_stops_answering_holds_nothing_up() {
        let mut sum = BusySum::default();
        sum.add_reading(9, 1, &[(1, 50.0)]);
        for reading in 1..20_000_u64 {
            let busy = (reading % 7) as f64;
            sum.add_reading((reading % 3) as u32, reading * 10 * MS, &[(30 * MS, busy)]);
            assert!(sum.steps.len() <= GpuPolicy::MOST_BUSY_STEPS + 2, "{}", sum.steps.len());
        }
    }
}
