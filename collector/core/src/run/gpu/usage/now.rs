//! The GPUs now: their figures for a sample, and whether the memory of the run's processes is known.

use super::GpuUsage;
use super::device::DeviceUsage;
use crate::model::gpu::{Figure, Missing};
use crate::model::tree_sample::GpuSums;
use crate::run::gpu::policy::most_unread_ns;

impl GpuUsage {
    /// The figures of the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds: the largest that became known since it began. If
    /// none did, the last one, unless that is too old.
    pub(crate) fn now(&self, at_ns: u64) -> GpuSums {
        let oldest_ns = at_ns.saturating_sub(most_unread_ns(self.interval_ns));
        // A device that does not answer now, or was not asked yet, has a part in these sums that nobody knows.
        let fails = |device: &DeviceUsage, figure| {
            let answer = device.missing(figure);
            let is_refused = answer.is_some_and(|reason| *reason != Missing::NotSupported);
            is_refused || (answer.is_none() && !device.knows(figure) && device.may_still_tell())
        };
        let lacks_used = |device: &DeviceUsage| !device.is_part && fails(device, Figure::MemoryUsed);
        let lacks_run = |device: &DeviceUsage| {
            let is_told_by_parts =
                device.missing(Figure::ProcessMemory).is_some_and(Missing::is_reported_by_parts);
            device.run.lacks_memory || (fails(device, Figure::ProcessMemory) && !is_told_by_parts)
        };
        let is_none = |lacks: &dyn Fn(&DeviceUsage) -> bool| {
            !self.devices.iter().filter(|device| !device.is_lost()).any(lacks)
        };
        let lacks_busy = |device: &DeviceUsage| !device.is_part && fails(device, Figure::Utilization);
        let is_use_known = self.is_use_known() && is_none(&lacks_used);
        GpuSums {
            used_bytes: self.max.recent_used.get(oldest_ns).filter(|_| is_use_known),
            run_bytes: self.max.recent_memory.get(oldest_ns).filter(|_| is_none(&lacks_run)),
            busy_percent: self
                .max
                .recent_busy
                .get(oldest_ns)
                .filter(|_| !self.lacks_busy() && is_none(&lacks_busy)),
            machine: self.machine.len(),
            expected: self.devices.iter().filter(|device| !device.is_part).count() as u32,
            devices: self.devices.iter().map(|device| device.now(oldest_ns)).collect(),
            are_devices_sought: false,
        }
    }

    /// Whether the memory in use was read of each device that has memory, so that their sum is that of the machine.
    pub(crate) fn is_use_known(&self) -> bool {
        let mut with_memory = self.devices.iter().filter(|device| !device.is_part && device.has_memory());
        self.backends.unreadable.is_empty() && with_memory.all(|device| device.knows(Figure::MemoryUsed))
    }

    /// Whether the sum of the devices' utilization lacks a device. One that does not support the figure is left out, and the sum is
    /// that of the others.
    pub(crate) fn lacks_busy(&self) -> bool {
        self.devices.iter().any(|device| !device.is_part && device.lacks_busy())
    }

    /// Begins a sample, which gets the largest of what is read from now on.
    pub(crate) fn begin_sample(&mut self) {
        self.max.begin_sample();
        self.devices.iter_mut().for_each(|device| device.recent.begin());
    }

    /// Whether the memory of processes on all devices is known at this time, CLOCK_MONOTONIC nanoseconds. Lost devices hold none,
    /// and a device whose parts report the memory need not report it itself. Both are left out. If no device is left, it is
    /// unknown.
    pub(crate) fn knows_process_memory(&self, at_ns: u64) -> bool {
        let oldest_ns = at_ns.saturating_sub(most_unread_ns(self.interval_ns));
        let must_report = |device: &&DeviceUsage| {
            !device.is_lost()
                && !device.missing(Figure::ProcessMemory).is_some_and(Missing::is_reported_by_parts)
        };
        let mut devices = self.devices.iter().filter(must_report).peekable();
        devices.peek().is_some() && devices.all(|device| device.recent.run_bytes.get(oldest_ns).is_some())
    }
}
