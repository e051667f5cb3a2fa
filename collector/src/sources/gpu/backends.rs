//! Starts the backends that this machine may have.

use super::worker::{Start, Worker};
use super::{drm, nvml};
use crate::model::gpu::{GpuConfig, NVIDIA, Vendor};

/// The workers, one for each backend. Costs a few `stat` calls where there is no driver.
pub(super) fn start(config: &GpuConfig) -> Vec<Worker> {
    let mut workers = Vec::new();
    if config.wants(Vendor::Nvidia) && config.may_have_nvidia() {
        let own = config.clone();
        let start: Start = Box::new(move || Ok(Box::new(nvml::Nvml::start(&own)?)));
        workers.push(Worker::start(NVIDIA, config, start));
    }
    if (config.wants(Vendor::Amd) || config.wants(Vendor::Intel)) && config.may_have_drm() {
        let own = config.clone();
        let start: Start = Box::new(move || Ok(Box::new(drm::Drm::start(&own)?)));
        workers.push(Worker::start("AMD and Intel", config, start));
    }
    workers
}
