//! GPU usage over the run: of each device, of each process, and of main, descendants and all together, from dated
//! readings.

pub(crate) mod device;
mod groups;
pub(crate) mod meters;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pid_table::{PidEntry, PidTable};
use super::policy::POLICY;
use crate::model::gpu::{
    AccountingEntry, Batch, Busy, DeviceSample, Figure, Missing, PidFacts, ProcessBusy, ProcessMemory,
    TrackedDevice,
};
use device::DeviceUsage;
use groups::GroupMemory;
use meters::{BusyMeter, Latest};

/// A process on one device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct OnDevice {
    /// Its largest memory there, bytes; `None`: never reported.
    pub peak_bytes: Option<u64>,
    /// Its utilisation there.
    pub busy: BusyMeter,
    /// The peak is from an accounting entry, which covers what no sample saw.
    pub is_accounted: bool,
    /// Its mean utilisation by its accounting entry, percent, used where no sample reported any.
    pub accounted_percent: Option<f64>,
}

/// A process that used a GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessGpu {
    /// Its pid in the collector's pid namespace.
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
    pub devices: BTreeMap<String, OnDevice>,
    /// Its memory at the last reading, bytes, by device id.
    #[serde(skip)]
    now: BTreeMap<String, u64>,
}

/// The usage of all devices and processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct GpuUsage {
    /// The tracked devices, in the order of the drivers.
    pub devices: Vec<DeviceUsage>,
    /// Ids of all whole devices of the machine, tracked or not.
    pub machine: BTreeSet<String>,
    /// The processes of the run that used a GPU, by their id in the run.
    pub processes: BTreeMap<u64, ProcessGpu>,
    /// Backends that gave no reading, and why.
    pub failed: Vec<(String, Missing)>,
    /// Why devices that could not be identified could not be read.
    pub unreadable: Vec<Missing>,
    /// Names that the user gave (`--guuids`) and that mean no device.
    pub unknown_names: Vec<String>,
    /// Warnings of the backends.
    pub notes: Vec<String>,
    /// Backends that have not returned from a driver call, and since when, CLOCK_MONOTONIC nanoseconds.
    pub unresponsive: Vec<(String, u64)>,
    /// Which devices the command may see depends on the order in which CUDA counts them.
    pub is_order_unsure: bool,
    /// Largest memory in use by all processes of the machine on all devices at one time, bytes.
    pub max_used: Option<u64>,
    /// Largest memory of the run's processes on all devices at one time.
    pub max: Option<GroupMemory>,
    /// Largest sum of the devices' utilisation at one time, percent.
    pub max_busy: Option<f64>,
    /// Largest sum of the run's processes' utilisation at one time (main, descendants, combined), percent.
    pub max_process_busy: Option<[f64; 3]>,
    /// The driver listed a process of the run (main, a descendant) without its memory.
    pub has_unreported: [bool; 2],
    /// Processes of the run during which not every device was read.
    pub unsampled: u64,
    /// One of those (main, a descendant) lived for longer than devices should be left unread, and long enough to use one.
    pub has_unsampled_long: [bool; 2],
    /// How often devices should be read, nanoseconds.
    pub interval_ns: u64,
}

/// Maps what a driver lists to processes of the run.
#[derive(Clone, Copy)]
pub(super) struct PidResolver<'a> {
    /// The processes of the run.
    pub table: &'a PidTable,
    /// What /proc says of the pids that drivers name.
    pub facts: &'a BTreeMap<u32, PidFacts>,
    /// The collector is in a pid namespace of its own.
    pub has_own_pid_ns: bool,
}

impl PidResolver<'_> {
    fn facts_of(&self, pid: u32) -> PidFacts {
        self.facts.get(&pid).copied().unwrap_or_default()
    }

    /// The process of the run that the driver means.
    fn resolve(&self, pid: u32, from_to_ns: [u64; 2]) -> Option<&PidEntry> {
        // A kernel thread and a zombie use no GPU.
        let is_taken = || self.facts_of(pid).has_memory == Some(true);
        let process = self.table.resolve(pid, from_to_ns, is_taken)?;
        (!self.table.lacks_gpu(process)).then_some(process)
    }

    /// Whether a pid that is no process of the run can be one of another pid namespace, so that it may stand for a process
    /// of the run: in a container, or in a sandbox that is a single process to the driver (gVisor).
    fn is_foreign(&self, pid: u32) -> bool {
        let facts = self.facts_of(pid);
        self.has_own_pid_ns && facts.has_gpu_open.map_or(facts.has_memory.is_none(), |is_open| !is_open)
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
            let Some(index) = self.devices.iter().position(|usage| usage.device.id == sample.device) else {
                continue;
            };
            let at_ns = if sample.at_ns == 0 { batch.at_ns } else { sample.at_ns };
            if let Some(usage) = self.devices.get_mut(index) {
                usage.add(at_ns, sample);
            }
            self.add_memory(index, at_ns, sample, pids);
            self.add_busy(index, at_ns, sample, pids);
            self.add_accounting(index, at_ns, sample, pids);
        }
        self.add_up(batch.at_ns);
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

    /// Compute the sums over the devices as they are now, and the maxima of those.
    fn add_up(&mut self, at_ns: u64) {
        let whole = || self.devices.iter().filter(|usage| !usage.is_part);
        if whole().any(|usage| usage.now.used_bytes.is_some()) {
            let used: u64 = whole().filter_map(|usage| usage.now.used_bytes).sum();
            self.max_used = self.max_used.max(Some(used));
        }
        let memory = self.devices.iter().filter_map(|usage| usage.now.memory);
        if let Some(now) = memory.reduce(|a, b| a.plus(&b)) {
            self.max = Some(self.max.unwrap_or_default().max(&now));
        }
        if self.devices.iter().any(|usage| usage.busy.max.is_some()) {
            let busy: f64 = self.devices.iter().map(|usage| usage.now.busy.at(at_ns)).sum();
            self.max_busy = Some(self.max_busy.unwrap_or(0.0).max(busy));
        }
        if self.devices.iter().any(|usage| usage.knows(Figure::ProcessUtilization)) {
            let max = self.max_process_busy.get_or_insert([0.0; 3]);
            for (group, max) in max.iter_mut().enumerate() {
                let of_device = |usage: &DeviceUsage| usage.now.process_busy.at(at_ns).get(group).copied();
                *max = max.max(self.devices.iter().filter_map(of_device).sum());
            }
        }
    }

    fn add_memory(&mut self, index: usize, at_ns: u64, sample: &DeviceSample, pids: PidResolver) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        if sample.processes.is_none() && !sample.is_lost {
            return;
        }
        let at_ns = if sample.listed_ns == 0 { at_ns } else { sample.listed_ns };
        usage.now.memory = None;
        for process in self.processes.values_mut() {
            process.now.remove(&sample.device);
        }
        let list = sample.processes.as_ref();
        let Some(list) = list.and_then(|list| usage.note(at_ns, Figure::ProcessMemory, list)) else { return };
        usage.note_lists(at_ns);
        let mut memory = GroupMemory::default();
        let mut of_run = Vec::new();
        for listed in list {
            let bytes = listed.bytes.as_ref().ok().copied();
            let since = usage.listed_since(at_ns, listed.pid, bytes);
            match pids.resolve(listed.pid, [at_ns, at_ns]) {
                Some(process) if process.started_by(since) => {
                    usage.note_use(at_ns);
                    memory.add(process.is_main, bytes.unwrap_or(0));
                    of_run.push((process.clone(), listed));
                }
                Some(_) => {}
                None => usage.has_foreign |= pids.is_foreign(listed.pid),
            }
        }
        let listed: HashSet<u32> = list.iter().map(|listed| listed.pid).collect();
        usage.keep_listed(|pid| listed.contains(&pid));
        if usage.has_foreign && !usage.was_ever_resolved() {
            // Any of those may be a process of the run.
            usage.known.retain(|figure| *figure != Figure::ProcessMemory);
            usage.missing.insert(Figure::ProcessMemory, Missing::ForeignPids);
        } else {
            usage.now.memory = Some(memory);
            usage.max = usage.max.max(&memory);
        }
        for (process, listed) in of_run {
            self.note_memory(&sample.device, &process, listed);
        }
    }

    fn note_memory(&mut self, device: &str, of: &PidEntry, listed: &ProcessMemory) {
        match &listed.bytes {
            Ok(bytes) => {
                let Some(process) = self.process(of, listed.pid) else { return };
                // The driver may list it once for each of several thread ids.
                let here = process.now.entry(device.to_owned()).or_default();
                *here = here.saturating_add(*bytes);
                let here = *here;
                let sum = process.now.values().sum();
                process.peak_bytes = process.peak_bytes.max(Some(sum));
                let on = process.devices.entry(device.to_owned()).or_default();
                on.peak_bytes = on.peak_bytes.max(Some(here));
            }
            Err(_) => {
                if let Some(has_unreported) = self.has_unreported.get_mut(usize::from(!of.is_main)) {
                    *has_unreported = true;
                }
                if let Some(usage) = self.devices.iter_mut().find(|usage| usage.device.id == device)
                    && let Some(has_unreported) = usage.has_unreported.get_mut(usize::from(!of.is_main))
                {
                    *has_unreported = true;
                }
                if let Some(process) = self.process(of, listed.pid) {
                    process.devices.entry(device.to_owned()).or_default();
                }
            }
        }
    }

    fn process(&mut self, of: &PidEntry, driver_pid: u32) -> Option<&mut ProcessGpu> {
        if self.processes.len() >= POLICY.most_processes && !self.processes.contains_key(&of.id) {
            return None;
        }
        let process = self.processes.entry(of.id).or_insert_with(|| ProcessGpu {
            pid: of.pid.unwrap_or(of.own_pid),
            driver_pid,
            command: of.command.clone(),
            is_main: of.is_main,
            peak_bytes: None,
            devices: BTreeMap::new(),
            now: BTreeMap::new(),
        });
        process.command = of.command.clone();
        process.pid = of.pid.unwrap_or(process.pid);
        Some(process)
    }

    /// Utilisation by process.
    fn add_busy(&mut self, index: usize, at_ns: u64, sample: &DeviceSample, pids: PidResolver) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        let list = sample.process_busy.as_ref();
        let Some(list) = list.and_then(|list| usage.note(at_ns, Figure::ProcessUtilization, list)) else {
            return;
        };
        // Of several stretches of one process the largest counts for the sum at this time.
        let mut now: BTreeMap<u64, (bool, f64)> = BTreeMap::new();
        let mut of_run = Vec::new();
        for listed @ ProcessBusy { pid, busy, .. } in list {
            let us = if listed.is_from_start { 0 } else { busy.us };
            let from_ns = at_ns.saturating_sub(us.saturating_mul(1000));
            if let Some(process) = pids.resolve(*pid, [from_ns, at_ns]) {
                // Nothing is known of a stretch without length.
                let busy = listed.stretch(process.start_ns, at_ns, POLICY.start_slack_ns);
                let busy = busy.unwrap_or(Busy { us: 0, percent: 0.0 });
                let percent = busy.percent.clamp(0.0, 100.0);
                let largest = now.entry(process.id).or_insert((process.is_main, 0.0));
                largest.1 = largest.1.max(percent);
                usage.is_used |= percent > 0.0;
                of_run.push((process.clone(), *pid, busy));
            }
        }
        usage.has_process_samples |= !list.is_empty();
        usage.has_samples_of_run |= !of_run.is_empty();
        if let Some(until_us) =
            of_run.last().map(|(.., busy)| busy.us).or(list.last().map(|last| last.busy.us))
        {
            let sum = |which: fn(bool) -> bool| -> f64 {
                now.values().filter(|(is_main, _)| which(*is_main)).map(|(_, percent)| percent).sum()
            };
            let sums = [sum(|is_main| is_main), sum(|is_main| !is_main), sum(|_| true)];
            usage.now.process_busy = Latest::new(at_ns, until_us, sums);
        }
        for (process, pid, busy) in of_run {
            if let Some(process) = self.process(&process, pid) {
                process.devices.entry(sample.device.clone()).or_default().busy.add(busy);
            }
        }
    }

    /// Accounting entries hold the peak of processes that no sample saw.
    fn add_accounting(&mut self, index: usize, at_ns: u64, sample: &DeviceSample, pids: PidResolver) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        let list = sample.accounting.as_ref().and_then(|list| usage.note(at_ns, Figure::Accounting, list));
        for entry in list.into_iter().flatten() {
            let Some(process) = pids.table.resolve_accounting(entry.pid, entry.started_us) else { continue };
            // The entry of a running process is not final; it is read again.
            if let (Some(bytes), false) = (entry.peak_bytes, entry.is_running) {
                self.note_accounting(index, process, entry, bytes);
            }
        }
    }

    fn note_accounting(&mut self, index: usize, of: &PidEntry, entry: &AccountingEntry, bytes: u64) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        // The entry does not say which processes used the device at the same time. The process alone is a lower bound of
        // their sum.
        let mut alone = GroupMemory::default();
        alone.add(of.is_main, bytes);
        usage.is_used = true;
        usage.max = usage.max.max(&alone);
        usage.has_accounting = true;
        self.max = Some(self.max.unwrap_or_default().max(&alone));
        let device = usage.device.id.clone();
        let Some(process) = self.process(of, entry.pid) else { return };
        process.peak_bytes = process.peak_bytes.max(Some(bytes));
        let on = process.devices.entry(device).or_default();
        if on.peak_bytes.is_none_or(|peak| bytes > peak) {
            (on.peak_bytes, on.is_accounted) = (Some(bytes), true);
        }
        if let (None, Some(percent)) = (on.busy.max, entry.utilization_percent) {
            on.accounted_percent = Some(f64::from(percent).clamp(0.0, 100.0));
        }
    }

    /// A process ended: take over its last name, and count it if no sample was taken while it ran.
    pub(super) fn ended(&mut self, ended: &PidEntry) {
        if let Some(process) = self.processes.get_mut(&ended.id) {
            process.command = ended.command.clone();
            process.pid = ended.pid.unwrap_or(process.pid);
            process.now.clear();
        }
        let end_ns = ended.end_ns.unwrap_or(u64::MAX);
        let mut listed = self.devices.iter().filter_map(|of| of.was_listed_within(ended.start_ns, end_ns));
        let is_any_listed = self.devices.iter().any(|of| of.lists.count > 0);
        if is_any_listed && listed.all(|was_listed| was_listed) {
            return;
        }
        self.unsampled += 1;
        let lived_ns = end_ns.saturating_sub(ended.start_ns);
        if lived_ns > POLICY.shortest_gpu_use_ns.max(self.interval_ns.saturating_mul(2))
            && let Some(is_long) = self.has_unsampled_long.get_mut(usize::from(!ended.is_main))
        {
            *is_long = true;
        }
    }
}
