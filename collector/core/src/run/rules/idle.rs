//! When a run was last active: when it used CPU time, did block I/O, or worked on a GPU.

use serde::{Deserialize, Serialize};

use crate::model::tree_sample::{IoBytes, TreeSample};

/// CPU time and block I/O are compared over stretches of at least this length, nanoseconds.
const SHORTEST_STRETCH_NS: u64 = 1_000_000_000;
/// A tree that uses less than this part of one core does nothing: it polls, or waits with a timer.
const BUSY_PART_OF_CORE: f64 = 0.01;

/// If a stretch is longer than the shortest by more than this many sampling intervals, samples are missing in it.
const LONGEST_GAP_INTERVALS: u64 = 20;

/// When the run was last active. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Idle {
    /// When the open stretch began, over which CPU time and block I/O are compared.
    stretch_start_ns: u64,
    /// CPU time of the run by then, nanoseconds.
    cpu_ns: u64,
    /// Block I/O of the run by then; `None`: not known.
    io: Option<IoBytes>,
    /// The last activity of any kind.
    pub active_ns: u64,
    /// The last activity on a GPU.
    pub gpu_active_ns: u64,
}

impl Idle {
    /// Notes whether a sample shows activity. `interval_ns`: the time between two samples. `are_all_stopped`: all live processes are
    /// stopped (Ctrl-Z). A GPU of unknown utilisation counts as active. Block I/O that the kernel does not count is taken for none.
    /// Time in which no samples were taken, or the whole run was stopped, counts as active.
    pub(super) fn note_activity(&mut self, sample: &TreeSample, interval_ns: u64, are_all_stopped: bool) {
        let (now_ns, cpu_ns, gpu) = (sample.at_ns, sample.cpu.combined.time_ns, &sample.gpu);
        let io = sample.io.map(|io| io.bytes);
        let stretch_ns = now_ns.saturating_sub(self.stretch_start_ns);
        // No samples were taken for a while: this is the first one, or the collector was stopped or has just replaced a killed one.
        let is_unsampled = stretch_ns > SHORTEST_STRETCH_NS + LONGEST_GAP_INTERVALS * interval_ns;
        if is_unsampled || are_all_stopped {
            *self = Self { stretch_start_ns: now_ns, cpu_ns, io, active_ns: now_ns, gpu_active_ns: now_ns };
            return;
        }
        // GPUs are looked at in each sample, as its GPU figures cover only the time since the sample before.
        let is_gpu_idle = gpu.is_idle() == Some(true);
        if !is_gpu_idle {
            self.gpu_active_ns = now_ns;
        }
        // Without a GPU the utilisation is unknown, too, but that is no activity.
        if gpu.expected > 0 && !is_gpu_idle {
            self.active_ns = now_ns;
        }
        if stretch_ns < SHORTEST_STRETCH_NS {
            return;
        }
        let used_ns = cpu_ns.saturating_sub(self.cpu_ns);
        if used_ns as f64 >= stretch_ns as f64 * BUSY_PART_OF_CORE || io != self.io {
            self.active_ns = now_ns;
        }
        *self = Self { stretch_start_ns: now_ns, cpu_ns, io, ..*self };
    }
}
