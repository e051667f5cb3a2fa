//! What every driver interface offers.

use crate::model::gpu::{Device, DeviceSample, Missing};

/// An interface to a driver. It has a thread of its own, so its calls may take as long as they need.
pub(crate) trait Backend: Send {
    /// The devices that are present now.
    fn devices(&mut self) -> Vec<Device>;

    /// Read the devices in `wanted` (ids). `at_ns` is the time, CLOCK_MONOTONIC. `pids` are the processes of the run, for
    /// drivers that are asked process by process.
    fn sample(&mut self, at_ns: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample>;

    /// Restore the driver settings that were changed.
    fn restore(&mut self) {}

    /// Why devices that could not be identified can't be read.
    fn unreadable(&self) -> Vec<Missing> {
        Vec::new()
    }

    /// Warnings for the report.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
