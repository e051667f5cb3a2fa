//! What the run used on GPUs, concluded from the readings of the GPU monitor and from the process tree.

pub(crate) mod pid_table;
mod policy;
#[cfg(test)]
mod tests;
pub(crate) mod usage;

use serde::{Deserialize, Serialize};

use usage::device::DeviceUsage;

pub(crate) use usage::GpuUsage;

use crate::model::gpu::{Batch, GpuObservation, GpuPids};
use crate::model::sorting::Sorting;
use crate::model::tree_sample::GpuSums;
use crate::run::tree::{ProcessSummary, Tree};
use pid_table::{PidEntry, PidResolver, PidTable};

/// The GPU part of the run state: the pid table and the usage. A restarted collector continues with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuState {
    /// There are GPU backends (readers of one driver each). Without one, no process is remembered.
    pub is_active: bool,
    /// The processes that drivers may name.
    table: PidTable,
    /// The figures.
    pub usage: GpuUsage,
}

impl GpuState {
    /// Notes that a collector begins, and whether it has backends. If it continues a run, nobody read the GPUs meanwhile.
    pub(crate) fn begin(&mut self, is_active: bool) {
        self.is_active = is_active;
        self.usage.devices.iter_mut().for_each(DeviceUsage::interrupt);
    }

    /// Copies the processes of the tree into the pid table. To be called before [`Self::pids`].
    pub(crate) fn remember_processes(&mut self, tree: &Tree) {
        if self.is_active {
            self.table.remember_processes(tree);
        }
    }

    /// The ids by which drivers may name processes of the run.
    pub fn pids(&self) -> GpuPids {
        if self.is_active { self.table.pids() } else { GpuPids::default() }
    }

    /// Takes in what the backends read, and which of them hang or have ended. First comes what /proc says of the pids that drivers name,
    /// by which the process lists are resolved. Processes that ended too long ago are forgotten last, so that the lists can still name
    /// them.
    pub(crate) fn apply(&mut self, observation: &GpuObservation) {
        self.table.epoch_us = observation.epoch_us;
        self.usage.interval_ns = observation.interval_ns;
        for (pid, facts) in &observation.pids {
            self.table.add_facts(*pid, facts);
        }
        let pids = PidResolver {
            table: &self.table,
            facts: &observation.pids,
            has_own_pid_ns: observation.has_own_pid_ns,
        };
        // The batches of one backend are in order of time. Sums over devices need all of them in that order.
        let mut batches: Vec<&Batch> = observation.batches.iter().collect();
        batches.order_by_key(|batch| batch.at_ns);
        for batch in batches {
            self.usage.add(batch, pids);
        }
        self.usage.unresponsive.clone_from(&observation.unresponsive);
        // Before processes are forgotten: with a long interval, one can have lived and ended since the last observation.
        self.usage.has_descendants |= self.table.entries.values().any(|process| !process.is_main);
        // A process counts as ended only when it is forgotten, since no later reading can name it then.
        for process in self.table.forget(observation.at_ns) {
            self.usage.ended(&process);
        }
        if let Some(end) = &observation.end {
            self.usage.backends.clone_from(end);
            self.usage.end_ns = Some(observation.at_ns);
        }
        self.is_active = observation.is_active;
    }

    /// The figures of the sample at `at_ns`, see [`GpuUsage::now`].
    pub(crate) fn now(&self, at_ns: u64) -> GpuSums {
        let are_devices_sought = self.is_active && !self.usage.is_listed;
        GpuSums { are_devices_sought, ..self.usage.now(at_ns) }
    }

    /// Takes in a finalized process: its figures are final. Returns its GPU memory peak, bytes; 0: no driver reported its memory.
    /// `None`: no driver named the process, or there is no driver.
    pub(crate) fn finalized(&mut self, process: &ProcessSummary) -> Option<u64> {
        if !self.is_active {
            return None;
        }
        self.table.finalized(process);
        self.usage.processes.by_id.get(&process.ids.id.0).map(|used| used.peak_bytes.unwrap_or(0))
    }

    /// Ends the run, after the last observation: counts each process that is not forgotten as ended, running ones, too.
    pub(crate) fn finish(&mut self, tree: &Tree) {
        self.remember_processes(tree);
        if self.is_active {
            // A process can have ended without being finalized, as where its reaper writes no record. The table lacks it if it lived
            // between two observations, so it is taken from the tree.
            let is_unknown = |entry: &PidEntry| !self.table.entries.contains_key(&entry.id);
            let unknown: Vec<PidEntry> = tree.ended().map(PidEntry::of).filter(is_unknown).collect();
            for process in self.table.entries.values().chain(&unknown) {
                self.usage.has_descendants |= !process.is_main;
                self.usage.ended(process);
            }
        }
    }
}
