//! GPU usage over the run, from dated readings: of each device, of each process, and of the first process, its descendants and
//! both together.

mod amount;
pub(crate) mod availability;
mod busy;
pub(crate) mod device;
mod full_memory;
pub(crate) mod gpu_processes;
mod held_sum;
mod maxima;
mod memory_steps;
pub(crate) mod meters;
mod now;
mod process_lists;
#[cfg(test)]
mod random_moves;
pub(crate) mod reading_times;
mod recent;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pid_table::{PidEntry, PidResolver};
use super::policy::{GpuPolicy, most_unread_ns};
use crate::model::gpu::{BackendsAtEnd, Batch, Device, TorchMemory, TrackedDevice};
use crate::model::groups::Groups;
use crate::model::sorting::Sorting;
use crate::run::steps::MemoryStep;
use device::{DeviceReading, DeviceUsage};
use gpu_processes::{GpuProcesses, ProcessGpuUse};
use maxima::Maxima;

/// The usage of all devices and processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuUsage {
    /// The tracked devices, in the order of the drivers.
    pub devices: Vec<DeviceUsage>,
    /// A driver has told which devices there are.
    #[serde(default)]
    pub is_listed: bool,
    /// Ids of all whole devices of the machine, tracked or not.
    pub machine: BTreeSet<String>,
    /// Which devices the command may see depends on the order in which CUDA counts them.
    pub is_order_unsure: bool,
    /// The processes of the run that used a GPU.
    pub processes: GpuProcesses,
    /// Maxima over all devices.
    pub max: Maxima,
    /// How many processes may have used a device that was not read while they lived.
    pub unsampled: Groups<u64>,
    /// Backends (the readers of one driver each) that have not returned from a driver call, and since when, CLOCK_MONOTONIC
    /// nanoseconds.
    pub unresponsive: Vec<(String, u64)>,
    /// How the backends ended.
    pub backends: BackendsAtEnd,
    /// How often devices should be read, nanoseconds.
    pub interval_ns: u64,
    /// When the command began, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// Time of the GPU monitor's last observation, CLOCK_MONOTONIC nanoseconds; `None`: the run goes on.
    pub end_ns: Option<u64>,
    /// The run had a process besides the first one.
    pub has_descendants: bool,
    /// What processes told of PyTorch's memory.
    #[serde(default)]
    pub torch: Vec<TorchMemory>,
}

impl GpuUsage {
    /// Takes in what a backend read: its devices, and then samples of them. A sample of a device that was never listed is left out.
    pub(super) fn add(&mut self, batch: &Batch, pids: PidResolver) {
        if let Some(list) = &batch.devices {
            self.is_listed = true;
            self.machine.extend(list.machine.iter().cloned());
            self.is_order_unsure |= list.is_order_unsure;
            for tracked in &list.tracked {
                self.add_device(tracked);
            }
        }
        for sample in &batch.samples {
            // 0: the backend dated only the batch.
            let at_ns = if sample.at_ns == 0 { batch.at_ns } else { sample.at_ns };
            let Some(number) = self.devices.iter().position(|usage| usage.device.id == sample.device) else {
                continue;
            };
            let reading = DeviceReading {
                number: u32::try_from(number).unwrap_or(u32::MAX),
                at_ns,
                sample,
                pids,
                most_unread_ns: most_unread_ns(self.interval_ns),
            };
            self.devices[number].add(&reading, &mut self.processes, &mut self.max);
        }
    }

    /// The steps of memory since the last call, each with its device and process, in the order of their times. No process: the
    /// step is a jump of all processes together.
    pub(crate) fn take_steps(&mut self) -> Vec<(MemoryStep, &Device, Option<&ProcessGpuUse>)> {
        let mut steps: Vec<(MemoryStep, usize)> = Vec::new();
        for (number, device) in self.devices.iter_mut().enumerate() {
            steps.extend(device.steps.found.drain(..).map(|step| (step, number)));
        }
        steps.order_by_key(|(step, _)| step.at_ns);
        let process = |step: &MemoryStep| self.processes.by_id.get(&step.process?);
        steps
            .into_iter()
            .map(|(step, number)| (step, &*self.devices[number].device, process(&step)))
            .collect()
    }

    /// For how long the process lists of a device were not read, nanoseconds, whether or not the driver refused them. It is
    /// the time between readings further apart than two intervals, or as far from the run's start or end. Without any list it is 0.
    pub(crate) fn unread_ns(&self, device: &DeviceUsage) -> u64 {
        device.lists.read.unread_ns(self.start_ns, self.end_of(device), most_unread_ns(self.interval_ns))
    }

    /// For how long the driver gave neither the process lists of a device nor a refusal, nanoseconds. It is the part of
    /// [`Self::unread_ns`] that no gap of the figure has. Without any list it is 0, since the figure is missing as a whole.
    pub(crate) fn unanswered_ns(&self, device: &DeviceUsage) -> u64 {
        if device.lists.read.count == 0 {
            return 0;
        }
        device.lists.answers.unread_ns(self.start_ns, self.end_of(device), most_unread_ns(self.interval_ns))
    }

    /// The longest time without an answer about a device's process lists, nanoseconds. The times from the run's start to
    /// the first answer and from the last one to the run's end count, too.
    pub(crate) fn longest_unanswered_ns(&self, device: &DeviceUsage) -> u64 {
        device.lists.answers.longest_unread_ns(self.start_ns, self.end_of(device))
    }

    /// Until when a device should have been read, CLOCK_MONOTONIC nanoseconds: the end of the run. `None`: the run goes on,
    /// or the device is lost, so that no process can be on it.
    fn end_of(&self, device: &DeviceUsage) -> Option<u64> {
        self.end_ns.filter(|_| device.loss.is_none_or(|loss| loss.is_back))
    }

    /// Adds a device, or renews what is known of it. Notes which devices are parts of others.
    fn add_device(&mut self, TrackedDevice { device, is_visible }: &TrackedDevice) {
        let known = self.devices.iter_mut().find(|usage| usage.device.id == device.id);
        match known {
            Some(usage) => (usage.device, usage.is_visible) = (Arc::new(device.clone()), *is_visible),
            None => self.devices.push(DeviceUsage::new(device.clone(), *is_visible)),
        }
        // A part that is found before its whole device counts by itself until then.
        let ids: BTreeSet<String> = self.devices.iter().map(|usage| usage.device.id.clone()).collect();
        for usage in &mut self.devices {
            usage.is_part = usage.device.parent.as_ref().is_some_and(|parent| ids.contains(parent));
        }
    }

    /// Takes in that a process ended, or that the run did: the process holds no memory any more. Counts it as unsampled if it may
    /// have used a device that was not read while it lived.
    pub(super) fn ended(&mut self, ended: &PidEntry) {
        self.processes.ended(ended);
        self.devices.iter_mut().for_each(|device| device.steps.ended(ended.id));
        // A process that still runs counts as if it lived for ever.
        let end_ns = ended.end_ns.unwrap_or(u64::MAX);
        // Devices without lists, and those that the run can't see, are left out.
        let mut listed =
            self.devices.iter().filter_map(|device| device.was_listed_within(ended.latest_start_ns, end_ns));
        // A process is seen if each of these lists was read while it lived. If no list was ever read, it is not. A process with memory on a
        // device was seen, too. The times of readings do not tell that if the collector was killed since then.
        let is_any_listed = self.devices.iter().any(|device| device.lists.read.count > 0);
        let was_seen =
            self.processes.by_id.get(&ended.id).is_some_and(|process| process.peak_bytes.is_some());
        if was_seen || (is_any_listed && listed.all(|was_listed| was_listed)) {
            return;
        }
        // A process without a library of a GPU's driver at its end used no GPU. Without an EXIT record, this is unknown (`None`).
        let lived_ns = end_ns.saturating_sub(ended.start_ns);
        if ended.had_gpu_library != Some(false) && lived_ns >= GpuPolicy::SHORTEST_GPU_USE_NS {
            self.unsampled.add(ended.is_main, 1, |a, b| a + b);
        }
    }
}
