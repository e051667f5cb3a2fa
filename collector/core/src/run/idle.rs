//! Since when nothing happens in a run: no CPU time, no block I/O, no work on GPUs.

use serde::{Deserialize, Serialize};

use crate::model::tree_sample::{GpuSums, IoBytes};

/// Activity is looked for in stretches of at least this length, nanoseconds.
const SHORTEST_STRETCH_NS: u64 = 1_000_000_000;
/// A tree that uses less than this part of one core does nothing: it polls, or waits with a timer.
const BUSY_PART_OF_CORE: f64 = 0.01;

/// After more than this many intervals without a sample, nobody has looked.
const LONGEST_GAP: u64 = 20;

/// What activity is concluded from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activity<'a> {
    /// CLOCK_MONOTONIC nanoseconds.
    pub now_ns: u64,
    /// The time between two samples, nanoseconds.
    pub interval_ns: u64,
    /// CPU time since the start, nanoseconds.
    pub cpu_ns: u64,
    /// Block I/O; `None`: not known.
    pub io: Option<IoBytes>,
    /// The GPUs.
    pub gpu: &'a GpuSums,
    /// All live processes are stopped (Ctrl-Z).
    pub are_all_stopped: bool,
}

/// Since when nothing happens.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Idle {
    /// When activity was last looked for, and what had been used by then.
    looked_ns: u64,
    cpu_ns: u64,
    io: Option<IoBytes>,
    /// CLOCK_MONOTONIC nanoseconds of the last activity of any kind, and on a GPU.
    pub active_ns: u64,
    pub gpu_active_ns: u64,
}

impl Idle {
    /// Looks for activity since the last time. A GPU whose use is not known may be at work. Block I/O that the kernel does not count is
    /// none.
    pub(super) fn look(&mut self, activity: &Activity) {
        let Activity { now_ns, interval_ns, cpu_ns, io, gpu, are_all_stopped } = *activity;
        let stretch_ns = now_ns.saturating_sub(self.looked_ns);
        // Nobody has looked for a while: this program was stopped, too, or a successor has just begun. Or the user has stopped the run.
        if stretch_ns > SHORTEST_STRETCH_NS + LONGEST_GAP * interval_ns || are_all_stopped {
            *self = Self { looked_ns: now_ns, cpu_ns, io, active_ns: now_ns, gpu_active_ns: now_ns };
            return;
        }
        // A GPU that was busy between two readings is seen at each sample only.
        let is_gpu_idle = gpu.busy_percent.is_some_and(|percent| percent <= 0.0);
        if !is_gpu_idle {
            self.gpu_active_ns = now_ns;
        }
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
        *self = Self { looked_ns: now_ns, cpu_ns, io, ..*self };
    }
}
