//! The heaviest single processes: by CPU time, by peak RSS and by GPU memory.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::run::tree::ProcessSummary;

/// Three lists of processes, each with the largest first.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Heaviest {
    /// Maximum number of processes in each list.
    most: usize,
    /// By CPU time, with that, microseconds.
    by_cpu: Vec<(u64, ProcessSummary)>,
    /// By peak RSS, with that, bytes.
    by_peak: Vec<(u64, ProcessSummary)>,
    /// By GPU memory peak where that is known, with that, bytes.
    on_gpus: Vec<(u64, ProcessSummary)>,
}

impl Heaviest {
    /// Makes empty lists, which keep at most this many processes each.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Keeps a process if it is among the largest by peak RSS, or by CPU time.
    pub(super) fn add(&mut self, process: &ProcessSummary) {
        insert(&mut self.by_peak, process.memory.peak_rss_bytes.unwrap_or(0), process, self.most);
        insert(&mut self.by_cpu, process.known_cpu_us().unwrap_or(0), process, self.most);
    }

    /// Keeps a process that used GPUs if its GPU memory peak is among the largest. Such a process may have used too little CPU time
    /// and RAM to be in the other lists.
    pub(crate) fn add_on_gpus(&mut self, process: &ProcessSummary, peak_bytes: u64) {
        insert(&mut self.on_gpus, peak_bytes, process, self.most);
    }

    /// Lists each process once: most CPU time first, then peak RSS, then GPU memory.
    pub(crate) fn list(&self) -> Vec<&ProcessSummary> {
        let mut listed = HashSet::new();
        let all = self.by_cpu.iter().chain(&self.by_peak).chain(&self.on_gpus).map(|(_, process)| process);
        all.filter(|process| listed.insert(process.ids.id)).collect()
    }
}

/// Inserts a process of this size into a list of at most `most`, the largest first. Of equal ones the earlier comes first.
fn insert(list: &mut Vec<(u64, ProcessSummary)>, size: u64, process: &ProcessSummary, most: usize) {
    let at = list.partition_point(|(other, _)| *other >= size);
    if at < most {
        list.insert(at, (size, process.clone()));
        list.truncate(most);
    }
}
