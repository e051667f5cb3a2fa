//! The memory in use on each GPU when it was last known. A slow driver gives it for one GPU after another, so a sample knows that of one
//! GPU only. Alerts must not take that GPU for the fullest.

use serde::{Deserialize, Serialize};

use crate::model::tree_sample::GpuSums;

/// A GPU that was not known for this long counts no more, nanoseconds: it is lost. A driver that takes 50 ms a call gives 8 GPUs every 8 s.
const KEPT_NS: u64 = 60_000_000_000;

/// What a sample knew last of each GPU.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LastMemory {
    /// The id of a GPU, the sample's time, CLOCK_MONOTONIC nanoseconds, and the memory in use and the whole memory, bytes.
    last: Vec<(String, u64, (u64, u64))>,
}

impl LastMemory {
    /// Takes in the GPUs of the sample at `at_ns`, CLOCK_MONOTONIC nanoseconds. Forgets what was not known for [`KEPT_NS`].
    pub(super) fn add(&mut self, gpu: &GpuSums, at_ns: u64) {
        self.last.retain(|(_, last_ns, _)| at_ns.saturating_sub(*last_ns) < KEPT_NS);
        for device in &gpu.devices {
            let Some(memory) = device.used_and_whole() else { continue };
            match self.last.iter_mut().find(|(id, ..)| *id == device.device.id) {
                Some((_, last_ns, last)) => (*last_ns, *last) = (at_ns, memory),
                None => self.last.push((device.device.id.clone(), at_ns, memory)),
            }
        }
    }

    /// As [`GpuSums::fullest`]. `None`: a GPU that this sample does not know was fuller when it was last known.
    pub(super) fn fullest(&self, gpu: &GpuSums) -> Option<(u64, u64)> {
        let fullest = gpu.fullest()?;
        let part = |(used, whole): (u64, u64)| used as f64 / whole as f64;
        let is_fuller = |(_, _, memory): &(String, u64, (u64, u64))| part(*memory) > part(fullest);
        (!self.last.iter().any(is_fuller)).then_some(fullest)
    }
}
