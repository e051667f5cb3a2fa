//! The GPUs as a sample has them.

use super::GpuUsage;
use super::device::DeviceUsage;
use crate::model::tree_sample::GpuSums;
use crate::run::gpu::policy::most_unread_ns;

impl GpuUsage {
    /// The figures of the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds: the largest that became known since it began. If
    /// none did, the last one, unless that is too old.
    pub(crate) fn now(&self, at_ns: u64) -> GpuSums {
        let oldest_ns = at_ns.saturating_sub(most_unread_ns(self.interval_ns));
        GpuSums {
            used_bytes: self.max.recent_used.get(oldest_ns),
            run_bytes: self.max.recent_memory.get(oldest_ns),
            busy_percent: self.max.recent_busy.get(oldest_ns),
            expected: self.devices.iter().filter(|device| !device.is_part).count() as u32,
            devices: self.devices.iter().map(|device| device.now(oldest_ns)).collect(),
        }
    }

    /// Begins a sample: it has what is read from now on.
    pub(crate) fn begin_sample(&mut self) {
        self.max.begin_sample();
        self.devices.iter_mut().for_each(DeviceUsage::begin_sample);
    }
}
