//! What PyTorch's allocator told of its memory on a GPU, by `gpu_track.torch_metrics()`.

use serde::{Deserialize, Serialize};

/// The largest amounts that a process told of a device, bytes. `None`: it told none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchMemory {
    /// The process: what getpid(2) returns in it.
    pub pid: u32,
    /// PyTorch's number of the device, which need not be the driver's.
    pub device: u32,
    /// The memory of tensors.
    pub live_bytes: Option<u64>,
    /// The memory of tensors, and what the allocator kept for later ones.
    pub reserved_bytes: Option<u64>,
    /// Free parts of blocks that are in use. The allocator can't give them back.
    pub fragmented_bytes: Option<u64>,
}

impl TorchMemory {
    /// The amount of the metric `torch_cudaN_SUFFIX`. `None`: this is no amount.
    pub fn amount(&mut self, suffix: &str) -> Option<&mut Option<u64>> {
        Some(match suffix {
            "allocated_bytes" => &mut self.live_bytes,
            "reserved_bytes" => &mut self.reserved_bytes,
            "inactive_split_bytes" => &mut self.fragmented_bytes,
            _ => return None,
        })
    }
}
