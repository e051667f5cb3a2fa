//! NVIDIA, through NVML: `libnvidia-ml.so.1`, which comes with the driver and is loaded at run time.
//!
//! A device is known by its UUID, or by its PCI address if the driver gives no UUID. Each call is independent: a figure whose
//! call fails is missing with its reason, and the others are still read. A [`plan`] decides what is read next.

mod accounting;
mod api;
mod budget;
mod devices;
mod events;
mod facts;
mod figure_kind;
mod figures;
pub(super) mod files;
mod gpm;
mod handle;
mod plan;
mod policy;
mod process_lists;
mod utilization;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use accounting::Accounting;
use api::{Api, call};
use devices::Place;
use events::Events;
use figure_kind::Kind;
use handle::Handle;
use plan::{Plan, Step};
use process_lists::Lists;

use super::backend::{Ask, Backend, Turn};
use crate::model::gpu::{Activity, Device, DeviceSample, Figure, GpuConfig, Missing, Reading};
use crate::sys::{clock, umask};

/// The library's name, as the driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Where some systems have the library outside the loader's search path: containers (Docker, Kubernetes), Colab, WSL, NixOS.
const LIBRARY_DIRECTORIES: [&str; 4] =
    ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// The backend.
pub(crate) struct Nvml {
    api: Api,
    lists: Lists,
    plan: Plan,
    driver_version: Option<String>,
    runtime_version: Option<String>,
    devices: Vec<Handle>,
    events: Events,
    wants_accounting: bool,
    /// The figures that are read on request alone are read.
    reads_on_request: bool,
    /// The performance counters are read.
    reads_gpm: bool,
    /// The directory below which the files of the system are.
    root: PathBuf,
    /// The file that shows that DCGM runs here, once it was looked for.
    dcgm: OnceCell<Option<PathBuf>>,
    /// Why devices that could not be identified can't be read.
    unreadable: BTreeMap<Place, Missing>,
    /// The user named no devices, so a device that could not be identified may be one that should be tracked.
    reports_unreadable: bool,
    warnings: Vec<String>,
    /// How many critical errors are in no device's figures: see [`Self::placed`].
    unplaced_errors: usize,
    /// The names and addresses of devices are asked for at once, since the user names some of them.
    describes_first: bool,
    /// At the last [`Self::has_news`] that was true: the number of devices whose memory was read, and the number that were described.
    counts_at_news: (usize, usize),
}

// SAFETY: NVML is thread-safe, and its handles are valid on every thread (nvml.h).
unsafe impl Send for Nvml {}

impl Nvml {
    /// Loads the library, initialises the driver and creates the set of events. `interval`: the time between two readings that
    /// is asked for.
    ///
    /// # Errors
    /// If the library can't be loaded, crashed when it was tried before, or can't count the devices.
    pub(crate) fn start(config: &GpuConfig, interval: Duration) -> Reading<Self> {
        if let Some(signal) = config.crashed_by {
            return Err(Missing::Crashes(signal));
        }
        // The library can set the umask, for itself and for what this process writes.
        let api = umask::kept(|| load(config))?;
        // A driver that can't count its devices is of no use. Later, a single failure of this call is ignored.
        api.device_count()?;
        Ok(Self::new(api, config, interval))
    }

    /// Creates the set of events, and lists no devices yet.
    fn new(api: Api, config: &GpuConfig, interval: Duration) -> Self {
        let events = Events::new(&api);
        Self {
            lists: Lists::new(&api),
            plan: Plan::new(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX), config.driver_percent),
            driver_version: Api::text(|text, length| call!(api, nvmlSystemGetDriverVersion(text, length))),
            runtime_version: api.cuda_version(),
            devices: Vec::new(),
            events,
            wants_accounting: config.accounting,
            reads_on_request: config.on_request,
            reads_gpm: config.gpm,
            root: config.root.clone(),
            dcgm: OnceCell::new(),
            unreadable: BTreeMap::new(),
            reports_unreadable: config.uuids.is_none(),
            warnings: Vec::new(),
            unplaced_errors: 0,
            describes_first: config.uuids.is_some() || config.visible.slurm.is_some(),
            counts_at_news: (0, 0),
            api,
        }
    }

    /// Reads these kinds of figures of a device one after another (a visit), and tells the plan what they cost. Notes in the handle
    /// whether the device is lost. Then the sample says only that. Returns `None` if the device is not known.
    fn read(&mut self, id: &str, kinds: &[Kind], ask: &Ask<'_>) -> Option<DeviceSample> {
        let pids = ask.pids;
        if kinds.contains(&Kind::Details) {
            self.describe(id);
        }
        // The interval of each kind begins with the visit. Costs are measured kind by kind.
        let (key, began_ns) = (Some(id.to_owned()), clock::monotonic_ns());
        let handle = self.devices.iter_mut().find(|handle| handle.device.id == id);
        let is_known = handle.is_some();
        let Some(handle) = handle.filter(|handle| handle.may_answer(kinds)) else {
            kinds.iter().for_each(|kind| self.plan.set_due(&key, *kind, began_ns));
            return is_known.then(|| DeviceSample::lost(id));
        };
        let mut sample = DeviceSample::of_device(id);
        for kind in kinds.iter().filter(|kind| **kind != Kind::Details) {
            let from_ns = clock::monotonic_ns();
            if kind.is_memory() {
                let (used_known_ns, has_read_lists) =
                    figures::memory_and_lists(&self.api, &self.lists, handle, &mut sample, *kind, pids);
                let used_took_ns = used_known_ns.saturating_sub(from_ns);
                let all_took_ns = has_read_lists.then(|| sample.listed_ns.saturating_sub(from_ns));
                self.plan.note_and_charge_memory(&key, *kind, began_ns, used_took_ns, all_took_ns);
            } else {
                figures::read(&self.api, handle, &mut sample, *kind, pids);
                if ask.is_last
                    && *kind == Kind::Utilization
                    && let Some(Ok(busy)) = &mut sample.busy
                {
                    busy.extend(handle.progress.rest());
                }
                adapt(&mut self.plan, handle, &sample, *kind, pids);
                let took_ns = clock::monotonic_ns().saturating_sub(from_ns);
                self.plan.note_and_charge(&key, *kind, began_ns, took_ns);
            }
            handle.is_gone = sample.is_lost || sample.is_any_lost();
            if handle.is_gone {
                return Some(DeviceSample::lost(id));
            }
        }
        Some(sample)
    }

    /// Takes what was read of new devices when they were found, if they are wanted. Tells the plan of these readings.
    fn first_readings(&mut self, wanted: &[String]) -> Vec<DeviceSample> {
        let mut samples = Vec::new();
        for handle in self.devices.iter_mut().filter(|handle| wanted.contains(&handle.device.id)) {
            let Some((sample, took_ns)) = handle.first.take() else { continue };
            self.plan.note_read(&Some(handle.device.id.clone()), Kind::Energy, sample.at_ns, took_ns);
            samples.push(sample);
        }
        samples
    }

    /// Takes the critical errors (XIDs) since the last reading. Returns a sample for each wanted device that was registered for them,
    /// which happens when it is described ([`Self::describe`]). Errors of devices that are not wanted are dropped.
    fn read_events(&mut self, wanted: &[String]) -> Vec<DeviceSample> {
        let began_ns = clock::monotonic_ns();
        let taken = self.events.take(&self.api);
        let took_ns = clock::monotonic_ns().saturating_sub(began_ns);
        let all_devices = None;
        self.plan.note_and_charge(&all_devices, Kind::Events, began_ns, took_ns);
        let taken = taken.map(|errors| self.placed(errors));
        let mut samples = Vec::new();
        for handle in self.devices.iter().filter(|handle| wanted.contains(&handle.device.id)) {
            let Some(registered) = handle.events.clone() else { continue };
            // All devices share one event set. It can be lost after a device was registered in it.
            let xids = registered.and(taken.clone()).map(|errors| {
                let of_device = errors.iter().filter(|(device, _)| *device == handle.raw);
                of_device.map(|(_, xid)| *xid).collect()
            });
            samples.push(DeviceSample { xids: Some(xids), ..DeviceSample::of_device(&handle.device.id) });
        }
        samples
    }

    /// Those of the `errors` that are of a known device, and whose number can be one. The others are counted for a warning.
    fn placed(&mut self, errors: Vec<(nvmlDevice_t, u64)>) -> Vec<(nvmlDevice_t, u64)> {
        let is_known = |raw: nvmlDevice_t| self.devices.iter().any(|handle| handle.raw == raw);
        let (placed, others): (Vec<_>, Vec<_>) =
            errors.into_iter().partition(|(raw, xid)| *xid <= policy::LARGEST_XID && is_known(*raw));
        self.unplaced_errors += others.len();
        placed
    }
}

/// Loads the library that the user named, or NVIDIA's from the loader's search path or one of [`LIBRARY_DIRECTORIES`].
fn load(config: &GpuConfig) -> Reading<Api> {
    if let Some(path) = &config.nvml_lib {
        return Api::load(path.as_os_str());
    }
    let loaded = Api::load(LIBRARY.as_ref());
    if let Err(Missing::NoLibrary(_)) = &loaded {
        let mut paths = LIBRARY_DIRECTORIES.iter().map(|directory| config.path(directory).join(LIBRARY));
        if let Some(path) = paths.find(|path| path.exists()) {
            return Api::load(path.as_os_str());
        }
    }
    loaded
}

/// Tells the plan what a reading of a `kind` shows about later readings: how long the driver keeps samples, when a counter can wrap, and
/// which figures need not be read any more.
fn adapt(plan: &mut Plan, handle: &Handle, sample: &DeviceSample, kind: Kind, pids: &[u32]) {
    let id = &sample.device;
    match kind {
        Kind::Utilization => match &sample.busy {
            None => {}
            // No sample counts: none is new or, at the first reading, all are from before the run.
            Some(Ok(stretches)) if stretches.is_empty() => {}
            Some(_) => {
                plan.set_sample_memory(id, handle.progress.memory_ns());
                if let Some(spacing_us) = handle.progress.spacing_us() {
                    plan.set_sample_spacing(id, spacing_us.saturating_mul(1000));
                }
            }
        },
        // A process of the run that the lists lack uses the device, so the lists are old.
        Kind::ProcessUtilization => {
            let running = sample.process_busy.iter().flatten().flatten().map(|busy| busy.pid);
            if handle.lists.lacks_any(running.filter(|pid| pids.contains(pid))) {
                plan.want_all_lists(id);
            }
        }
        Kind::Gpm => match &sample.activity {
            // These reasons do not pass. An instance's counters come with its utilization.
            Some(Err(
                Missing::NotSupported | Missing::NoCall | Missing::NoGpm | Missing::ReportedByInstances,
            )) => plan.set_never(id, kind),
            _ if handle.parent_raw.is_some() => plan.set_never(id, kind),
            // These have the rates of PCIe, too. The device's PCIe counters are not needed then: a fast link wraps them too soon.
            Some(Ok(activity)) if tells_pcie(activity) => plan.set_never(id, Kind::Pcie),
            _ => {}
        },
        // A counter of 32 bits can wrap in the time in which the link carries 2^32 bytes.
        Kind::Pcie => {
            if let Some(bytes_per_s) = sample.link_bytes_per_s {
                plan.set_wrap(id, ((1_u64 << 32) as f64 / bytes_per_s as f64 * 1e9) as u64);
            }
        }
        _ => {}
    }
}

/// Whether the performance counters tell the rates of PCIe.
fn tells_pcie(activity: &Activity) -> bool {
    let is_told = |figure| activity.values.iter().any(|(other, value)| *other == figure && value.is_ok());
    is_told(Figure::PcieTxRate) && is_told(Figure::PcieRxRate)
}

impl Backend for Nvml {
    /// Lists the devices that are present. The driver's time for that is a debt, which the plan pays back.
    fn devices(&mut self) -> Vec<Device> {
        let began_ns = clock::monotonic_ns();
        // If the call fails, the known devices stay.
        if let Ok(count) = self.api.device_count() {
            self.refresh(count);
        }
        let now_ns = clock::monotonic_ns();
        self.plan.owe(now_ns, now_ns.saturating_sub(began_ns));
        self.known_devices()
    }

    fn known_devices(&self) -> Vec<Device> {
        self.devices.iter().filter(|handle| handle.is_present).map(|handle| handle.device.clone()).collect()
    }

    /// Hands over what was read of new devices when they were found. If there is nothing of that, does the next step of the plan.
    fn turn(&mut self, ask: &Ask<'_>) -> Turn {
        self.plan.set_devices(ask.wanted, ask.hidden, ask.at_ns);
        let first = self.first_readings(ask.wanted);
        if !first.is_empty() {
            return Turn { samples: first, again_ns: Some(0), ..Turn::default() };
        }
        let step = if ask.is_last { self.plan.next_at_end() } else { self.plan.next(ask.at_ns) };
        let (samples, again_ns) = match step {
            Step::Read(Some(id), kinds) => (self.read(&id, &kinds, ask).into_iter().collect(), 0),
            Step::Read(None, _) => (self.read_events(ask.wanted), 0),
            Step::WaitUntil(at_ns) => (Vec::new(), at_ns),
            // What is known of the devices by now is handed over, although it may not be complete.
            Step::Over => return Turn { has_news: true, is_complete: true, ..Turn::default() },
        };
        Turn {
            samples,
            again_ns: Some(again_ns),
            has_news: self.has_news(),
            // At the end of the run, only `Step::Over` is complete.
            is_complete: !ask.is_last && self.plan.is_complete(),
        }
    }

    fn changed_settings(&self) -> usize {
        let accounting = self.devices.iter().filter_map(|handle| handle.accounting.as_ref());
        accounting.filter(|accounting| accounting.must_restore()).count()
    }

    /// Switches accounting off on one of the devices on which the collector has switched it on.
    fn restore_one(&mut self) {
        let is_changed =
            |handle: &&mut Handle| handle.accounting.as_ref().is_some_and(Accounting::must_restore);
        let Some(handle) = self.devices.iter_mut().find(is_changed) else { return };
        let accounting = handle.accounting.as_mut();
        let warning = accounting.and_then(|accounting| accounting.restore(&self.api, handle.raw));
        if let Some(warning) = warning {
            self.warnings.push(format!("--gpu-accounting: {}: {warning}.", handle.device.id));
        }
    }

    fn has_all(&self) -> bool {
        self.unreadable.keys().all(|place| !place.is_whole())
    }

    fn unreadable(&self) -> Vec<Missing> {
        self.unreadable.values().cloned().collect()
    }

    fn warnings(&self) -> Vec<String> {
        let line = |(place, why)| format!("{place} of the NVIDIA driver could not be read: {why}.");
        let reads_counters = self.devices.iter().any(|handle| matches!(handle.gpm, Some(Ok(_))));
        // Looked for once a run, and only where it matters.
        let sign =
            if reads_counters { self.dcgm.get_or_init(|| files::dcgm(&self.root)).as_ref() } else { None };
        let dcgm = sign.map(|sign| {
            format!(
                "DCGM runs on this machine ({}). If it profiles, its figures and those of the GPUs' performance counters \
                 disturb each other: --no-gpm leaves the counters to it.",
                sign.display()
            )
        });
        let unplaced = (self.unplaced_errors > 0).then(|| {
            format!(
                "The NVIDIA driver reported critical errors (XID) that are in no GPU's figures: {} of them have a number that \
                 is none, or are of a GPU that it did not list.",
                self.unplaced_errors
            )
        });
        let warnings = self.unreadable.iter().map(line).chain(self.warnings.iter().cloned());
        warnings.chain(dcgm).chain(unplaced).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-88
    #[test]
    fn critical_errors_that_can_be_of_no_device_are_counted_in_a_warning() {
        let raw = std::ptr::without_provenance_mut;
        let mut nvml = Nvml::new(Api::without_calls(), &GpuConfig::default(), Duration::from_millis(100));
        nvml.devices.push(Handle::new(raw(8), Device::default(), None));
        assert_eq!(nvml.placed(vec![(raw(8), 13), (raw(8), 79)]), [(raw(8), 13), (raw(8), 79)]);
        assert_eq!(nvml.warnings(), [""; 0]);
        assert_eq!(nvml.placed(vec![(raw(8), 70_000), (raw(16), 79), (raw(8), 31)]), [(raw(8), 31)]);
        assert!(nvml.warnings()[0].contains(": 2 of them "), "{:?}", nvml.warnings());
    }
}
