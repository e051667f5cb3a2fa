//! Which devices the driver has, MIG instances among them.

use std::collections::BTreeMap;
use std::fmt;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t};

use super::Nvml;
use super::accounting::Accounting;
use super::api::{Api, Failure, Plain, call, code, get};
use super::figure_kind::Kind;
use super::handle::Handle;
use super::policy;
use super::{facts, figures};
use crate::model::gpu::{Device, DeviceSample, Figure, Missing, Reading, Vendor};
use crate::sys::clock;

/// The energy counter of a device, read as soon as it has a handle. What the device used before that first reading is missing,
/// and to list all devices can take half a second.
struct FirstEnergy {
    /// When the reading began, CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    /// Joules.
    energy: Reading<f64>,
    /// How long the reading took, nanoseconds.
    took_ns: u64,
}

impl FirstEnergy {
    /// Reads the energy counter of a new device.
    fn read(api: &Api, raw: nvmlDevice_t) -> Self {
        let at_ns = clock::monotonic_ns();
        let energy = figures::energy(api, raw);
        Self { at_ns, energy, took_ns: clock::monotonic_ns().saturating_sub(at_ns) }
    }

    /// The reading as a sample of the device with this id.
    fn sample(&self, device: &str) -> DeviceSample {
        DeviceSample {
            at_ns: self.at_ns,
            values: vec![(Figure::Energy, self.energy.clone())],
            ..DeviceSample::of_device(device)
        }
    }
}

/// The driver's numbers for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Of the whole device.
    index: u32,
    /// Of the MIG instance on it. `None`: this is the whole device.
    instance: Option<u32>,
}

impl Place {
    /// Whether it is that of a whole device.
    pub(super) fn is_whole(self) -> bool {
        self.instance.is_none()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instance) = self.instance {
            write!(out, "MIG instance {instance} on ")?;
        }
        write!(out, "GPU number {}", self.index)
    }
}

impl Nvml {
    /// Adds a device, or gives a known one the driver's new handle. A device without an id of its own is left out, and goes to
    /// [`Self::note_unreadable`].
    ///
    /// - `raw`: the driver's handle.
    /// - `place`: the driver's numbers for the device.
    /// - `whole`: the device that an instance is a part of, and the driver's handle of that; `None`: the device is a whole one.
    /// - `first_energy`: what was read of the device as soon as it had a handle. A known device does not need it.
    fn add_device(
        &mut self,
        raw: nvmlDevice_t,
        place: Place,
        whole: Option<(&Device, nvmlDevice_t)>,
        first_energy: Option<FirstEnergy>,
    ) {
        let (parent, parent_raw) = whole.unzip();
        // An instance has no index.
        let index = Some(place.index).filter(|_| place.instance.is_none());
        let uuid = Api::text(|text, length| call!(self.api, nvmlDeviceGetUUID(raw, text, length)));
        // The driver may refuse the UUID at first, or later: the device keeps the id that it has.
        let is_it = |known: &&Handle| {
            let is_other = uuid.is_some() && known.device.uuid.is_some() && known.device.uuid != uuid;
            known.raw == raw && known.parent_raw.is_some() == parent.is_some() && !is_other
        };
        let known = self.devices.iter().find(is_it).map(|known| known.device.id.clone());
        // An instance has the PCI address of its whole device, so the address is no id of an instance.
        let by_driver = || uuid.clone().or_else(|| self.pci_address(raw).filter(|_| parent.is_none()));
        let id = known.or_else(by_driver);
        let Some(id) = id else {
            // The memory is asked for only to learn why the driver refuses: `Api::text` gives no reason.
            let why = figures::memory(&self.api, raw, &mut None).err();
            self.note_unreadable(place, why.unwrap_or(Missing::Failed("it has no UUID".into())));
            return;
        };
        let known = self.devices.iter_mut().find(|handle| handle.device.id == id);
        // Its figures would be mixed with those of the one that came before it.
        if known.as_ref().is_some_and(|known| known.is_present && known.raw != raw) {
            self.note_unreadable(place, Missing::Failed(format!("another device is {id}, too")));
            return;
        }
        self.unreadable.remove(&place);
        if let Some(known) = known {
            known.device.uuid = known.device.uuid.take().or(uuid);
            if let Some(Ok(before)) = known.renew(raw, index, parent_raw) {
                before.free(&self.api);
            }
            return;
        }
        let device = Device {
            id: id.clone(),
            uuid,
            index,
            vendor: Some(Vendor::Nvidia),
            parent: parent.map(|parent| parent.id.clone()),
            driver_version: self.driver_version.clone(),
            runtime_version: self.runtime_version.clone(),
            source: "nvml".into(),
            ..Device::default()
        };
        let wants_accounting = self.wants_accounting && parent.is_none();
        let accounting = wants_accounting.then(|| self.start_accounting(raw, &id));
        let first = first_energy.map(|first_energy| (first_energy.sample(&id), first_energy.took_ns));
        let reads_on_request = self.reads_on_request;
        let new = Handle::new(raw, device, parent_raw);
        let gpm = (!self.reads_gpm).then_some(Err(Missing::NoGpm));
        self.devices.push(Handle { first, accounting, reads_on_request, gpm, ..new });
        // Name and address follow later, unless the user chose devices by them.
        if self.describes_first {
            self.describe(&id);
        }
    }

    /// Switches the accounting of a device on, as the user wants (`--gpu-accounting`). Warns if that fails.
    fn start_accounting(&mut self, raw: nvmlDevice_t, id: &str) -> Accounting {
        let started = Accounting::switched_on(&self.api, raw);
        let line = |warning| format!("--gpu-accounting: {id}: {warning}.");
        self.warnings.extend(started.warning().map(line));
        started
    }

    /// Asks what a device is, and has the driver report its critical errors from now on. Memory and processes do not need that, so
    /// they come first. Tells the plan what this cost.
    pub(super) fn describe(&mut self, id: &str) {
        let began_ns = clock::monotonic_ns();
        let Some(number) = self.devices.iter().position(|handle| handle.device.id == id) else { return };
        let Handle { raw, parent_raw, device, .. } = &self.devices[number];
        let (raw, parent, is_part) = (*raw, device.parent.clone(), parent_raw.is_some());
        let of_parent = || {
            let parent = self.devices.iter().find(|handle| Some(&handle.device.id) == parent.as_ref())?;
            parent.device.pci_address.clone()
        };
        let pci_address = self.pci_address(raw).or_else(of_parent);
        // Only Slurm names devices by the numbers of their nodes, and then `describes_first` is set.
        let minor = if self.describes_first { figures::minor(&self.api, raw) } else { None };
        let name = Api::text(|text, length| call!(self.api, nvmlDeviceGetName(raw, text, length)));
        let events = if is_part {
            Err(Missing::NotSupported)
        } else {
            let registered = self.devices.iter().filter(|handle| matches!(handle.events, Some(Ok(()))));
            let registered: Vec<nvmlDevice_t> = registered.map(|handle| handle.raw).collect();
            self.events.register(&self.api, raw, &registered)
        };
        let handle = &mut self.devices[number];
        let has_reserve = &mut handle.sensors.has_reserve;
        let total = || Some(figures::memory(&self.api, raw, has_reserve).ok()?.total);
        let memory_bytes = handle.device.memory_bytes.or_else(total);
        let facts = if handle.reads_on_request { facts::facts(&self.api, raw) } else { BTreeMap::new() };
        let device = handle.device.clone();
        handle.device = Device { pci_address, minor, name, memory_bytes, facts, ..device };
        handle.events = Some(events);
        let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
        self.plan.note_and_charge(&Some(id.to_owned()), Kind::Details, began_ns, took_ns);
    }

    /// Whether something has become known of all devices since this was last true: their memory, or their descriptions. Each
    /// counts once, until more devices are found.
    pub(super) fn has_news(&mut self) -> bool {
        let count =
            |is_known: fn(&Handle) -> bool| self.devices.iter().filter(|handle| is_known(handle)).count();
        let (measured, described) =
            (count(|handle| handle.device.memory_bytes.is_some()), count(|handle| handle.events.is_some()));
        let all = self.devices.len();
        let (measured_before, described_before) = self.counts_at_news;
        let has_news =
            (measured == all && measured_before != all) || (described == all && described_before != all);
        if has_news {
            self.counts_at_news = (measured, described);
        }
        has_news
    }

    /// Notes whether a device, which has this index and id, is divided into MIG instances, and adds those. What the driver fails to tell is
    /// as it was before.
    fn add_instances(&mut self, raw: nvmlDevice_t, index: u32, id: &str) {
        // An instance that could not be read may be gone.
        self.unreadable.retain(|place, _| place.index != index || place.instance.is_none());
        let mut pending = 0;
        let mode = get(|mode| call!(self.api, nvmlDeviceGetMigMode(raw, mode, &mut pending)));
        let Some(parent) = self.devices.iter_mut().find(|handle| handle.device.id == id) else { return };
        if mode.as_ref().err().is_none_or(|why| !why.may_pass()) {
            parent.is_divided = mode == Ok(1);
            parent.device.is_divided = mode.as_ref().ok().filter(|mode| **mode <= 1).map(|mode| *mode == 1);
        }
        let (parent, is_divided) = (parent.device.clone(), parent.is_divided);
        if !is_divided {
            return;
        }
        let most = get(|count| call!(self.api, nvmlDeviceGetMaxMigDeviceCount(raw, count)));
        let mut failed = mode.err().or(most.as_ref().err().cloned()).map(|why| (0, why));
        for number in 0..most.unwrap_or(0).min(policy::MAX_INSTANCES) {
            let mut part = std::ptr::null_mut();
            match call!(self.api, nvmlDeviceGetMigDeviceHandleByIndex(raw, number, &mut part)) {
                Ok(()) => {
                    let place = Place { index, instance: Some(number) };
                    self.add_device(part, place, Some((&parent, raw)), None);
                }
                // There is no such instance.
                Err(Failure(code::NOT_FOUND | code::INVALID_ARGUMENT)) => {}
                Err(failure) => failed = failed.or(Some((number, failure.into()))),
            }
        }
        let Some((number, why)) = failed.filter(|(_, why)| why.may_pass()) else { return };
        let is_part = |handle: &&mut Handle| handle.device.parent.as_ref() == Some(&parent.id);
        let mut parts = self.devices.iter_mut().filter(is_part).peekable();
        if parts.peek().is_none() {
            return self.note_unreadable(Place { index, instance: Some(number) }, why);
        }
        // Which of them the driver did not name is not known.
        parts.for_each(|handle| handle.is_present = true);
    }

    /// Asks for the handles of all devices again. `count`: how many the driver has. Known devices that it does not have any more
    /// are no longer present. The [`FirstEnergy`] of all new devices is read before any device is asked for more.
    pub(super) fn refresh(&mut self, count: u32) {
        for handle in &mut self.devices {
            (handle.is_present, handle.is_lost) = (false, false);
        }
        let mut found = Vec::new();
        for index in 0..count {
            let raw = self.api.device(index);
            let new = raw.as_ref().ok().filter(|raw| self.devices.iter().all(|known| known.raw != **raw));
            let first_energy = new.map(|raw| FirstEnergy::read(&self.api, *raw));
            found.push((index, raw, first_energy));
        }
        for (index, raw, first_energy) in found {
            match raw {
                Ok(raw) => {
                    self.add_device(raw, Place { index, instance: None }, None, first_energy);
                    let id = self.devices.iter().find(|h| h.raw == raw).map(|h| h.device.id.clone());
                    if let Some(id) = id {
                        self.add_instances(raw, index, &id);
                    }
                }
                Err(missing) => self.note_no_handle(index, missing),
            }
        }
    }

    /// Notes that the driver gives no handle of a device. The index identifies a known device. Unless that is lost, its figures
    /// may still be readable by the handle from before.
    fn note_no_handle(&mut self, index: u32, why: Missing) {
        let is_lost = why == Missing::Lost;
        let mut is_known = false;
        for known in self.devices.iter_mut().filter(|handle| handle.device.index == Some(index)) {
            (known.is_present, known.is_lost) = (true, is_lost);
            is_known = true;
        }
        if !is_known {
            self.note_unreadable(Place { index, instance: None }, why);
        }
    }

    /// Notes a device that could not be identified, for a warning. A device that may not be opened belongs to another job and is left
    /// out. If the user named the GPUs, all are left out.
    fn note_unreadable(&mut self, place: Place, why: Missing) {
        if self.reports_unreadable && why != Missing::NoPermission {
            self.unreadable.insert(place, why);
        }
    }

    /// Asks for the PCI address of a device, in the kernel's form, such as `0000:3b:00.0`.
    fn pci_address(&self, raw: nvmlDevice_t) -> Option<String> {
        let mut pci = nvmlPciInfo_t::zeroed();
        call!(self.api, nvmlDeviceGetPciInfo_v3 or nvmlDeviceGetPciInfo_v2(raw, &mut pci)).ok()?;
        // What the driver did not write is no address: a bus has 256 numbers and 32 devices (PCI).
        if pci.bus > 0xff || pci.device > 0x1f {
            return None;
        }
        // The driver's own text has a domain of eight digits.
        Some(format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::gpu::GpuConfig;
    use crate::sources::gpu::backend::Backend;

    // Requirement: GPU-12
    #[test]
    fn instance_without_a_uuid_is_a_device_that_could_not_be_read() {
        let raw = std::ptr::without_provenance_mut(8);
        let mut nvml = Nvml::new(Api::without_calls(), &GpuConfig::default(), Duration::from_millis(100));
        let whole = Device { id: "GPU-a".into(), ..Device::default() };
        let place = Place { index: 2, instance: Some(1) };
        nvml.add_device(raw, place, Some((&whole, raw)), None);
        assert_eq!(nvml.unreadable(), [Missing::NoCall]);
        let reason = Missing::NoCall;
        let line =
            format!("MIG instance 1 on GPU number 2 of the NVIDIA driver could not be read: {reason}.");
        assert_eq!(nvml.warnings(), [line]);
        // The device is no longer divided.
        nvml.add_instances(raw, 2, "GPU-a");
        assert_eq!(nvml.unreadable(), []);
    }
}
