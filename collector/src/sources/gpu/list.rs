//! Lists the GPUs and what each can report, before a command runs.

use std::time::{Duration, Instant};

use super::backends;
use super::worker::Phase;
use crate::model::gpu::listing::{Capability, Driver, Listed, Listing};
use crate::model::gpu::{Batch, Device, DeviceSample, GpuConfig, Missing, select};

/// Ask the drivers, for as long as `patience` at most.
#[must_use]
pub fn list(config: &GpuConfig, patience: Duration) -> Listing {
    // All devices are listed; the options only mark them.
    let everything = GpuConfig { uuids: None, only_visible: false, accounting: false, ..config.clone() };
    let workers = backends::start(&everything);
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
        // The first reading has the devices.
        if let Some(batch) = worker.exchange(&[]).into_iter().next() {
            listing.gpus.extend(gpus(&backends::config_of(worker.name, config), batch));
        }
    }
    listing
}

fn gpus(config: &GpuConfig, batch: Batch) -> Vec<Listed> {
    let listed = batch.devices.unwrap_or_default().tracked;
    let devices: Vec<Device> = listed.iter().map(|listed| listed.device.clone()).collect();
    let tracked: Vec<&str> =
        select::wanted(config, &devices).into_iter().map(|device| device.id.as_str()).collect();
    let gpu = |(device, visible): (&Device, Option<bool>)| Listed {
        tracked: tracked.contains(&device.id.as_str()),
        visible,
        figures: batch
            .samples
            .iter()
            .find(|sample| sample.device == device.id)
            .map(capabilities)
            .unwrap_or_default(),
        device: device.clone(),
    };
    devices.iter().zip(listed.iter().map(|listed| listed.is_visible)).map(gpu).collect()
}

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
