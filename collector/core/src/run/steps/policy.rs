//! When a change of memory is a step, and how often steps are told. Each value has its reason.

/// Thresholds of steps and jumps.
pub(crate) struct StepPolicy;

impl StepPolicy {
    /// A smaller change of a process's memory on a GPU is no step, bytes. A CUDA context alone takes hundreds of MB, and PyTorch's
    /// allocator asks for blocks of 20 MiB.
    pub const LEAST_BYTES: u64 = 64 << 20;
    /// A change by a smaller part of the device's memory, percent, is no step: on 80 GB, 64 MiB do not matter.
    pub const LEAST_PERCENT: f64 = 1.0;
    /// A jump of the tree's memory, RAM or on a GPU, is at least this part of what the tree may use, percent. Ten of them fill it.
    pub const JUMP_PERCENT: f64 = 10.0;
    /// Shortest time from a step or jump that is told to the next in the same direction, nanoseconds, as with alerts. A program may
    /// allocate and free in each of its iterations.
    pub const AGAIN_NS: u64 = 30_000_000_000;
    /// Two samples show no jump of RAM if they are further apart than this many sampling intervals and than `SHORTEST_APART_NS`. The
    /// rise may then have been slow.
    pub const MOST_APART: u64 = 2;
    /// Samples that are no further apart than this can show a jump, nanoseconds: a busy machine delays a sample by as much.
    pub const SHORTEST_APART_NS: u64 = 250_000_000;

    /// The smallest rise that is a jump, bytes. `allowed`: what may be used, bytes. `None`: that is not known.
    pub(crate) fn least_jump(allowed: Option<u64>) -> Option<u64> {
        let allowed = allowed.filter(|bytes| *bytes > 0)?;
        Some((allowed as f64 * Self::JUMP_PERCENT / 100.0) as u64)
    }

    /// The smallest change of a process's memory on a device that is a step, bytes. `memory_bytes`: the device's memory, if it is
    /// known.
    pub(crate) fn least_on(memory_bytes: Option<u64>) -> u64 {
        let part = memory_bytes.map(|bytes| bytes as f64 * Self::LEAST_PERCENT / 100.0);
        Self::LEAST_BYTES.max(part.unwrap_or_default() as u64)
    }
}
