//! How the run used the time of its GPUs.

use serde::{Deserialize, Serialize};

use super::bounds::ReadyTime;
use crate::model::report::TimeState;

/// CPU times that differ by at most one part in so many count as equal. Clocks and the kernel's counts are not read at one moment.
const TOLERANCE: u64 = 10;

/// The GPUs on which the run holds memory, at a sample.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct GpuMoment {
    /// The utilisation of the busiest of them, from 0 to 1: the largest that was read in the sample.
    pub busy: f64,
    /// CPU time of the processes that hold that memory, nanoseconds.
    pub owners_cpu_ns: u64,
}

/// How the run used the time of its GPUs, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GpuSums {
    /// It held GPU memory, and it is known how busy these GPUs were.
    pub held_ns: u64,
    /// One of them was busy.
    pub busy_ns: u64,
    /// They were idle, and the CPU computed.
    pub idle_while_computing_ns: u64,
}

/// The time of a stretch that was spent on a GPU, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OnGpu {
    /// A GPU was busy.
    pub busy_ns: u64,
    /// Meanwhile a thread waited for it in a loop.
    pub spun_ns: u64,
}

impl GpuSums {
    /// Adds a stretch of the run. Returns how much of it was spent on a GPU.
    ///
    /// CUDA waits in a loop for its GPU, unless told otherwise. To the kernel that is computing. Computing counts as such a wait only
    /// while one core computes, for a process that holds memory of a busy GPU.
    pub(super) fn add(&mut self, gpu: GpuMoment, time: &ReadyTime) -> OnGpu {
        let ReadyTime { length_ns, cpu_ns, computing_ns, .. } = *time;
        let busy_ns = (length_ns as f64 * gpu.busy.clamp(0.0, 1.0)) as u64;
        self.held_ns += length_ns;
        self.busy_ns += busy_ns;
        // Within a stretch nothing tells whether the CPU computed while the GPU was idle or while it was busy.
        let idle_part = 1.0 - busy_ns as f64 / length_ns.max(1) as f64;
        self.idle_while_computing_ns += (computing_ns as f64 * idle_part) as u64;
        let is_of_one_core = cpu_ns <= length_ns + length_ns / TOLERANCE;
        let is_of_owners = gpu.owners_cpu_ns >= cpu_ns - cpu_ns / TOLERANCE;
        let spins = is_of_one_core && is_of_owners;
        OnGpu { busy_ns, spun_ns: if spins { computing_ns.min(busy_ns) } else { 0 } }
    }
}

/// Whether a driver's library may wait for a GPU in this state. To the kernel it waits in poll(2), on a lock, or for a time.
pub(super) fn can_wait_in(state: TimeState) -> bool {
    matches!(state, TimeState::Events | TimeState::Lock | TimeState::Sleeping | TimeState::Unknown)
}
