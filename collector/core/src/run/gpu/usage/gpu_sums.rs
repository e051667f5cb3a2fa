//! The GPUs as a sample has them.

use super::GpuUsage;
use super::device::DeviceUsage;
use crate::model::tree_sample::{GpuSample, GpuSums};
use crate::run::gpu::policy::longest_read_ns;

impl GpuUsage {
    /// Gives what was read since the sample before `at_ns` closed.
    pub(crate) fn now(&self, at_ns: u64) -> GpuSums {
        let oldest_ns = at_ns.saturating_sub(longest_read_ns(self.interval_ns));
        GpuSums {
            used_bytes: self.max.recent_used.get(oldest_ns),
            run_bytes: self.max.recent_memory.get(oldest_ns),
            busy_percent: self.max.recent_busy.get(oldest_ns),
            expected: self.devices.iter().filter(|device| !device.is_part).count() as u32,
            devices: (0..)
                .zip(&self.devices)
                .map(|(number, device)| self.device(number, device, oldest_ns))
                .collect(),
        }
    }

    /// Gives a device's last reading; what was read before `oldest_ns` is unknown.
    fn device(&self, number: u32, device: &DeviceUsage, oldest_ns: u64) -> GpuSample {
        let (read_ns, used_bytes, busy_percent) = device.last();
        let is_fresh = read_ns >= oldest_ns;
        let run = self.max.memory_on(number).filter(|(read_ns, _)| *read_ns >= oldest_ns);
        GpuSample {
            device: device.device.id.clone(),
            read_ns,
            used_bytes: used_bytes.filter(|_| is_fresh),
            run_bytes: run.map(|(_, bytes)| bytes),
            busy_percent: busy_percent
                .filter(|(read_ns, _)| *read_ns >= oldest_ns)
                .map(|(_, percent)| percent),
        }
    }

    /// Begins a sample: it has what is read from now on.
    pub(crate) fn begin_sample(&mut self) {
        self.max.begin_sample();
    }
}
