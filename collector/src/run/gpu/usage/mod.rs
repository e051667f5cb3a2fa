//! GPU usage over the run: of each device, of each process, and of main, descendants and all together, from dated
//! readings.

pub(crate) mod availability;
pub(crate) mod device;
mod lists;
pub(crate) mod meters;
pub(crate) mod processes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::pid_table::{PidEntry, PidResolver};
use super::policy::POLICY;
use crate::model::gpu::{BackendsAtEnd, Batch, Figure, TrackedDevice};
use crate::model::groups::Groups;
use device::DeviceUsage;
use processes::Processes;

/// The usage of all devices and processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct GpuUsage {
    /// The tracked devices, in the order of the drivers.
    pub devices: Vec<DeviceUsage>,
    /// Ids of all whole devices of the machine, tracked or not.
    pub machine: BTreeSet<String>,
    /// Which devices the command may see depends on the order in which CUDA counts them.
    pub is_order_unsure: bool,
    /// The processes of the run that used a GPU.
    pub processes: Processes,
    /// Maxima over all devices.
    pub max: Maxima,
    /// Processes that no reading of the devices can have seen.
    pub unsampled: Unsampled,
    /// Backends that have not returned from a driver call, and since when, CLOCK_MONOTONIC nanoseconds.
    pub unresponsive: Vec<(String, u64)>,
    /// How the backends ended.
    pub backends: BackendsAtEnd,
    /// How often devices should be read, nanoseconds.
    pub interval_ns: u64,
}

/// The largest sums over all devices at one time; `None`: no device gave the figure.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Maxima {
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
    /// Memory of the run's processes, bytes.
    pub memory: Option<Groups<u64>>,
    /// Utilisation of the devices, percent.
    pub busy: Option<f64>,
    /// Utilisation by the run's processes, percent.
    pub process_busy: Option<Groups<f64>>,
}

/// Processes of the run during which not every device was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unsampled {
    /// How many.
    pub count: u64,
    /// One of them lived long enough to use a device, and had a GPU's library loaded or lived for longer than devices should be
    /// left unread.
    pub is_any_long: Groups<bool>,
}

impl Maxima {
    /// Take in the sums over the devices as they are now.
    fn add_up(&mut self, at_ns: u64, devices: &[DeviceUsage]) {
        let whole = devices.iter().filter(|usage| !usage.is_part);
        let used = whole.filter_map(|usage| usage.now.used_bytes).reduce(|a, b| a + b);
        self.used_bytes = self.used_bytes.max(used);
        let memory = devices.iter().filter_map(|usage| usage.now.memory);
        let memory = memory.reduce(|a, b| a.with(b, u64::saturating_add));
        // What an accounting entry reported was in use at some time that is over.
        let accounted = devices.iter().filter(|usage| usage.run.has_accounting).map(|usage| usage.run.max);
        for now in memory.into_iter().chain(accounted) {
            self.memory = Some(self.memory.unwrap_or_default().with(now, u64::max));
        }
        if devices.iter().any(|usage| usage.busy.max.is_some()) {
            let busy: f64 = devices.iter().map(|usage| usage.now.busy.at(at_ns)).sum();
            self.busy = Some(self.busy.unwrap_or(0.0).max(busy));
        }
        if devices.iter().any(|usage| usage.knows(Figure::ProcessUtilization)) {
            let busy = devices.iter().map(|usage| usage.now.process_busy.at(at_ns));
            let busy = busy.fold(Groups::default(), |a, b| a.with(b, |a, b| a + b));
            self.process_busy = Some(self.process_busy.unwrap_or_default().with(busy, f64::max));
        }
    }
}

impl GpuUsage {
    /// Take in what a backend read.
    pub(super) fn add(&mut self, batch: &Batch, pids: PidResolver) {
        if let Some(list) = &batch.devices {
            self.machine.extend(list.machine.iter().cloned());
            self.is_order_unsure |= list.is_order_unsure;
            for tracked in &list.tracked {
                self.add_device(tracked);
            }
        }
        for sample in &batch.samples {
            let at_ns = if sample.at_ns == 0 { batch.at_ns } else { sample.at_ns };
            if let Some(usage) = self.devices.iter_mut().find(|usage| usage.device.id == sample.device) {
                usage.add(at_ns, sample, pids, &mut self.processes);
            }
        }
        self.max.add_up(batch.at_ns, &self.devices);
    }

    fn add_device(&mut self, TrackedDevice { device, is_visible }: &TrackedDevice) {
        let known = self.devices.iter_mut().find(|usage| usage.device.id == device.id);
        match known {
            Some(usage) => (usage.device, usage.is_visible) = (device.clone(), *is_visible),
            None => self.devices.push(DeviceUsage::new(device.clone(), *is_visible)),
        }
        let ids: BTreeSet<String> = self.devices.iter().map(|usage| usage.device.id.clone()).collect();
        for usage in &mut self.devices {
            usage.is_part = usage.device.parent.as_ref().is_some_and(|parent| ids.contains(parent));
        }
    }

    /// A process ended: take over its last name, and count it if no sample was taken while it ran.
    pub(super) fn ended(&mut self, ended: &PidEntry) {
        self.processes.ended(ended);
        let end_ns = ended.end_ns.unwrap_or(u64::MAX);
        let mut listed = self.devices.iter().filter_map(|of| of.was_listed_within(ended.start_ns, end_ns));
        let is_any_listed = self.devices.iter().any(|of| of.lists.count > 0);
        if is_any_listed && listed.all(|was_listed| was_listed) {
            return;
        }
        self.unsampled.count += 1;
        let lived_ns = end_ns.saturating_sub(ended.start_ns);
        let is_long = lived_ns > POLICY.shortest_gpu_use_ns.max(self.interval_ns.saturating_mul(2))
            || ended.had_gpu_library && lived_ns >= POLICY.shortest_gpu_use_ns;
        self.unsampled.is_any_long.add(ended.is_main, is_long, |a, b| a || b);
    }
}
