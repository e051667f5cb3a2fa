//! The memory of the run's processes now, as far as the last readings of the devices tell it.

use super::GpuUsage;
use super::device::DeviceUsage;
use crate::model::gpu::{Figure, Missing};
use crate::run::gpu::policy::most_unread_ns;

impl GpuUsage {
    /// Whether the memory of processes on all devices is known at this time, CLOCK_MONOTONIC nanoseconds. Lost devices hold none,
    /// and a device whose parts report the memory need not report it itself. Both are left out. With no other device, it is not
    /// known.
    pub(crate) fn knows_process_memory(&self, at_ns: u64) -> bool {
        let oldest_ns = at_ns.saturating_sub(most_unread_ns(self.interval_ns));
        let must_report = |device: &&DeviceUsage| {
            let is_lost = device.loss.is_some_and(|loss| !loss.is_back);
            !is_lost && !device.missing(Figure::ProcessMemory).is_some_and(Missing::is_reported_by_parts)
        };
        let mut devices = self.devices.iter().filter(must_report).peekable();
        devices.peek().is_some() && devices.all(|device| device.knows_run_memory(oldest_ns))
    }

    /// Whether the driver has listed a process of the run on a device, by the device's id, without its memory.
    pub fn has_unreported_memory(&self, device: &str) -> bool {
        let mut devices = self.devices.iter().filter(|usage| usage.device.id == device);
        devices.any(|usage| usage.run.has_unreported.combined)
    }
}
