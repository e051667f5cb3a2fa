//! AMD and Intel, by the kernel's own files: no library is needed.
//!
//! Devices come from [`sysfs`], and from [`kfd`] where there is no DRM node. The memory of a process is the larger of
//! [`fdinfo`]'s and KFD's: newer kernels count the same memory in both.

pub mod fdinfo;
mod kfd;
mod sysfs;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use fdinfo::{Client, Engine};
use kfd::{Kfd, Node};
use sysfs::Card;

use super::backend::Backend;
use crate::model::gpu::{
    Busy, Device, DeviceSample, GpuConfig, Missing, ProcessBusy, ProcessMemory, Reading,
};
use crate::sys::clock;

/// A client: the device's PCI address and its number there.
type ClientKey = (String, u64);

/// The backend.
#[derive(Debug)]
pub(super) struct Drm {
    config: GpuConfig,
    proc_root: PathBuf,
    cards: Vec<Card>,
    kfd: Option<Kfd>,
    nodes: Vec<Node>,
    /// The process in which a client was first seen: a descriptor that is inherited or passed on does not change it.
    owners: HashMap<ClientKey, u32>,
    /// Engines at the last reading, by client.
    before: HashMap<ClientKey, BTreeMap<String, Engine>>,
    before_ns: Option<u64>,
}

/// Memory and utilisation of the processes on one device.
#[derive(Debug, Default)]
struct OnDevice {
    bytes: BTreeMap<u32, Reading<u64>>,
    /// By pid and engine: busy share, 0 to 1 of one such engine.
    busy: BTreeMap<u32, BTreeMap<String, f64>>,
}

impl Drm {
    /// Look for devices below the root. [`Missing::NoDevice`] if none has a supported driver: a virtual machine's screen has
    /// a DRM device too.
    pub(super) fn start(config: &GpuConfig) -> Reading<Self> {
        let mut drm = Self {
            config: config.clone(),
            proc_root: config.path("/proc"),
            cards: Vec::new(),
            kfd: Kfd::below(&config.path("/sys")),
            nodes: Vec::new(),
            owners: HashMap::new(),
            before: HashMap::new(),
            before_ns: None,
        };
        if drm.devices().is_empty() { Err(Missing::NoDevice) } else { Ok(drm) }
    }

    fn read_processes(&mut self, pids: &[u32], span_ns: Option<u64>) -> HashMap<String, OnDevice> {
        let mut pids = pids.to_vec();
        pids.sort_unstable();
        let mut clients: BTreeMap<ClientKey, (Vec<u32>, Client)> = BTreeMap::new();
        for pid in pids {
            for client in fdinfo::clients(&self.proc_root, pid) {
                let key = (client.pdev.clone(), client.id);
                let (holders, known) = clients.entry(key).or_insert_with(|| (Vec::new(), client.clone()));
                holders.push(pid);
                // A client that several processes hold is read several times; later values are larger.
                known.device_bytes = known.device_bytes.max(client.device_bytes);
            }
        }
        let mut devices: HashMap<String, OnDevice> = HashMap::new();
        for (key, (holders, client)) in &clients {
            let first = holders.first().copied().unwrap_or_default();
            let owner = self.owners.entry(key.clone()).or_insert(first);
            if !holders.contains(owner) {
                *owner = first;
            }
            let on = devices.entry(client.pdev.clone()).or_default();
            let bytes = client.device_bytes.ok_or(Missing::NotSupported);
            let held = on.bytes.entry(*owner).or_insert_with(|| bytes.clone().map(|_| 0));
            *held = match (held.clone(), bytes) {
                (Ok(a), Ok(b)) => Ok(a.saturating_add(b)),
                (Ok(a), Err(_)) => Ok(a),
                (Err(_), other) => other,
            };
            let engines = on.busy.entry(*owner).or_default();
            let before = self.before.get(key);
            for (name, engine) in &client.engines {
                let share =
                    before.and_then(|b| b.get(name)).and_then(|b| share(b, engine, span_ns)).unwrap_or(0.0);
                *engines.entry(name.clone()).or_default() += share;
            }
        }
        let keys: HashSet<&ClientKey> = clients.keys().collect();
        self.owners.retain(|key, _| keys.contains(key));
        self.before.retain(|key, _| keys.contains(key));
        for (key, (_, client)) in clients {
            let known = self.before.entry(key).or_default();
            for (name, engine) in client.engines {
                let last = known.entry(name).or_insert(engine);
                // Some drivers' counters go back a little: what was counted stays counted.
                *last = Engine { busy: last.busy.max(engine.busy), ..engine };
            }
        }
        devices
    }

    fn add_kfd(&self, id: &str, pids: &[u32], on: &mut OnDevice) {
        let Some(kfd) = &self.kfd else { return };
        let Some(node) = self.nodes.iter().find(|node| node.device.id == id) else { return };
        for pid in pids {
            if let Some(bytes) = kfd.memory(*pid, node.gpu_id) {
                let held = on.bytes.entry(*pid).or_insert(Ok(0));
                *held = Ok(held.as_ref().map_or(bytes, |drm| bytes.max(*drm)));
            }
        }
    }
}

/// The share of the time in which one such engine was busy, 0 to 1.
fn share(before: &Engine, now: &Engine, span_ns: Option<u64>) -> Option<f64> {
    let busy = now.busy.saturating_sub(before.busy) as f64;
    let span = match (before.total_cycles, now.total_cycles) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => span_ns?,
    };
    (span > 0).then(|| busy / span as f64 / now.capacity as f64)
}

impl Backend for Drm {
    fn devices(&mut self) -> Vec<Device> {
        let sys = self.config.path("/sys");
        self.cards = sysfs::cards(&sys);
        self.nodes = self.kfd.as_ref().map(Kfd::nodes).unwrap_or_default();
        let mut devices: Vec<Device> = self.cards.iter().map(|card| card.device.clone()).collect();
        for node in &self.nodes {
            match devices.iter_mut().find(|device| device.id == node.device.id) {
                Some(known) => {
                    known.index = node.device.index;
                    known.uuid = known.uuid.take().or_else(|| node.device.uuid.clone());
                }
                None => devices.push(node.device.clone()),
            }
        }
        devices
    }

    fn sample(&mut self, at_ns: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample> {
        let span_ns = self.before_ns.replace(at_ns).map(|before| at_ns.saturating_sub(before));
        let mut on_devices = self.read_processes(pids, span_ns);
        let listed_ns = clock::monotonic_ns();
        let us = span_ns.unwrap_or(0) / 1000;
        let mut samples = Vec::new();
        for id in wanted {
            let mut sample = DeviceSample { device: id.clone(), listed_ns, ..DeviceSample::default() };
            let card = self.cards.iter().find(|card| &card.device.id == id);
            let has_node = self.nodes.iter().any(|node| &node.device.id == id);
            if card.map_or(!has_node, |card| !card.is_there()) {
                samples.push(DeviceSample { is_lost: true, ..sample });
                continue;
            }
            if let Some(card) = card {
                sample.values = card.values();
                sample.busy = Some(card.busy_percent().map(|percent| vec![Busy { us, percent }]));
            }
            let mut on = on_devices.remove(id).unwrap_or_default();
            self.add_kfd(id, pids, &mut on);
            sample.processes =
                Some(Ok(on.bytes.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes }).collect()));
            if self.cards.iter().any(|card| &card.device.id == id) {
                // The utilisation of a process is that of its busiest engine.
                let busiest = |(pid, engines): (u32, BTreeMap<String, f64>)| {
                    let share = engines.into_values().fold(0.0, f64::max);
                    ProcessBusy { pid, busy: Busy { us, percent: (share * 100.0).min(100.0) } }
                };
                sample.process_busy = Some(Ok(on.busy.into_iter().map(busiest).collect()));
            }
            samples.push(sample);
        }
        samples
    }
}
