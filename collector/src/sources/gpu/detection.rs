//! Starts the backends that this machine may have.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::policy;
use super::worker::{Start, Worker};
use super::{drm, nvml};
use crate::model::gpu::{AMD_AND_INTEL, GpuConfig, NVIDIA, Vendor};

/// Starts a worker for each backend that may have devices. Costs a few `stat` calls where there is no driver.
pub(super) fn start(config: &GpuConfig) -> Vec<Worker> {
    let interval = Duration::from_nanos(config.interval_ns).max(policy::SHORTEST_INTERVAL);
    let worker = |backend: &'static str| {
        let config = config_of(backend, config);
        let of_thread = config.clone();
        let start: Start = match backend {
            NVIDIA => Box::new(move || Ok(Box::new(nvml::Nvml::start(&of_thread, interval)?))),
            _ => Box::new(move || Ok(Box::new(drm::Drm::start(&of_thread)?))),
        };
        Worker::start(backend, &config, start)
    };
    backends(config).into_iter().map(worker).collect()
}

/// Names the backends that are asked for and may have devices.
pub(crate) fn backends(config: &GpuConfig) -> Vec<&'static str> {
    let has_nvidia = config.wants(Vendor::Nvidia) && may_have_nvidia(config);
    let wants_drm = config.wants(Vendor::Amd) || config.wants(Vendor::Intel);
    let drivers = ["/sys/class/drm", "/sys/class/kfd"];
    let has_drm = wants_drm && drivers.iter().any(|path| config.path(path).is_dir());
    let all = [(has_nvidia, NVIDIA), (has_drm, AMD_AND_INTEL)];
    all.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}

/// The configuration for a backend ([`NVIDIA`] or [`AMD_AND_INTEL`]). HIP reads CUDA_VISIBLE_DEVICES, too. Where there may
/// be NVIDIA devices, the variable is meant for those, so AMD's configuration is without it.
pub(super) fn config_of(backend: &str, config: &GpuConfig) -> GpuConfig {
    let mut own = config.clone();
    if backend == AMD_AND_INTEL && may_have_nvidia(config) {
        own.visible.cuda = None;
    }
    own
}

/// Whether there are signs of an NVIDIA driver: a library named by the user, or the driver's files. This takes three system
/// calls, so that a machine without a driver pays no thread and no dlopen.
pub(super) fn may_have_nvidia(config: &GpuConfig) -> bool {
    let files = ["/dev/dxg", "/proc/driver/nvidia/version"];
    config.nvml_lib.is_some()
        || files.iter().any(|path| config.path(path).exists())
        || is_served(&config.path("/dev/nvidiactl"))
}

/// Whether there is this device node and a driver behind it. NVIDIA's libraries create /dev/nvidiactl where root loads them, with
/// and without a driver.
fn is_served(node: &Path) -> bool {
    // Opening the node loads a driver that is loaded on demand.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(node);
    let absent = [libc::ENOENT, libc::ENOTDIR, libc::ENXIO, libc::ENODEV].map(Some);
    opened.err().is_none_or(|error| !absent.contains(&error.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_node_without_a_driver_is_no_sign_of_one() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("dev/nvidiactl");
        std::fs::create_dir(root.path().join("dev")).unwrap();
        let config = GpuConfig { root: root.path().to_owned(), ..GpuConfig::default() };
        assert!(!may_have_nvidia(&config));
        // To open a socket fails as to open a node without a driver does: ENXIO.
        let socket = std::os::unix::net::UnixListener::bind(&node).unwrap();
        assert!(!may_have_nvidia(&config));
        drop(socket);
        std::fs::remove_file(&node).unwrap();
        std::fs::write(&node, "").unwrap();
        assert!(may_have_nvidia(&config));
    }
}
