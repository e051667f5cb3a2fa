//! When a change of memory is a step, and how often steps are told. Each value has its reason.

/// Thresholds of steps and jumps.
pub(crate) struct StepPolicy {
    /// A smaller change of a process's memory on a GPU is no step, bytes. A CUDA context alone takes hundreds of MB, and PyTorch's
    /// allocator asks for blocks of 20 MiB.
    pub least_bytes: u64,
    /// A change by a smaller part of the device's memory, percent, is no step: on 80 GB, 64 MiB do not matter.
    pub least_percent: f64,
    /// A jump of the tree's memory, RAM or on a GPU, is at least this part of what the tree may use, percent. Ten of them fill it.
    pub jump_percent: f64,
    /// Shortest time from a step or jump that is told to the next in the same direction, nanoseconds, as with alerts. A program may
    /// allocate and free in each of its iterations.
    pub again_ns: u64,
    /// Two samples that are further apart than so many sampling intervals, and than `shortest_apart_ns`, show no jump of RAM.
    pub most_apart: u64,
    /// A busy machine delays a sample by this time, nanoseconds.
    pub shortest_apart_ns: u64,
}

pub(crate) const POLICY: StepPolicy = StepPolicy {
    least_bytes: 64 << 20,
    least_percent: 1.0,
    jump_percent: 10.0,
    again_ns: 30_000_000_000,
    most_apart: 2,
    shortest_apart_ns: 250_000_000,
};

impl StepPolicy {
    /// The smallest rise that is a jump, bytes. `allowed`: what may be used, bytes. `None`: that is not known.
    pub(crate) fn least_jump(&self, allowed: Option<u64>) -> Option<u64> {
        let allowed = allowed.filter(|bytes| *bytes > 0)?;
        Some((allowed as f64 * self.jump_percent / 100.0) as u64)
    }

    /// The smallest change of a process's memory on a device that is a step, bytes. `memory_bytes`: the device's memory, if it is
    /// known.
    pub(crate) fn least_on(&self, memory_bytes: Option<u64>) -> u64 {
        let part = memory_bytes.map(|bytes| bytes as f64 * self.least_percent / 100.0);
        self.least_bytes.max(part.unwrap_or_default() as u64)
    }
}
