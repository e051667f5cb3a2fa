//! A GPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::config::Vendor;
use super::short_name::Named;

/// A device, or a part of one that is used like a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID, or its PCI address where it has none. Never an index: those change with the environment.
    pub id: String,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// The driver's own number for it, which index lists of the environment mean.
    pub index: Option<u32>,
    /// The number of its device node (`/dev/nvidia2`), by which Slurm counts.
    pub minor: Option<u32>,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Its maker.
    pub vendor: Option<Vendor>,
    /// The device that it is a part of (MIG).
    pub parent: Option<String>,
    /// Memory capacity, bytes.
    pub memory_bytes: Option<u64>,
    /// What the driver keeps of it for itself, bytes, and does not count as in use. `None`: the driver does not say.
    pub reserved_bytes: Option<u64>,
    /// The device can be divided into MIG instances, and whether it is. `None`: it can't, or the driver does not say.
    pub is_divided: Option<bool>,
    /// What the driver says of it on request, by nvidia-smi's names of the fields.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// Version of the kernel driver.
    pub driver_version: Option<String>,
    /// Version of the runtime that the driver supports (CUDA, ROCm).
    pub runtime_version: Option<String>,
    /// Where its figures come from: `nvml`, a DRM driver's name, or `kfd`.
    pub source: String,
}

impl Device {
    /// Whether a process that the driver lists can have this much memory, bytes. NVIDIA's drivers 545 to 560 list a process of a
    /// container by its pid there, but look for its memory by its pid outside. See open-gpu-kernel-modules PR 614 and HAMi-core issue
    /// 112. A single 0 can also come from a process that ended between these two steps of the driver. So each 0 of an NVIDIA driver
    /// counts as unknown, whatever its version.
    pub fn may_be_used(&self, bytes: u64) -> bool {
        bytes > 0 || self.vendor != Some(Vendor::Nvidia)
    }

    /// What its short name is made of.
    pub fn named(&self) -> Named<'_> {
        Named { id: &self.id, index: self.index.map(u64::from), parent: self.parent.as_deref() }
    }

    /// The memory that is free while this much is in use, bytes. `None`: the capacity is not known.
    pub fn free_bytes(&self, used_bytes: u64) -> Option<u64> {
        let taken = used_bytes.saturating_add(self.reserved_bytes.unwrap_or(0));
        self.memory_bytes.map(|total| total.saturating_sub(taken))
    }
}
