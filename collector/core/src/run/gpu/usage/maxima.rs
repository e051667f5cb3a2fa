//! The largest sums over all devices at one time.

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::busy::BusySum;
use super::held_sum::HeldSum;
use super::recent::Recent;
use crate::model::groups::Groups;

/// The largest sums over all devices at one time; `None`: no device gave the figure.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Maxima {
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
    /// Memory of the run's processes, bytes.
    pub memory: Option<Groups<u64>>,
    /// Utilisation of the devices, percent.
    pub busy: Option<f64>,
    /// Utilisation by the run's processes, percent.
    pub process_busy: Option<Groups<f64>>,
    used_sum: HeldSum<u64>,
    memory_sum: HeldSum<Groups<u64>>,
    busy_sum: BusySum<f64>,
    process_busy_sum: BusySum<Groups<f64>>,
    /// `used_bytes` as samples have it.
    pub(super) recent_used: Recent<u64>,
    /// `memory` as samples have it.
    pub(super) recent_memory: Recent<Groups<u64>>,
    /// `busy` as samples have it.
    pub(super) recent_busy: Recent<f64>,
}

impl Maxima {
    /// Takes in how much memory of a whole device is in use by all processes of the machine, bytes. `device`: its number.
    pub(super) fn add_used(&mut self, device: u32, at_ns: u64, bytes: u64) {
        let sum = self.used_sum.add_reading(device, at_ns, bytes);
        self.recent_used.add(at_ns, sum);
        raise(&mut self.used_bytes, sum);
    }

    /// Takes in how much memory the run's processes have on a device, bytes. `device`: its number.
    pub(super) fn add_memory(&mut self, device: u32, at_ns: u64, bytes: Groups<u64>) {
        let sum = self.memory_sum.add_reading(device, at_ns, bytes);
        self.recent_memory.add(at_ns, sum);
        raise(&mut self.memory, sum);
    }

    /// Begins a sample, which gets the largest of what becomes known from now on.
    pub(super) fn begin_sample(&mut self) {
        self.recent_used.begin();
        self.recent_memory.begin();
        self.recent_busy.begin();
    }

    /// Takes in memory that a process had, bytes, by the driver's accounting. When it had that is not known, so no sample has it.
    pub(super) fn add_accounted(&mut self, bytes: Groups<u64>) {
        raise(&mut self.memory, bytes);
    }

    /// Takes in how busy a device, given by its number, was in these stretches before a reading: their lengths in nanoseconds, and
    /// percent. `until_ns`: when the driver takes its next sample, so that something newer can be known, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn add_busy(&mut self, device: u32, read_ns: u64, stretches: &[(u64, f64)], until_ns: u64) {
        // Even without stretches, since a device's first reading begins the time for which it is known.
        let largest = self.busy_sum.add_reading(device, read_ns, stretches);
        if !stretches.is_empty() {
            self.recent_busy.add(until_ns, largest);
            raise(&mut self.busy, largest);
        }
    }

    /// Takes in the utilisation of a device by the run's processes, percent, in stretches as in [`Self::add_busy`].
    pub(super) fn add_process_busy(&mut self, device: u32, read_ns: u64, stretches: &[(u64, Groups<f64>)]) {
        raise(&mut self.process_busy, self.process_busy_sum.add_reading(device, read_ns, stretches));
    }

    /// Takes in that a device, given by its number, is lost: no memory is held on it any more.
    pub(super) fn note_loss(&mut self, device: u32, at_ns: u64) {
        self.used_sum.add_reading(device, at_ns, 0);
        self.memory_sum.add_reading(device, at_ns, Groups::default());
    }
}

/// Raises a maximum to a figure that was read. A first figure of 0 makes it known.
fn raise<T: Amount>(max: &mut Option<T>, to: T) {
    *max = Some(max.unwrap_or_default().larger(to));
}
