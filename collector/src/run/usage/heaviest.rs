//! The heaviest single processes: by CPU time, by peak RSS and by GPU memory.

use std::cmp::Reverse;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::model::report::ProcessUsage;
use crate::run::tree::{ProcessId, ProcessSummary, Quality};

/// Three lists of as many processes each.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Heaviest {
    most: usize,
    by_cpu: Vec<ProcessSummary>,
    by_peak: Vec<ProcessSummary>,
    /// With the known GPU memory peak, bytes.
    on_gpus: Vec<(u64, ProcessSummary)>,
}

impl Heaviest {
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    pub(super) fn add(&mut self, process: &ProcessSummary) {
        insert(&mut self.by_peak, process, by_peak, self.most);
        insert(&mut self.by_cpu, process, by_cpu, self.most);
    }

    pub(super) fn add_on_gpus(&mut self, process: &ProcessSummary, peak: u64) {
        let at = self.on_gpus.partition_point(|(other, _)| *other >= peak);
        if at < self.most {
            self.on_gpus.insert(at, (peak, process.clone()));
            self.on_gpus.truncate(self.most);
        }
    }

    /// Each process once.
    pub(super) fn list(&self) -> Vec<(ProcessId, ProcessUsage)> {
        let mut list: Vec<(ProcessId, ProcessUsage)> = Vec::new();
        let mut listed = HashSet::new();
        let on_gpus = self.on_gpus.iter().map(|(_, process)| process);
        for process in self.by_cpu.iter().chain(&self.by_peak).chain(on_gpus) {
            if listed.insert(process.ids.id) {
                list.push((process.ids.id, usage_of(process)));
            }
        }
        list
    }
}

fn usage_of(process: &ProcessSummary) -> ProcessUsage {
    ProcessUsage {
        pid: process.ids.pid(),
        ppid: process.parent_pid,
        command: process.name.command.to_string(),
        args: process.name.args.clone(),
        cpu_s: (process.own.quality != Quality::Unknown).then(|| by_cpu(process) / 1e6),
        cpu_quality: process.own.quality,
        peak_rss_bytes: process.memory.peak_rss_bytes,
        peak_quality: process.memory.peak_quality,
        wall_s: process.wall_ns as f64 / 1e9,
        exit: process.exit,
        gpu: None,
    }
}

fn by_cpu(process: &ProcessSummary) -> f64 {
    if process.own.quality == Quality::Unknown { 0.0 } else { process.own.cpu_us() as f64 }
}

fn by_peak(process: &ProcessSummary) -> f64 {
    process.memory.peak_rss_bytes.unwrap_or(0) as f64
}

fn insert(
    list: &mut Vec<ProcessSummary>,
    process: &ProcessSummary,
    key: fn(&ProcessSummary) -> f64,
    most: usize,
) {
    let value = key(process);
    if list.len() >= most && list.last().is_some_and(|last| value <= key(last)) {
        return;
    }
    let at = list.partition_point(|other| Reverse(ordered(key(other))) <= Reverse(ordered(value)));
    list.insert(at, process.clone());
    list.truncate(most);
}

/// Order for values that are never negative or NaN.
fn ordered(value: f64) -> u64 {
    value.to_bits()
}
