//! GPU usage over the run: of each device, of each process, and of main, descendants and all together. No driver is
//! called here; what comes in are samples with times, so that all of it can be tested with made-up ones.

pub mod device;
pub mod meters;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pid_table::{Person, Roster};
use crate::model::gpu::config::GpuConfig;
use crate::model::gpu::select::Seen;
use crate::model::gpu::{
    Accounted, Batch, Device, DeviceSample, Figure, Missing, ProcessBusy, ProcessMemory,
};
use device::DeviceUsage;
use meters::{BusyMeter, Latest};

/// Most processes that are told apart.
const MOST_PROCESSES: usize = 10_000;

/// Memory of main and descendants, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The command's first process.
    pub main: u64,
    /// All others.
    pub descendants: u64,
    /// Both; over time not their sum, since the two peak at different times.
    pub combined: u64,
}

impl Held {
    fn add(&mut self, is_main: bool, bytes: u64) {
        let part = if is_main { &mut self.main } else { &mut self.descendants };
        *part = part.saturating_add(bytes);
        self.combined = self.combined.saturating_add(bytes);
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            main: self.main.saturating_add(other.main),
            descendants: self.descendants.saturating_add(other.descendants),
            combined: self.combined.saturating_add(other.combined),
        }
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            main: self.main.max(other.main),
            descendants: self.descendants.max(other.descendants),
            combined: self.combined.max(other.combined),
        }
    }
}

/// A process on one device.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OnDevice {
    /// Its largest memory there, bytes; `None`: never told.
    pub peak_bytes: Option<u64>,
    /// Its utilisation there.
    pub busy: BusyMeter,
    /// The peak is from the driver's account, which saw what no sample did.
    pub is_accounted: bool,
    /// Its mean utilisation by the driver's account, percent, where no sample told any.
    pub accounted_percent: Option<f64>,
}

/// A process that used a GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessGpu {
    /// Its pid as we see it.
    pub pid: u32,
    /// Its pid as the driver has it.
    pub driver_pid: u32,
    /// Its command name.
    pub command: Arc<str>,
    /// The command's first process.
    pub is_main: bool,
    /// Largest sum over the devices at one time, bytes; `None`: never told.
    pub peak_bytes: Option<u64>,
    /// By device id.
    pub devices: BTreeMap<String, OnDevice>,
    /// Now, by device id.
    #[serde(skip)]
    now: BTreeMap<String, u64>,
}

/// All of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuUsage {
    /// The devices that count, in the order of the drivers.
    pub devices: Vec<DeviceUsage>,
    /// Ids of all whole devices of the machine, those that don't count included.
    pub machine: BTreeSet<String>,
    /// The processes of the run that used one, by their id in the run.
    pub processes: BTreeMap<u64, ProcessGpu>,
    /// Backends that could not give anything, and why.
    pub failed: Vec<(String, Missing)>,
    /// Why devices that never said which they are could not be read.
    pub unreadable: Vec<Missing>,
    /// What backends had to say.
    pub notes: Vec<String>,
    /// Backends that do not come back from the driver, and since when, CLOCK_MONOTONIC nanoseconds.
    pub silent: Vec<(String, u64)>,
    /// Which devices the command may see depends on how CUDA counts them.
    pub is_order_unsure: bool,
    /// Largest memory in use by anybody on all devices at one time, bytes.
    pub max_used: Option<u64>,
    /// Largest memory of our processes on all devices at one time.
    pub max: Option<Held>,
    /// Largest sum of the devices' utilisation at one time, percent.
    pub max_busy: Option<f64>,
    /// Largest sum of our processes' utilisation at one time (main, descendants, combined), percent.
    pub max_process_busy: Option<[f64; 3]>,
    /// A process of ours (main, a descendant) had memory that the driver doesn't tell.
    pub untold: [bool; 2],
    /// Processes of the run that no sample fell into.
    pub unsampled: u64,
    /// When samples were taken lately, CLOCK_MONOTONIC nanoseconds.
    #[serde(skip)]
    times: Vec<u64>,
}

/// What the collector knows of pids, for attributing what a driver lists.
#[derive(Clone, Copy)]
pub struct Whose<'a> {
    /// The processes of the run.
    pub roster: &'a Roster,
    /// Whether our pid namespace has a process of that pid that could use a GPU.
    pub is_taken: &'a dyn Fn(u32) -> bool,
    /// Whether a pid that we don't know can be a process outside of our pid namespace.
    pub is_foreign: &'a dyn Fn(u32) -> bool,
}

impl Whose<'_> {
    /// Whom the driver means.
    fn find(&self, pid: u32, [from_ns, to_ns]: [u64; 2]) -> Option<&Person> {
        let person = self.roster.find(pid, from_ns, to_ns, self.is_taken)?;
        (!self.roster.is_other(person)).then_some(person)
    }
}

impl GpuUsage {
    /// Take in what a backend read.
    pub fn add(&mut self, config: &GpuConfig, batch: &Batch, whose: Whose) {
        if let Some(all) = &batch.all {
            self.machine.extend(all.iter().filter(|device| device.parent.is_none()).map(|d| d.id.clone()));
            let seen = Seen::new(&config.visible, all);
            self.is_order_unsure |= seen.is_order_unsure;
            for device in batch.devices.iter().flatten() {
                self.introduce(device, seen.sees(&device.id));
            }
        }
        self.times.push(batch.at_ns);
        for sample in &batch.samples {
            let Some(index) = self.devices.iter().position(|usage| usage.device.id == sample.device) else {
                continue;
            };
            if let Some(usage) = self.devices.get_mut(index) {
                usage.add(batch.at_ns, sample);
            }
            self.add_memory(index, batch.at_ns, sample, whose);
            self.add_busy(index, batch.at_ns, sample, whose);
            self.add_accounts(index, sample, whose);
        }
        self.add_up(batch.at_ns);
    }

    fn introduce(&mut self, device: &Device, is_visible: Option<bool>) {
        let known = self.devices.iter_mut().find(|usage| usage.device.id == device.id);
        match known {
            Some(usage) => (usage.device, usage.is_visible) = (device.clone(), is_visible),
            None => self.devices.push(DeviceUsage::new(device.clone(), is_visible, false)),
        }
        let ids: BTreeSet<String> = self.devices.iter().map(|usage| usage.device.id.clone()).collect();
        for usage in &mut self.devices {
            usage.is_part = usage.device.parent.as_ref().is_some_and(|parent| ids.contains(parent));
        }
    }

    /// The sums over the devices as they are now, and the maxima of those.
    fn add_up(&mut self, at_ns: u64) {
        let whole = || self.devices.iter().filter(|usage| !usage.is_part);
        if whole().any(|usage| usage.used_now.is_some()) {
            let used: u64 = whole().filter_map(|usage| usage.used_now).sum();
            self.max_used = self.max_used.max(Some(used));
        }
        let held = self.devices.iter().filter_map(|usage| usage.held_now);
        if let Some(now) = held.reduce(|a, b| a.plus(&b)) {
            self.max = Some(self.max.unwrap_or_default().max(&now));
        }
        if self.devices.iter().any(|usage| usage.busy.max.is_some()) {
            let busy: f64 = self.devices.iter().map(|usage| usage.busy_now.at(at_ns)).sum();
            self.max_busy = Some(self.max_busy.unwrap_or(0.0).max(busy));
        }
        if self.devices.iter().any(|usage| usage.knows(Figure::ProcessUtilization)) {
            let max = self.max_process_busy.get_or_insert([0.0; 3]);
            for (group, max) in max.iter_mut().enumerate() {
                let of_device = |usage: &DeviceUsage| usage.process_busy_now.at(at_ns).get(group).copied();
                *max = max.max(self.devices.iter().filter_map(of_device).sum());
            }
        }
    }

    fn add_memory(&mut self, index: usize, at_ns: u64, sample: &DeviceSample, whose: Whose) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        let at_ns = if sample.listed_ns == 0 { at_ns } else { sample.listed_ns };
        usage.held_now = None;
        for process in self.processes.values_mut() {
            process.now.remove(&sample.device);
        }
        let Some(list) = sample.processes.as_ref().and_then(|list| usage.note(Figure::ProcessMemory, list))
        else {
            return;
        };
        let mut held = Held::default();
        let mut ours = Vec::new();
        for entry in list {
            let bytes = entry.bytes.as_ref().ok().copied();
            let since = usage.listed_since(at_ns, entry.pid, bytes);
            match whose.find(entry.pid, [at_ns, at_ns]) {
                Some(person) if person.was_there_at(since) => {
                    usage.note_use(at_ns);
                    held.add(person.is_main, bytes.unwrap_or(0));
                    ours.push((person.clone(), entry));
                }
                Some(_) => {}
                None => usage.has_foreign |= (whose.is_foreign)(entry.pid),
            }
        }
        usage.keep_listed(|pid| list.iter().any(|entry| entry.pid == pid));
        if usage.has_foreign && !usage.was_ever_ours() {
            // Any of those may have been ours.
            usage.known.retain(|figure| *figure != Figure::ProcessMemory);
            usage.missing.insert(Figure::ProcessMemory, Missing::ForeignPids);
        } else {
            usage.held_now = Some(held);
            usage.max = usage.max.max(&held);
        }
        for (person, entry) in ours {
            self.note_memory(&sample.device, &person, entry);
        }
    }

    fn note_memory(&mut self, device: &str, person: &Person, entry: &ProcessMemory) {
        match &entry.bytes {
            Ok(bytes) => {
                let Some(process) = self.process(person, entry.pid) else { return };
                // It may be there by several of its threads' ids.
                let here = process.now.entry(device.to_owned()).or_default();
                *here = here.saturating_add(*bytes);
                let here = *here;
                let sum = process.now.values().sum();
                process.peak_bytes = process.peak_bytes.max(Some(sum));
                let on = process.devices.entry(device.to_owned()).or_default();
                on.peak_bytes = on.peak_bytes.max(Some(here));
            }
            Err(_) => {
                if let Some(untold) = self.untold.get_mut(usize::from(!person.is_main)) {
                    *untold = true;
                }
                if let Some(usage) = self.devices.iter_mut().find(|usage| usage.device.id == device) {
                    usage.has_untold = true;
                }
                if let Some(process) = self.process(person, entry.pid) {
                    process.devices.entry(device.to_owned()).or_default();
                }
            }
        }
    }

    fn process(&mut self, person: &Person, driver_pid: u32) -> Option<&mut ProcessGpu> {
        if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&person.id) {
            return None;
        }
        let process = self.processes.entry(person.id).or_insert_with(|| ProcessGpu {
            pid: person.pid.unwrap_or(person.own_pid),
            driver_pid,
            command: person.command.clone(),
            is_main: person.is_main,
            peak_bytes: None,
            devices: BTreeMap::new(),
            now: BTreeMap::new(),
        });
        process.command = person.command.clone();
        process.pid = person.pid.unwrap_or(process.pid);
        Some(process)
    }

    /// Utilisation by process.
    fn add_busy(&mut self, index: usize, at_ns: u64, sample: &DeviceSample, whose: Whose) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        let list = sample.process_busy.as_ref().and_then(|list| usage.note(Figure::ProcessUtilization, list));
        let Some(list) = list else { return };
        // Of several stretches of one process the largest counts for the sum at this time.
        let mut now: BTreeMap<u64, (bool, f64)> = BTreeMap::new();
        let mut seen = Vec::new();
        for ProcessBusy { pid, busy } in list {
            let from_ns = at_ns.saturating_sub(busy.us.saturating_mul(1000));
            if let Some(person) = whose.find(*pid, [from_ns, at_ns]) {
                let percent = busy.percent.clamp(0.0, 100.0);
                let largest = now.entry(person.id).or_insert((person.is_main, 0.0));
                largest.1 = largest.1.max(percent);
                usage.is_used |= percent > 0.0;
                seen.push((person.clone(), *pid, *busy));
            }
        }
        usage.has_process_samples |= !list.is_empty();
        usage.has_samples_of_ours |= !seen.is_empty();
        if let Some(last) = list.last() {
            let sum = |which: fn(bool) -> bool| -> f64 {
                now.values().filter(|(is_main, _)| which(*is_main)).map(|(_, percent)| percent).sum()
            };
            let sums = [sum(|is_main| is_main), sum(|is_main| !is_main), sum(|_| true)];
            usage.process_busy_now = Latest::new(at_ns, last.busy.us, sums);
        }
        for (person, pid, busy) in seen {
            if let Some(process) = self.process(&person, pid) {
                process.devices.entry(sample.device.clone()).or_default().busy.add(busy);
            }
        }
    }

    /// The driver's account knows the peak of processes that no sample saw.
    fn add_accounts(&mut self, index: usize, sample: &DeviceSample, whose: Whose) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        let list = sample.accounted.as_ref().and_then(|list| usage.note(Figure::Accounting, list));
        for account in list.into_iter().flatten() {
            let Some(person) = whose.roster.find_account(account.pid, account.started_us) else { continue };
            // What is told of one that still runs is not final; it is asked again.
            if let (Some(bytes), false) = (account.peak_bytes, account.is_running) {
                self.note_account(index, person, account, bytes);
            }
        }
    }

    fn note_account(&mut self, index: usize, person: &Person, account: &Accounted, bytes: u64) {
        let Some(usage) = self.devices.get_mut(index) else { return };
        // Whom it shared the device with is not told, so it counts alone: a lower bound of the sum.
        let mut alone = Held::default();
        alone.add(person.is_main, bytes);
        usage.is_used = true;
        usage.max = usage.max.max(&alone);
        usage.has_accounts = true;
        self.max = Some(self.max.unwrap_or_default().max(&alone));
        let device = usage.device.id.clone();
        let Some(process) = self.process(person, account.pid) else { return };
        process.peak_bytes = process.peak_bytes.max(Some(bytes));
        let on = process.devices.entry(device).or_default();
        if on.peak_bytes.is_none_or(|peak| bytes > peak) {
            (on.peak_bytes, on.is_accounted) = (Some(bytes), true);
        }
        if let (None, Some(percent)) = (on.busy.max, account.utilization_percent) {
            on.accounted_percent = Some(f64::from(percent).clamp(0.0, 100.0));
        }
    }

    /// A process is over: its last name counts, and whether it was ever looked at.
    pub fn ended(&mut self, person: &Person) {
        if let Some(process) = self.processes.get_mut(&person.id) {
            process.command = person.command.clone();
            process.pid = person.pid.unwrap_or(process.pid);
            process.now.clear();
        }
        let end = person.end_ns.unwrap_or(u64::MAX);
        let is_seen = self.times.iter().any(|at| (person.start_ns..=end).contains(at));
        self.unsampled += u64::from(!is_seen);
    }

    /// Forget when samples were taken before this.
    pub fn forget_times(&mut self, before_ns: u64) {
        self.times.retain(|at| *at >= before_ns);
    }
}
