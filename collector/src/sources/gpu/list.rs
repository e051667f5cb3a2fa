//! Lists the GPUs, what each can report, and what it shows now.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::now::{Processes, now};
use super::worker::{Phase, Worker};
use super::{detection, drm, nvml, policy};
use crate::model::gpu::listing::{Capability, Driver, GpuNow, Listed, Listing};
use crate::model::gpu::{Batch, Device, DeviceSample, GpuConfig, Missing, TrackedDevice, Vendor, select};
use crate::sys::{clock, local_time};

/// What is known of the GPUs without a driver's library, which can take seconds to initialise.
#[derive(Debug, Clone, Default)]
pub struct Present {
    /// The devices that the kernel's files show.
    pub devices: Vec<Device>,
    /// NVIDIA's library may know names that the files lack: those of more devices, or UUIDs of these devices.
    pub may_know_other_names: bool,
}

impl Present {
    /// Finds the first of the `given` names that certainly means no device of the machine. `None`: each name means one, or may.
    pub fn unknown<'a>(&self, given: &'a [String]) -> Option<&'a String> {
        // No file names the MIG instances of a divided device.
        let has_nvidia = self.devices.iter().any(|device| device.vendor == Some(Vendor::Nvidia));
        let may_be_instance = |name: &str| has_nvidia && name.to_ascii_lowercase().starts_with("mig-");
        let is_unknown = |name: &&String| {
            !self.may_know_other_names
                && !may_be_instance(name)
                && select::unknown(std::slice::from_ref(*name), &self.devices).is_some()
        };
        given.iter().find(is_unknown)
    }
}

/// Finds the GPUs of the wanted vendors by the kernel's files, so that `--guuids` can be checked before the command starts. Loads
/// no driver's library.
pub fn present(config: &GpuConfig) -> Present {
    let mut present = Present::default();
    if config.wants(Vendor::Nvidia) {
        present.devices = nvml::files::devices(config);
        // The files show a UUID only after the device was initialised. Without it, a given UUID may be that device's.
        let has_all_uuids =
            !present.devices.is_empty() && present.devices.iter().all(|gpu| gpu.uuid.is_some());
        // A path that does not exist loads nothing. A bare file name is searched for by the loader, so the file may exist
        // elsewhere.
        let is_bare_name = |path: &PathBuf| path.components().count() == 1;
        let may_load = |path: &PathBuf| path.exists() || is_bare_name(path);
        present.may_know_other_names = !has_all_uuids
            && detection::may_have_nvidia(config)
            && config.nvml_lib.as_ref().is_none_or(may_load);
    }
    if config.wants(Vendor::Amd) || config.wants(Vendor::Intel) {
        let drm = drm::Drm::start(config);
        present.devices.extend(drm.map(|mut drm| drm.devices()).unwrap_or_default());
    }
    present
}

/// Asks the drivers, once or again and again.
#[derive(Debug)]
pub struct Lister {
    config: GpuConfig,
    backends: Vec<BackendInfo>,
    processes: Processes,
    /// Until when the drivers are waited for. `None`: nothing was listed yet.
    deadline: Option<Instant>,
}

/// A backend, and what it has told so far.
#[derive(Debug)]
struct BackendInfo {
    worker: Worker,
    devices: Vec<TrackedDevice>,
    /// The last reading of each figure.
    samples: Vec<DeviceSample>,
}

impl Lister {
    /// Starts a worker for each backend that may have devices.
    pub fn start(config: &GpuConfig) -> Self {
        // All devices are listed. The options for devices only mark some of them.
        let everything = GpuConfig {
            uuids: None,
            only_visible: false,
            accounting: false,
            // No run goes on that the calls could slow down.
            driver_percent: 100,
            on_request: true,
            ..config.clone()
        };
        let workers = detection::start(&everything).into_iter();
        let backends = workers.map(|worker| BackendInfo { worker, devices: Vec::new(), samples: Vec::new() });
        Self {
            config: config.clone(),
            backends: backends.collect(),
            processes: Processes::new(),
            deadline: None,
        }
    }

    /// Lists the devices with the last figures. The first call waits for figures, for `patience` at most. Later calls wait for what is
    /// left of that, so that a driver that hangs holds up one list only.
    pub fn list(&mut self, patience: Duration) -> Listing {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + patience);
        let mut listing = Listing::default();
        for known in &mut self.backends {
            let worker = &known.worker;
            worker.wait_sampled(deadline);
            listing.drivers.extend(
                failure(&worker.phase(), patience)
                    .map(|reason| Driver { name: worker.name.to_owned(), reason }),
            );
            listing.warnings.extend(worker.warnings());
            // There is no run, so there are no processes of one.
            let batches = worker.exchange(&[]);
            let is_silent = is_silent(worker, self.config.interval_ns);
            if is_silent {
                listing.warnings.push(format!("{}: the driver does not answer", worker.name));
            }
            batches.into_iter().for_each(|batch| known.take_in(batch));
            let config = detection::config_of(known.worker.name, &self.config);
            let mut gpus = known.gpus(&config, &mut self.processes);
            if is_silent {
                // What was read before is not what the GPUs show now.
                gpus.iter_mut().for_each(|gpu| gpu.now = GpuNow::default());
            }
            listing.gpus.extend(gpus);
        }
        listing.warnings.extend(self.processes.warning(&listing));
        // If a driver failed, the number of its devices is not known, and so the sum is not.
        let whole = listing.gpus.iter().filter(|gpu| gpu.device.parent.is_none()).count();
        listing.count = listing.drivers.is_empty().then_some(whole);
        listing.hostname = Some(rustix::system::uname().nodename().to_string_lossy().into_owned());
        listing.timestamp = local_time::with_milliseconds(clock::realtime_ns());
        listing
    }
}

impl BackendInfo {
    /// Takes in a batch: the devices if they changed, and the last reading of each figure.
    fn take_in(&mut self, batch: Batch) {
        if let Some(list) = batch.devices {
            self.devices = list.tracked;
        }
        for sample in batch.samples {
            match self.samples.iter_mut().find(|known| known.device == sample.device) {
                Some(known) => {
                    let before = std::mem::take(known);
                    *known = sample.over_earlier(before);
                }
                None => self.samples.push(sample),
            }
        }
    }

    /// The devices, with the figures that readings showed. `config` tells which of them a run would track.
    fn gpus(&self, config: &GpuConfig, processes: &mut Processes) -> Vec<Listed> {
        let devices: Vec<Device> = self.devices.iter().map(|listed| listed.device.clone()).collect();
        let tracked = select::wanted(config, &devices, self.worker.unreadable().is_empty());
        let gpu = |TrackedDevice { device, is_visible }: &TrackedDevice| {
            let sample = self.samples.iter().find(|sample| sample.device == device.id);
            // A lost device shows nothing, whatever was read before.
            let current = sample.filter(|sample| !sample.is_lost);
            Listed {
                tracked: tracked.iter().any(|tracked| tracked.id == device.id),
                visible: *is_visible,
                figures: sample.map(capabilities).unwrap_or_default(),
                now: current.map(|sample| now(device, sample, processes)).unwrap_or_default(),
                device: device.clone(),
            }
        };
        self.devices.iter().map(gpu).collect()
    }
}

/// Whether a driver that has answered before does not any more: a call hangs, or the last reading is older than three intervals.
fn is_silent(worker: &Worker, interval_ns: u64) -> bool {
    let now_ns = clock::monotonic_ns();
    let interval = Duration::from_nanos(interval_ns).max(policy::SHORTEST_INTERVAL);
    let has_answered = matches!(worker.phase(), Phase::Ready);
    let is_old = worker.age(now_ns) > policy::LATE_READING.max(interval.saturating_mul(3));
    has_answered && (worker.unresponsive_since_ns(now_ns).is_some() || is_old)
}

/// Says why a driver has told nothing within this time. `None`: it has, or the machine has no device of it.
fn failure(phase: &Phase, patience: Duration) -> Option<String> {
    match phase {
        Phase::Starting => Some(format!("driver not initialised within {} s", patience.as_secs())),
        Phase::Reading => {
            Some(format!("the driver's first reading was not complete within {} s", patience.as_secs()))
        }
        Phase::Failed(Missing::NoDevice) | Phase::Ready | Phase::Done => None,
        Phase::Failed(missing) => Some(missing.to_string()),
    }
}

/// The figures of a device, each with the reason if it is not available.
fn capabilities(sample: &DeviceSample) -> Vec<Capability> {
    let mut capabilities = Vec::new();
    for (figure, reading) in sample.capabilities() {
        let reason = if sample.is_lost { Some(Missing::Lost) } else { reading.err() };
        capabilities.push(Capability {
            figure: figure.name().to_owned(),
            available: reason.is_none(),
            reason: reason.map(|missing| missing.to_string()),
        });
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    // Requirement: GPU-17
    #[test]
    fn driver_that_hangs_holds_up_one_list_only() {
        let (release, stuck) = mpsc::channel::<()>();
        // Were it waited for again, it would fail in time for that list.
        let longest = Duration::from_secs(5);
        let hang = Box::new(move || {
            let _ = stuck.recv_timeout(longest);
            Err(Missing::NoDriver)
        });
        let config = GpuConfig::default();
        let worker = Worker::start("stuck", &config, hang);
        let backend = BackendInfo { worker, devices: Vec::new(), samples: Vec::new() };
        let mut lister =
            Lister { config, backends: vec![backend], processes: Processes::new(), deadline: None };
        for patience in [Duration::ZERO, longest * 6] {
            let listing = lister.list(patience);
            assert!(listing.drivers[0].reason.starts_with("driver not initialised"), "{listing:?}");
        }
        drop(release);
    }

    // Requirement: GPU-17
    #[test]
    fn driver_that_hangs_is_said_to_hang_where_it_does() {
        let said = |phase| failure(&phase, Duration::from_secs(30));
        assert_eq!(said(Phase::Starting).as_deref(), Some("driver not initialised within 30 s"));
        let reading = said(Phase::Reading);
        assert_eq!(reading.as_deref(), Some("the driver's first reading was not complete within 30 s"));
        assert_eq!([Phase::Ready, Phase::Failed(Missing::NoDevice)].map(said), [None, None]);
    }
}
