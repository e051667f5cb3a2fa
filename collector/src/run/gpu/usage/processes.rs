//! The processes of the run that used a GPU.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::meters::BusyMeter;
use crate::run::gpu::pid_table::PidEntry;
use crate::run::gpu::policy::POLICY;

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
    /// Its memory there at the last reading, bytes.
    #[serde(skip)]
    now_bytes: u64,
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
}

impl ProcessGpu {
    /// The process on a device.
    pub(super) fn on(&mut self, device: &str) -> &mut OnDevice {
        self.devices.entry(device.to_owned()).or_default()
    }

    /// The driver lists it on a device.
    pub(super) fn add_memory(&mut self, device: &str, bytes: Option<u64>) {
        let on = self.on(device);
        let Some(bytes) = bytes else { return };
        // The driver may list it once for each of several thread ids.
        on.now_bytes = on.now_bytes.saturating_add(bytes);
        on.peak_bytes = on.peak_bytes.max(Some(on.now_bytes));
        let sum = self.devices.values().map(|on| on.now_bytes).sum();
        self.peak_bytes = self.peak_bytes.max(Some(sum));
    }

    /// The driver has an accounting entry of it, with its peak on a device.
    pub(super) fn add_accounting(&mut self, device: &str, bytes: u64, percent: Option<u32>) {
        self.peak_bytes = self.peak_bytes.max(Some(bytes));
        let on = self.on(device);
        if on.peak_bytes.is_none_or(|peak| bytes > peak) {
            (on.peak_bytes, on.is_accounted) = (Some(bytes), true);
        }
        if let (None, Some(percent)) = (on.busy.max, percent) {
            on.accounted_percent = Some(f64::from(percent).clamp(0.0, 100.0));
        }
    }

    /// Take over its name and pid, which an exec and a later look can change.
    fn identify(&mut self, of: &PidEntry) {
        self.command = of.command.clone();
        self.pid = of.pid.unwrap_or(self.pid);
    }
}

/// All of them, up to a limit. The sums count the others, too.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Processes {
    /// By their id in the run.
    pub by_id: BTreeMap<u64, ProcessGpu>,
}

impl Processes {
    /// A process that the driver names; `None`: there are too many.
    pub(super) fn named(&mut self, of: &PidEntry, driver_pid: u32) -> Option<&mut ProcessGpu> {
        if self.by_id.len() >= POLICY.most_processes && !self.by_id.contains_key(&of.id) {
            return None;
        }
        let process = self.by_id.entry(of.id).or_insert_with(|| ProcessGpu {
            pid: of.own_pid,
            driver_pid,
            command: of.command.clone(),
            is_main: of.is_main,
            peak_bytes: None,
            devices: BTreeMap::new(),
        });
        process.identify(of);
        Some(process)
    }

    /// The lists of this device were read anew.
    pub(super) fn clear_memory(&mut self, device: &str) {
        for on in self.by_id.values_mut().filter_map(|process| process.devices.get_mut(device)) {
            on.now_bytes = 0;
        }
    }

    /// A process ended.
    pub(super) fn ended(&mut self, ended: &PidEntry) {
        if let Some(process) = self.by_id.get_mut(&ended.id) {
            process.identify(ended);
            process.devices.values_mut().for_each(|on| on.now_bytes = 0);
        }
    }
}
