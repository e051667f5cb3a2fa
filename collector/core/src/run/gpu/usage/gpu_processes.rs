//! The processes of the run that used a GPU.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::held_sum::HeldSum;
use super::meters::BusyMeter;
use crate::model::gpu::Busy;
use crate::model::groups::Groups;
use crate::model::sorting::InOrder;
use crate::run::gpu::pid_table::PidEntry;
use crate::run::gpu::policy::GpuPolicy;

/// A process on one device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Its largest memory there, bytes; `None`: never reported.
    pub peak_bytes: Option<u64>,
    /// Its utilisation there.
    pub busy: BusyMeter,
    /// The peak is from an accounting entry, which covers what no sample saw.
    pub is_accounted: bool,
    /// Its mean utilisation by its accounting entry, percent. `None`: there is no entry, or samples reported its utilisation.
    pub accounted_percent: Option<f64>,
    /// The driver's last list of processes has this one, but not how much memory it has there.
    is_unreported: bool,
}

/// A process that used a GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessGpuUse {
    /// Its pid in the collector's pid namespace; in its own, if that one is not known.
    pub pid: u32,
    /// Its pid as the driver has it.
    pub driver_pid: u32,
    /// Its command name.
    pub command: Arc<str>,
    /// The command's first process.
    pub is_main: bool,
    /// Largest sum over the devices at one time, bytes; `None`: never reported.
    pub peak_bytes: Option<u64>,
    /// By device id.
    pub devices: BTreeMap<String, DeviceUse>,
    /// Its memory on the devices while it runs; `peak_bytes` is the largest sum of it.
    held: HeldSum<u64>,
}

impl ProcessGpuUse {
    /// The process's figures on a device, given by the device's id. If it has none there, adds empty ones.
    pub(super) fn on_device(&mut self, device: &str) -> &mut DeviceUse {
        self.devices.entry(device.to_owned()).or_default()
    }

    /// Takes in how much memory it has at `at_ns` on a device, given by number and id, bytes. Raises its peaks, there and over all
    /// devices. `None`: none, or not known.
    fn add_memory(&mut self, number: u32, device: &str, at_ns: u64, bytes: Option<u64>) {
        let largest = self.held.add_reading(number, at_ns, bytes.unwrap_or(0));
        // A peak of 0 is known only if the driver reported 0.
        if bytes.is_some() || largest > 0 {
            self.peak_bytes = self.peak_bytes.max(Some(largest));
        }
        let on_device = self.on_device(device);
        on_device.peak_bytes = on_device.peak_bytes.max(bytes);
    }

    /// Its memory on all devices by the last reading of each, bytes; `None`: a driver does not report it.
    fn held_bytes(&self) -> Option<u64> {
        let is_known = self.devices.values().all(|on| !on.is_unreported);
        is_known.then(|| self.held.last())
    }

    /// Takes in the driver's accounting entry of it: its peak on a device, bytes, and its mean utilisation there, percent. The peak
    /// counts if it is larger than samples show, and the utilisation if samples have none.
    pub(super) fn add_accounting(&mut self, device: &str, bytes: u64, percent: Option<u32>) {
        self.peak_bytes = self.peak_bytes.max(Some(bytes));
        let on_device = self.on_device(device);
        if on_device.peak_bytes.is_none_or(|peak| bytes > peak) {
            (on_device.peak_bytes, on_device.is_accounted) = (Some(bytes), true);
        }
        if let (None, Some(percent)) = (on_device.busy.max, percent) {
            on_device.accounted_percent = Some(f64::from(percent).clamp(0.0, 100.0));
        }
    }

    /// Takes over its name, which an exec can change, and its pid, which may have been unknown before.
    fn identify(&mut self, entry: &PidEntry) {
        self.command = entry.command.clone();
        self.pid = entry.pid.unwrap_or(self.pid);
    }
}

/// The processes that used a GPU, at most as many as the policy allows. The sums over processes count the others, too.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuProcesses {
    /// By their id in the run.
    pub by_id: BTreeMap<u64, ProcessGpuUse>,
}

impl GpuProcesses {
    /// The figures of a process that the driver names by `driver_pid`, with its present name and pid. If it is new, adds it.
    /// `None`: there are too many.
    pub(super) fn figures_of(&mut self, entry: &PidEntry, driver_pid: u32) -> Option<&mut ProcessGpuUse> {
        if self.by_id.len() >= GpuPolicy::MOST_PROCESSES && !self.by_id.contains_key(&entry.id) {
            return None;
        }
        let process = self.by_id.entry(entry.id).or_insert_with(|| ProcessGpuUse {
            pid: entry.own_pid,
            driver_pid,
            command: entry.command.clone(),
            is_main: entry.is_main,
            peak_bytes: None,
            devices: BTreeMap::new(),
            held: HeldSum::default(),
        });
        process.identify(entry);
        Some(process)
    }

    /// Takes in the process list of a device, given by number and id, read at `at_ns`. `listed`: the memory of each process, by
    /// id, bytes; `None`: the list has the process without its memory. A process that only an earlier list had has left the
    /// device.
    pub(super) fn add_memory(
        &mut self,
        number: u32,
        device: &str,
        at_ns: u64,
        listed: &BTreeMap<u64, Option<u64>>,
    ) {
        for (id, process) in &mut self.by_id {
            let entry = listed.get(id);
            let was_listed = || {
                process.held.is_held_on(number)
                    || process.devices.get(device).is_some_and(|on| on.is_unreported)
            };
            if entry.is_none() && !was_listed() {
                continue;
            }
            // A process that has left the device counts as without memory there, and so does one of unknown memory.
            // `is_unreported` tells them apart.
            process.add_memory(number, device, at_ns, entry.copied().flatten());
            process.on_device(device).is_unreported = entry == Some(&None);
        }
    }

    /// Takes in that, for `us` microseconds before a reading, nothing but `busy` ran on a device, given by number and id. The rest of
    /// the time counts as idle for each process that has memory there.
    pub(super) fn add_idle(&mut self, number: u32, device: &str, us: u64, busy: &BusyProcesses) {
        for (id, process) in &mut self.by_id {
            let is_unreported = process.devices.get(device).is_some_and(|on| on.is_unreported);
            if is_unreported || process.held.is_held_on(number) {
                let busy_us = busy.by_id.get(id).map_or(0, |(_, busy)| busy.us);
                process.on_device(device).busy.add_idle(us.saturating_sub(busy_us));
            }
        }
    }

    /// The memory of a process, by its id, on all devices by the last reading of each, bytes; 0: no driver has named the
    /// process. `None`: a driver does not report it, or there are too many processes to know them all.
    pub(crate) fn held_bytes(&self, id: u64) -> Option<u64> {
        match self.by_id.get(&id) {
            Some(process) => process.held_bytes(),
            None => (self.by_id.len() < GpuPolicy::MOST_PROCESSES).then_some(0),
        }
    }

    /// Notes that a process ended: it keeps the name and pid that it had last, and holds no memory any more.
    pub(super) fn ended(&mut self, ended: &PidEntry) {
        if let Some(process) = self.by_id.get_mut(&ended.id) {
            process.identify(ended);
            process.held = HeldSum::default();
        }
    }
}

/// The processes that ran on a device before a reading, each in a stretch of time that ended at the reading.
#[derive(Debug, Default)]
pub(super) struct BusyProcesses {
    /// By id: whether the process is the main one, and its stretch.
    by_id: BTreeMap<u64, (bool, Busy)>,
}

impl BusyProcesses {
    /// Adds a stretch in which a process ran. Of several stretches of one process, the largest length and the largest percentage
    /// count.
    pub(super) fn add(&mut self, process: &PidEntry, busy: Busy) {
        let (_, known) = self.by_id.entry(process.id).or_insert((process.is_main, busy));
        *known = Busy { us: known.us.max(busy.us), percent: known.percent.max(busy.percent) };
    }

    /// Divides the time before the reading into parts in each of which the same processes ran. Returns the length of each part,
    /// nanoseconds, and the sum of the processes' utilisation in it, percent; the oldest part first.
    ///
    /// All stretches end at the reading. So each part goes from the beginning of one to that of the next shorter one. The processes
    /// in it are those whose stretch is at least as long.
    pub(super) fn sums(&self) -> Vec<(u64, Groups<f64>)> {
        let lengths = self.by_id.values().map(|(_, busy)| busy.us).ordered_set();
        let mut sums = Vec::new();
        // The part ends this long before the reading, where the next one in time begins.
        let mut newer_us = 0;
        for us in lengths {
            let mut sum = Groups::default();
            for (is_main, busy) in self.by_id.values().filter(|(_, busy)| busy.us >= us) {
                sum.add(*is_main, busy.percent.clamp(0.0, 100.0), |a, b| a + b);
            }
            sums.push(((us - newer_us).saturating_mul(1000), sum));
            newer_us = us;
        }
        sums.reverse();
        sums
    }
}
