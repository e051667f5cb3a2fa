//! Lists the GPUs and what each can report, before a command runs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::backend::Backend;
use super::worker::Phase;
use super::{detection, drm, nvml};
use crate::model::gpu::listing::{Capability, Driver, Listed, Listing};
use crate::model::gpu::{Batch, Device, DeviceSample, GpuConfig, Missing, TrackedDevice, Vendor, select};

/// What is known of the GPUs without a driver's library, which can take seconds to initialise.
#[derive(Debug, Clone, Default)]
pub struct Present {
    /// The devices that the kernel's files show.
    pub devices: Vec<Device>,
    /// There may be others: the files do not name all NVIDIA devices.
    pub may_have_others: bool,
}

impl Present {
    /// Finds the first name that means no device of the machine for certain.
    #[must_use]
    pub fn unknown<'a>(&self, given: &'a [String]) -> Option<&'a String> {
        // No file names the instances of a divided device.
        let has_nvidia = self.devices.iter().any(|device| device.vendor == Some(Vendor::Nvidia));
        let may_be_part = |name: &str| has_nvidia && name.to_ascii_lowercase().starts_with("mig-");
        let is_unknown = |name: &&String| {
            !self.may_have_others
                && !may_be_part(name)
                && select::unknown(std::slice::from_ref(*name), &self.devices).is_some()
        };
        given.iter().find(is_unknown)
    }
}

/// Finds the GPUs that the kernel's files show.
#[must_use]
pub fn present(config: &GpuConfig) -> Present {
    let mut present = Present::default();
    if config.wants(Vendor::Nvidia) {
        present.devices = nvml::files::devices(config);
        let is_complete = !present.devices.is_empty() && present.devices.iter().all(|gpu| gpu.uuid.is_some());
        // A library that is named without a directory is looked up by the loader.
        let has_library = |path: &PathBuf| path.exists() || path.components().count() == 1;
        present.may_have_others = !is_complete
            && detection::may_have_nvidia(config)
            && config.nvml_lib.as_ref().is_none_or(has_library);
    }
    if config.wants(Vendor::Amd) || config.wants(Vendor::Intel) {
        let drm = drm::Drm::start(config);
        present.devices.extend(drm.map(|mut drm| drm.devices()).unwrap_or_default());
    }
    present
}

/// Ask the drivers, for as long as `patience` at most.
#[must_use]
pub fn list(config: &GpuConfig, patience: Duration) -> Listing {
    // All devices are listed; the options only mark them.
    let everything = GpuConfig {
        uuids: None,
        only_visible: false,
        accounting: false,
        driver_percent: 100,
        ..config.clone()
    };
    let workers = detection::start(&everything);
    let deadline = Instant::now() + patience;
    let mut listing = Listing::default();
    for worker in &workers {
        worker.wait_sampled(deadline);
        let failure = match worker.phase() {
            Phase::Starting | Phase::Reading => {
                Some(format!("driver not initialised within {} s", patience.as_secs()))
            }
            Phase::Failed(Missing::NoDevice) | Phase::Ready | Phase::Done => None,
            Phase::Failed(missing) => Some(missing.to_string()),
        };
        listing.drivers.extend(failure.map(|reason| Driver { name: worker.name.to_owned(), reason }));
        listing.warnings.extend(worker.warnings());
        listing.gpus.extend(gpus(&detection::config_of(worker.name, config), &worker.exchange(&[])));
    }
    listing.count = listing.drivers.is_empty().then_some(listing.gpus.len());
    listing
}

/// Gives the listed devices, with the figures that readings showed.
fn gpus(config: &GpuConfig, batches: &[Batch]) -> Vec<Listed> {
    let listed = batches.iter().rev().find_map(|batch| batch.devices.as_ref());
    let listed = listed.map(|list| list.tracked.clone()).unwrap_or_default();
    let devices: Vec<Device> = listed.iter().map(|listed| listed.device.clone()).collect();
    let tracked = select::wanted(config, &devices);
    let reading_of = |id: &str| {
        let samples = batches.iter().flat_map(|batch| &batch.samples).filter(|sample| sample.device == id);
        samples.cloned().reduce(DeviceSample::with_later)
    };
    let gpu = |TrackedDevice { device, is_visible }: TrackedDevice| Listed {
        tracked: tracked.iter().any(|tracked| tracked.id == device.id),
        visible: is_visible,
        figures: reading_of(&device.id).map(|sample| capabilities(&sample)).unwrap_or_default(),
        device,
    };
    listed.into_iter().map(gpu).collect()
}

/// Gives each figure, and why it is not available if it isn't.
fn capabilities(sample: &DeviceSample) -> Vec<Capability> {
    let all = sample.capabilities().into_iter();
    all.map(|(figure, reading)| {
        let reason = if sample.is_lost { Some(Missing::Lost) } else { reading.err() };
        Capability {
            figure: figure.name().to_owned(),
            available: reason.is_none(),
            reason: reason.map(|missing| missing.to_string()),
        }
    })
    .collect()
}
