//! AMD and Intel, by the kernel's own files: no library is needed.
//!
//! Devices come from [`sysfs`], and from [`kfd`] where there is no DRM node. The memory of a process is the larger of
//! [`fdinfo`]'s and KFD's: newer kernels count the same memory in both.

pub mod fdinfo;
mod kfd;
mod sysfs;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::HashMap;
use std::path::PathBuf;

use fdinfo::Client;
use kfd::{Kfd, Node};
use sysfs::Card;
use usage::{ClientUsage, Clients, DeviceClients};

use super::backend::{Ask, Backend, Turn};
use crate::model::gpu::{
    Busy, Device, DeviceSample, GpuConfig, Missing, ProcessMemory, Reading, Vendor, Work, either,
};
use crate::sys::clock;

/// The backend.
#[derive(Debug, Default)]
pub(super) struct Drm {
    config: GpuConfig,
    proc_root: PathBuf,
    /// The devices with DRM nodes.
    cards: Vec<Card>,
    kfd: Option<Kfd>,
    /// The GPUs of KFD's topology.
    nodes: Vec<Node>,
    usage: ClientUsage,
    /// When the devices were last read, CLOCK_MONOTONIC nanoseconds. `None`: never.
    before_ns: Option<u64>,
}

impl Drm {
    /// Looks for devices. `config` tells where /proc and /sys are. [`Missing::NoDevice`] if none has a supported driver: a
    /// virtual machine's screen has a DRM device too.
    pub(super) fn start(config: &GpuConfig) -> Reading<Self> {
        let mut drm = Self {
            config: config.clone(),
            proc_root: config.path("/proc"),
            kfd: Kfd::below(&config.path("/sys")),
            ..Self::default()
        };
        if drm.devices().is_empty() { Err(Missing::NoDevice) } else { Ok(drm) }
    }

    /// Reads what these processes use of each device, by the device's id. `at_ns`: CLOCK_MONOTONIC nanoseconds.
    fn read_processes(&mut self, at_ns: u64, pids: &[u32]) -> HashMap<String, DeviceClients> {
        let mut pids = pids.to_vec();
        // So the holders of a client are listed with the smallest pid first.
        pids.sort_unstable();
        let mut clients = Clients::new();
        for pid in &pids {
            for client in fdinfo::clients(&self.proc_root, *pid) {
                let key = (client.pdev.clone(), client.id);
                let (holders, known) = clients.entry(key).or_insert_with(|| (Vec::new(), client.clone()));
                holders.push(*pid);
                // A client that several processes hold is read several times; later values are larger.
                known.device_bytes = known.device_bytes.max(client.device_bytes);
            }
        }
        let nodes = &self.nodes;
        self.usage.take_in(at_ns, clients, |client| device_of(nodes, client))
    }

    /// Takes in the memory that ROCm's driver shows for these processes on a device. The larger of it and fdinfo's memory counts.
    fn add_kfd(&self, id: &str, pids: &[u32], used: &mut DeviceClients) {
        let Some(kfd) = &self.kfd else { return };
        let Some(node) = self.nodes.iter().find(|node| node.device.id == id) else { return };
        for pid in pids {
            if let Some(bytes) = kfd.memory(*pid, node.gpu_id) {
                let held = used.bytes.entry(*pid).or_insert(Ok(0));
                // Where fdinfo's memory is unknown, ROCm's counts alone.
                *held = either(held.clone(), Ok(bytes), u64::max);
            }
        }
    }
}

/// The id of a client's device: its PCI address, or that of the partition there whose render node was opened. A client that opened
/// another node counts to the first partition, since that has the nodes of the whole device.
fn device_of(nodes: &[Node], client: &Client) -> String {
    let mut partitions = nodes.iter().filter(|node| node.partition.is_some() && node.address == client.pdev);
    let first = partitions.clone().next();
    let opened =
        partitions.find(|node| node.render_minor.is_some() && node.render_minor == client.render_minor);
    opened.or(first).map_or_else(|| client.pdev.clone(), |node| node.device.id.clone())
}

impl Backend for Drm {
    /// Lists the cards, and the GPUs of KFD's topology that are none of them. An undivided GPU of the topology completes its card. A
    /// partition is a part of its card. A GPU without a card, as in a container without DRM nodes, is a device of its own.
    fn devices(&mut self) -> Vec<Device> {
        let sys = self.config.path("/sys");
        self.cards = sysfs::cards(&sys);
        self.nodes = self.kfd.as_ref().map(Kfd::nodes).unwrap_or_default();
        let mut devices: Vec<Device> = self.cards.iter().map(|card| card.device.clone()).collect();
        if !self.nodes.is_empty() {
            // ROCm counts the devices of KFD's topology, and no others.
            for device in devices.iter_mut().filter(|device| device.vendor == Some(Vendor::Amd)) {
                device.index = None;
            }
        }
        for node in &mut self.nodes {
            let card = devices.iter_mut().find(|device| device.id == node.address);
            match (card, node.partition) {
                (Some(card), None) => {
                    card.index = node.device.index;
                    card.uuid = card.uuid.take().or_else(|| node.device.uuid.clone());
                }
                (Some(card), Some(_)) => {
                    node.device.parent = Some(card.id.clone());
                    devices.push(node.device.clone());
                }
                (None, _) => devices.push(node.device.clone()),
            }
        }
        devices
    }

    fn turn(&mut self, ask: &Ask<'_>) -> Turn {
        let samples = self.sample(ask.at_ns, ask.wanted, ask.pids);
        Turn { samples, is_complete: true, ..Turn::default() }
    }
}

impl Drm {
    /// Reads the wanted devices (`wanted` has their ids), and what these processes use of them. `at_ns`: CLOCK_MONOTONIC.
    fn sample(&mut self, at_ns: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample> {
        // The utilisation that is read now stands for the time since the previous reading.
        let since_us = self.before_ns.replace(at_ns).map_or(0, |before| at_ns.saturating_sub(before) / 1000);
        let mut on_devices = self.read_processes(at_ns, pids);
        let listed_ns = clock::monotonic_ns();
        let mut samples = Vec::new();
        for id in wanted {
            let sample = DeviceSample { listed_ns, ..DeviceSample::of_device(id) };
            let used = on_devices.remove(id).unwrap_or_default();
            samples.push(self.sample_device(sample, since_us, pids, used));
        }
        self.usage.note_read(pids);
        samples
    }

    /// Reads one device into an empty sample of it. `since_us`: time since the previous reading, microseconds. `used`: what DRM
    /// clients of these processes use of the device.
    fn sample_device(
        &self,
        mut sample: DeviceSample,
        since_us: u64,
        pids: &[u32],
        mut used: DeviceClients,
    ) -> DeviceSample {
        let id = sample.device.clone();
        let card = self.cards.iter().find(|card| card.device.id == id);
        let node = self.nodes.iter().find(|node| node.device.id == id);
        // A device that only KFD has is present if the last reading of the topology had it.
        let is_there = match card {
            Some(card) => card.is_there(),
            None => node.is_some(),
        };
        if !is_there {
            return DeviceSample { is_lost: true, ..sample };
        }
        if let Some(card) = card {
            sample.values = card.values();
            sample.busy = Some(card.busy_percent().map(|percent| vec![Busy { us: since_us, percent }]));
        }
        // For a divided device, its partitions show what processes use of it.
        if self.nodes.iter().any(|node| node.device.parent.as_ref() == Some(&id)) {
            sample.processes = Some(Err(Missing::ReportedByPartitions));
            sample.process_busy = Some(Err(Missing::ReportedByPartitions));
            return sample;
        }
        self.add_kfd(&id, pids, &mut used);
        // Only a DRM driver tells how busy a process keeps a device. A partition has the driver of the card that it is a part of.
        let has_drm = card.is_some() || node.is_some_and(|node| node.device.parent.is_some());
        if has_drm {
            sample.process_busy = Some(Ok(self.usage.by_process(&used)));
        }
        let processes =
            used.bytes.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes, work: Work::Unknown });
        sample.processes = Some(Ok(processes.collect()));
        sample
    }
}
