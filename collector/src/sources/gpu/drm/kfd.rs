//! ROCm's kernel driver, `/sys/class/kfd/kfd`: the memory of compute processes, which amdgpu's fdinfo leaves out on older
//! kernels. It also has the devices of a container without DRM nodes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::sysfs::line;
use crate::model::gpu::{Device, Vendor};

/// A GPU in the driver's topology, its list of CPUs and GPUs (`topology/nodes`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// The driver's number for it, which its files are named by.
    pub gpu_id: u32,
    /// The number of its render node.
    pub render_minor: Option<u32>,
    /// PCI address of the whole device.
    pub address: String,
    /// The GPU's number among the partitions of a divided device (an MI300 in CPX mode has eight at one PCI address). `None`: the
    /// device is not divided.
    pub partition: Option<u32>,
    /// The device.
    pub device: Device,
}

/// The driver's directory.
#[derive(Debug, Clone)]
pub(super) struct Kfd {
    root: PathBuf,
}

impl Kfd {
    /// Finds the driver's directory below `sys` (/sys), if the driver is loaded.
    pub(super) fn below(sys: &Path) -> Option<Self> {
        let root = sys.join("class/kfd/kfd");
        root.is_dir().then_some(Self { root })
    }

    /// Lists the GPUs, in the order in which ROCR_VISIBLE_DEVICES counts them.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let Ok(entries) = fs::read_dir(self.root.join("topology/nodes")) else { return Vec::new() };
        let mut numbers: Vec<u32> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        let paths = numbers.into_iter().map(|n| self.root.join("topology/nodes").join(n.to_string()));
        let mut nodes: Vec<Node> = paths.filter_map(|path| node(&path)).collect();
        let mut at_address: HashMap<String, u32> = HashMap::new();
        for node in &nodes {
            *at_address.entry(node.address.clone()).or_default() += 1;
        }
        for (index, node) in (0..).zip(&mut nodes) {
            node.device.index = Some(index);
            // If a number 0 is alone at its address, the device is not divided. A container may be given a single partition, which
            // shows by a number above 0.
            node.partition = node.partition.filter(|n| *n > 0 || at_address.get(&node.address) > Some(&1));
        }
        number_partitions(&mut nodes);
        nodes
    }

    /// Reads the memory of a process on a GPU, bytes. `None`: it does not use the GPU.
    pub(super) fn memory(&self, pid: u32, gpu_id: u32) -> Option<u64> {
        line(&self.root.join("proc").join(pid.to_string()).join(format!("vram_{gpu_id}")))?.parse().ok()
    }
}

/// Sets the ids of partitions to `ADDRESS/NUMBER`. If the driver gives several partitions the same number, later ones get the next
/// free number.
fn number_partitions(nodes: &mut [Node]) {
    let mut taken: Vec<String> = Vec::new();
    for node in nodes {
        let Some(first) = node.partition else { continue };
        let free = (first..).find(|n| !taken.contains(&format!("{}/{n}", node.address)));
        node.device.id = format!("{}/{}", node.address, free.unwrap_or(first));
        taken.push(node.device.id.clone());
    }
}

/// Reads what a node of the topology is. `None`: it is a CPU, whose GPU id is 0, or can't be read.
fn node(path: &Path) -> Option<Node> {
    let gpu_id = line(&path.join("gpu_id"))?.parse().ok().filter(|id| *id != 0)?;
    let properties = fs::read_to_string(path.join("properties")).ok()?;
    let property = |key: &str| -> Option<u64> {
        properties.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let (domain, location) = (property("domain").unwrap_or(0), property("location_id")?);
    // Bits 28 to 31 are the number of the partition (kfd_topology.c).
    let partition = u32::try_from(location >> 28 & 0xf).ok();
    let (bus, slot, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    let address = format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}");
    let bank = fs::read_to_string(path.join("mem_banks/0/properties")).unwrap_or_default();
    let size = bank.lines().find_map(|line| line.strip_prefix("size_in_bytes ")?.trim().parse().ok());
    // In the form that ROCR_VISIBLE_DEVICES and rocm-smi have. For a device without a unique id, the property is 0.
    let uuid = property("unique_id").filter(|id| *id != 0).map(|id| format!("GPU-{id:016x}"));
    let device = Device {
        id: address.clone(),
        uuid,
        pci_address: Some(address.clone()),
        name: line(&path.join("name")),
        vendor: Some(Vendor::Amd),
        memory_bytes: size,
        source: "kfd".into(),
        ..Device::default()
    };
    let render_minor = property("drm_render_minor").and_then(|minor| u32::try_from(minor).ok());
    Some(Node { gpu_id, render_minor, address, partition, device })
}
