//! NVIDIA, through NVML: `libnvidia-ml.so.1`, which comes with the driver and is loaded at run time.
//!
//! A device is known by its UUID. Each call is independent: a figure whose call fails is missing with its reason, and the
//! others go on.

mod accounting;
mod api;
mod figures;
mod policy;
mod processes;
mod utilization;

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventSet_t, nvmlPciInfo_t, nvmlReturn_t};

use accounting::Accounting;
use api::{Api, Failure, call, check, code};
use figures::Target;
use policy::POLICY;
use processes::Lists;
use utilization::Progress;

use super::backend::Backend;
use crate::model::gpu::{Device, DeviceSample, GpuConfig, Missing, Reading, Vendor};
use crate::sys::proc_fs::{ProcRoot, Statm};

/// The library's name, as the driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Where some systems have it outside the loader's search path: containers (Docker, Kubernetes), Colab, WSL, NixOS.
const LIBRARY_PLACES: [&str; 4] =
    ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// The backend.
pub(crate) struct Nvml {
    api: Api,
    lists: Lists,
    driver_version: Option<String>,
    runtime_version: Option<String>,
    devices: Vec<Handle>,
    events: Reading<Events>,
    wants_accounting: bool,
    memory: MemoryCheck,
    /// Why devices that could not be identified can't be read, by index.
    unreadable: BTreeMap<u32, Missing>,
    /// The user named no devices, so such a one may be among those that are tracked.
    reports_unreadable: bool,
    warnings: Vec<String>,
}

// SAFETY: NVML is thread-safe, and its handles are valid on every thread (nvml.h).
unsafe impl Send for Nvml {}

/// A device and what was read of it so far.
struct Handle {
    raw: nvmlDevice_t,
    device: Device,
    /// It is divided into MIG instances, which report processes and utilisation.
    is_divided: bool,
    /// The driver answers a request for its handle with GPU_IS_LOST.
    is_lost: bool,
    /// The driver still has it.
    is_present: bool,
    progress: Progress,
    accounting: Accounting,
    events: Reading<()>,
}

/// NVML's queue of critical errors.
#[derive(Clone, Copy)]
struct Events(nvmlEventSet_t);

impl Nvml {
    /// Load the library and initialise the driver.
    pub(crate) fn start(config: &GpuConfig) -> Reading<Self> {
        if let Some(signal) = config.crashed_by {
            return Err(Missing::Crashes(signal));
        }
        let api = match &config.nvml_lib {
            Some(path) => Api::load(path.as_os_str())?,
            None => Api::load(LIBRARY.as_ref()).or_else(|missing| {
                let elsewhere = LIBRARY_PLACES
                    .map(|place| config.path(place).join(LIBRARY))
                    .into_iter()
                    .find(|p| p.exists());
                match (&missing, elsewhere) {
                    (Missing::NoLibrary(_), Some(path)) => Api::load(path.as_os_str()),
                    _ => Err(missing),
                }
            })?,
        };
        // A driver that can't count its devices is of no use. Later, a single failure of this call is ignored.
        api.device_count()?;
        let mut set = std::ptr::null_mut();
        let events = call!(api, nvmlEventSetCreate(&mut set)).map(|()| Events(set)).map_err(Missing::from);
        Ok(Self {
            lists: Lists::new(&api),
            driver_version: Api::text(|text, length| call!(api, nvmlSystemGetDriverVersion(text, length))),
            runtime_version: api.cuda_version(),
            devices: Vec::new(),
            events,
            wants_accounting: config.accounting,
            memory: MemoryCheck::default(),
            unreadable: BTreeMap::new(),
            reports_unreadable: config.uuids.is_none(),
            warnings: Vec::new(),
            api,
        })
    }

    /// Add a device, or renew the handle of a known one.
    fn add_device(&mut self, raw: nvmlDevice_t, index: Option<u32>, parent: Option<&Device>) {
        let uuid = Api::text(|text, length| call!(self.api, nvmlDeviceGetUUID(raw, text, length)));
        let pci_address = self.pci_address(raw).or_else(|| parent.and_then(|p| p.pci_address.clone()));
        let id = uuid.clone().or_else(|| pci_address.clone().filter(|_| parent.is_none()));
        let Some(id) = id else {
            let why = figures::memory(&self.api, raw).err();
            self.note_unreadable(index, why.unwrap_or(Missing::Failed("it has no UUID".into())));
            return;
        };
        if let Some(index) = index {
            self.unreadable.remove(&index);
        }
        if let Some(known) = self.devices.iter_mut().find(|handle| handle.device.id == id) {
            (known.raw, known.is_present, known.device.index) = (raw, true, index);
            return;
        }
        let memory = figures::memory(&self.api, raw).ok();
        let device = Device {
            id,
            uuid,
            index,
            minor: figures::minor(&self.api, raw),
            pci_address,
            name: Api::text(|text, length| call!(self.api, nvmlDeviceGetName(raw, text, length))),
            vendor: Some(Vendor::Nvidia),
            parent: parent.map(|parent| parent.id.clone()),
            memory_bytes: memory.map(|memory| memory.total),
            driver_version: self.driver_version.clone(),
            runtime_version: self.runtime_version.clone(),
            source: "nvml".into(),
        };
        let accounting = Accounting::start(&self.api, raw, self.wants_accounting && parent.is_none());
        if let Some(warning) = accounting.warning() {
            self.warnings.push(format!("--gpu-accounting: {}: {warning}.", device.id));
        }
        let events = match &self.events {
            _ if parent.is_some() => Err(Missing::NotSupported),
            Ok(Events(set)) => call!(self.api, nvmlDeviceRegisterEvents(raw, figures::XID_EVENT, *set))
                .map_err(Missing::from),
            Err(missing) => Err(missing.clone()),
        };
        self.devices.push(Handle {
            raw,
            device,
            is_divided: false,
            is_lost: false,
            is_present: true,
            progress: Progress::default(),
            accounting,
            events,
        });
    }

    /// Add the MIG instances of a device.
    fn add_instances(&mut self, raw: nvmlDevice_t, id: &str) {
        let (mut current, mut pending): (c_uint, c_uint) = (0, 0);
        let mode = call!(self.api, nvmlDeviceGetMigMode(raw, &mut current, &mut pending));
        let is_divided = mode.is_ok() && current == 1;
        let Some(parent) = self.devices.iter_mut().find(|handle| handle.device.id == id) else { return };
        parent.is_divided = is_divided;
        let parent = parent.device.clone();
        let mut most: c_uint = 0;
        if !is_divided || call!(self.api, nvmlDeviceGetMaxMigDeviceCount(raw, &mut most)).is_err() {
            return;
        }
        for number in 0..most.min(POLICY.most_instances) {
            let mut part = std::ptr::null_mut();
            if call!(self.api, nvmlDeviceGetMigDeviceHandleByIndex(raw, number, &mut part)).is_ok() {
                self.add_device(part, None, Some(&parent));
            }
        }
    }

    /// Ask for the handles of all devices again.
    fn refresh(&mut self, count: u32) {
        for handle in &mut self.devices {
            (handle.is_present, handle.is_lost) = (false, false);
        }
        for index in 0..count {
            match self.api.device(index) {
                Ok(raw) => {
                    self.add_device(raw, Some(index), None);
                    let id = self.devices.iter().find(|h| h.raw == raw).map(|h| h.device.id.clone());
                    if let Some(id) = id {
                        self.add_instances(raw, &id);
                    }
                }
                // The index identifies a known device. Unless it is lost, its figures may still be readable.
                Err(failure) => {
                    let is_lost = failure.code == Some(code::GPU_IS_LOST);
                    let mut is_known = false;
                    for known in self.devices.iter_mut().filter(|handle| handle.device.index == Some(index)) {
                        (known.is_present, known.is_lost) = (true, is_lost);
                        is_known = true;
                    }
                    if !is_known {
                        self.note_unreadable(Some(index), failure.into());
                    }
                }
            }
        }
    }

    /// Note a device that could not be identified. One that may not be opened belongs to another job.
    fn note_unreadable(&mut self, index: Option<u32>, why: Missing) {
        if let Some(index) = index
            && self.reports_unreadable
            && why != Missing::NoPermission
        {
            self.unreadable.insert(index, why);
        }
    }

    fn pci_address(&self, raw: nvmlDevice_t) -> Option<String> {
        let mut pci = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        type Info = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlPciInfo_t) -> nvmlReturn_t;
        match call!(self.api, nvmlDeviceGetPciInfo_v3(raw, &mut pci)) {
            Err(Failure { code: None }) => {
                let function = self.api.old::<Info>(b"nvmlDeviceGetPciInfo_v2\0").ok()?;
                // SAFETY: the older struct is shorter, and equal up to the device number.
                check(unsafe { function(raw, &mut pci) }).ok()?;
            }
            result => result.ok()?,
        }
        // In the kernel's form; the driver's own text has a domain of eight digits.
        Some(format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device))
    }

    /// Critical errors since the last reading: the device and the error's number.
    fn take_events(&self) -> Vec<(nvmlDevice_t, u64)> {
        let Ok(Events(set)) = self.events else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < POLICY.most_events
            && let Some(event) = figures::next_event(&self.api, set)
        {
            taken.push(event);
        }
        taken
    }
}

impl Backend for Nvml {
    fn devices(&mut self) -> Vec<Device> {
        // If the call fails, the known devices stay.
        if let Ok(count) = self.api.device_count() {
            self.refresh(count);
        }
        self.devices.iter().filter(|handle| handle.is_present).map(|handle| handle.device.clone()).collect()
    }

    fn sample(&mut self, _: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample> {
        if let Some(grown) = self.memory.check(own_bytes) {
            self.warnings.push(format!(
                "The memory of the collector with the driver's library in it has grown by {} MB.",
                grown / 1_000_000
            ));
        }
        let events = self.take_events();
        let mut samples = Vec::new();
        for id in wanted {
            let Some(handle) = self.devices.iter_mut().find(|handle| &handle.device.id == id) else {
                continue;
            };
            let xids = events.iter().filter(|(raw, _)| *raw == handle.raw).map(|(_, xid)| *xid).collect();
            let xids = Some(handle.events.clone().map(|()| xids));
            let mut sample = DeviceSample { device: id.clone(), xids, ..DeviceSample::default() };
            sample.is_lost = handle.is_lost || !handle.is_present;
            if !sample.is_lost {
                let target = Target {
                    device: handle.raw,
                    is_divided: handle.is_divided,
                    progress: &mut handle.progress,
                };
                figures::read(&self.api, &self.lists, target, &mut sample);
            }
            if sample.is_lost {
                let (device, xids) = (sample.device, sample.xids);
                samples.push(DeviceSample { device, xids, is_lost: true, ..DeviceSample::default() });
                continue;
            }
            sample.accounting = Some(handle.accounting.read(&self.api, handle.raw, pids));
            samples.push(sample);
        }
        samples
    }

    fn restore(&mut self) {
        for handle in &mut self.devices {
            if let Some(warning) = handle.accounting.restore(&self.api, handle.raw) {
                self.warnings.push(format!("--gpu-accounting: {}: {warning}.", handle.device.id));
            }
        }
    }

    fn unreadable(&self) -> Vec<Missing> {
        self.unreadable.values().cloned().collect()
    }

    fn warnings(&self) -> Vec<String> {
        let line =
            |(index, why)| format!("GPU number {index} of the NVIDIA driver could not be read: {why}.");
        self.unreadable.iter().map(line).chain(self.warnings.iter().cloned()).collect()
    }
}

/// Watches the collector's memory for growth by the driver's library.
#[derive(Debug, Default)]
struct MemoryCheck {
    readings: u64,
    first_bytes: Option<u64>,
    has_warned: bool,
}

impl MemoryCheck {
    /// To be called at each reading. Gives the growth in bytes, once, when it is too much. `own_bytes` reads the private
    /// memory of this process.
    fn check(&mut self, own_bytes: impl FnOnce() -> Option<u64>) -> Option<u64> {
        self.readings += 1;
        if self.has_warned || !self.readings.is_multiple_of(POLICY.memory_check_readings) {
            return None;
        }
        let now = own_bytes()?;
        let grown = now.saturating_sub(*self.first_bytes.get_or_insert(now));
        self.has_warned = grown > POLICY.memory_growth_bytes;
        self.has_warned.then_some(grown)
    }
}

/// Private memory of this process, bytes.
fn own_bytes() -> Option<u64> {
    let text = ProcRoot::default().read(std::process::id(), "statm")?;
    let statm = Statm::parse(&text)?;
    Some(statm.resident.saturating_sub(statm.shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_growth_is_reported_once() {
        let mut memory = MemoryCheck::default();
        let mut check =
            |n: u64, bytes: u64| (0..n).filter_map(|_| memory.check(|| Some(bytes))).collect::<Vec<_>>();
        assert_eq!(check(2 * POLICY.memory_check_readings, 1000), [0; 0]);
        assert_eq!(check(POLICY.memory_check_readings, 1000 + POLICY.memory_growth_bytes), [0; 0]);
        assert_eq!(
            check(POLICY.memory_check_readings, 1001 + POLICY.memory_growth_bytes),
            [1 + POLICY.memory_growth_bytes]
        );
        assert_eq!(check(2 * POLICY.memory_check_readings, 3 * POLICY.memory_growth_bytes), [0; 0]);
    }

    #[test]
    fn own_private_memory_is_read() {
        let before = own_bytes().unwrap();
        // An optimised build leaves out memory that is never used.
        let held = std::hint::black_box(vec![1u8; 512 << 20]);
        // Other tests may free some meanwhile.
        assert!(own_bytes().unwrap() > before + (256 << 20), "{}", held.len());
    }
}
