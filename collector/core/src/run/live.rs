//! The largest live processes of the last sample, for programs that watch the run. They are chosen by their sizes alone, which
//! is cheap for thousands of processes. What else is known of those chosen is looked up only when it is asked for.

use std::cmp::Reverse;

use gpu_track_abi::table::{PROCESS_CAPACITY, ProcessEntry, Text};

use super::gpu::GpuUsage;
use super::sampling::{Held, Sample};
use super::tree::{Parent, Process, ProcessId, Tree};
use crate::model::live::LiveProcesses;
use crate::model::sorting::Sorting;

/// The largest live processes of a sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct LargestLive {
    /// Time of the sample, CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// Each with its RSS and huge pages, bytes; the largest first.
    chosen: Vec<(ProcessId, u64)>,
    /// How many live processes were not chosen.
    others: u64,
}

impl LargestLive {
    /// Chooses the largest [`PROCESS_CAPACITY`] processes of a sample. Of equal ones the lower id comes first, so that a replay
    /// chooses the same.
    pub(super) fn from_sample(sample: &Sample) -> Self {
        let mut chosen: Vec<(ProcessId, u64)> =
            sample.holders.iter().map(|held: &Held| (held.id, held.rss_bytes)).collect();
        let key = |(id, bytes): &(ProcessId, u64)| (Reverse(*bytes), *id);
        let others = chosen.len().saturating_sub(PROCESS_CAPACITY);
        if others > 0 {
            chosen.select_nth_unstable_by_key(PROCESS_CAPACITY, key);
            chosen.truncate(PROCESS_CAPACITY);
        }
        chosen.order_by_key(key);
        Self { at_ns: sample.at_ns, chosen, others: others as u64 }
    }

    /// What is known of the chosen processes now, for programs that watch the run. Those that ended since the sample are left out.
    pub(super) fn processes(&self, tree: &Tree, gpu: &GpuUsage) -> LiveProcesses {
        let are_gpus_known = gpu.knows_process_memory(self.at_ns);
        let live = |(id, rss_bytes): &(ProcessId, u64)| {
            let process = tree.get(*id).filter(|process| process.is_alive())?;
            Some(ProcessEntry {
                pid: process.ids.host_pid.map(u64::from),
                parent_pid: parent_pid(tree, process).map(u64::from),
                start_ns: Some(process.lifetime.likely_start_ns()),
                command: Text::new(&process.name.command),
                rss_bytes: Some(*rss_bytes),
                cpu_ns: process.observed.cpu_ns,
                gpu_bytes: are_gpus_known.then(|| gpu.processes.held_bytes(id.0)).flatten(),
            })
        };
        let listed = self.chosen.iter().filter_map(live).collect();
        LiveProcesses { at_ns: self.at_ns, listed, others: self.others }
    }
}

/// The pid of a process's parent in the collector's pid namespace. `None`: it is not known.
fn parent_pid(tree: &Tree, process: &Process) -> Option<u32> {
    match process.ancestry.parent {
        Parent::Launcher => Some(tree.context().launcher_pid),
        Parent::Known(_) => tree.parent_host_pid(process),
        Parent::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree::Contribution;

    #[test]
    fn sample_of_thousands_lists_the_largest_and_counts_the_rest() {
        let held = |id: u64| Held {
            id: ProcessId(id),
            rss_bytes: id * 7919 % 5000 / 2,
            contribution: Contribution::default(),
            steady_bytes: None,
            unread_bytes: 0,
            cpu_ns: 0,
        };
        let sample = Sample { at_ns: 9, holders: (0..5000).map(held).collect(), ..Sample::default() };
        let largest = LargestLive::from_sample(&sample);
        assert_eq!((largest.at_ns, largest.chosen.len(), largest.others), (9, 256, 5000 - 256));
        let mut expected: Vec<_> = sample.holders.iter().map(|held| (held.id, held.rss_bytes)).collect();
        expected.sort_by_key(|(id, bytes)| (Reverse(*bytes), *id));
        assert_eq!(largest.chosen, expected[..256]);
        let few = Sample { holders: (0..3).map(held).collect(), ..Sample::default() };
        assert_eq!(
            (LargestLive::from_sample(&few).chosen.len(), LargestLive::from_sample(&few).others),
            (3, 0)
        );
    }
}
