//! What files show without the library: the kernel module's of the devices (`/proc/driver/nvidia/gpus/*/information`), and whether DCGM
//! runs.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::model::gpu::{Device, GpuConfig, Vendor};

/// Lists the devices, with UUIDs as far as those are known: the module knows one once the device was initialised.
pub(in crate::sources::gpu) fn devices(config: &GpuConfig) -> Vec<Device> {
    let directories = fs::read_dir(config.path("/proc/driver/nvidia/gpus"));
    let paths = directories.into_iter().flatten().flatten().map(|entry| entry.path().join("information"));
    let mut texts: Vec<String> = paths.filter_map(|path| fs::read_to_string(path).ok()).collect();
    texts.sort();
    texts.iter().filter_map(|text| device(text)).collect()
}

/// Parses the text of a device. `None`: it names neither UUID nor address.
fn device(text: &str) -> Option<Device> {
    let value = |key: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).next()
    };
    let uuid = value("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'));
    let pci_address = value("Bus Location").map(|address| address.to_ascii_lowercase());
    Some(Device {
        id: uuid.clone().or_else(|| pci_address.clone())?,
        uuid,
        pci_address,
        name: value("Model"),
        vendor: Some(Vendor::Nvidia),
        source: "nvidia".into(),
        ..Device::default()
    })
}

/// Where a running DCGM shows: the cgroup of its service, by version of cgroups.
const DCGM_CGROUPS: [&str; 2] = [
    "sys/fs/cgroup/system.slice/nvidia-dcgm.service",
    "sys/fs/cgroup/systemd/system.slice/nvidia-dcgm.service",
];
/// The pid file of DCGM's engine.
const DCGM_PID: &str = "run/nvhostengine.pid";

/// The file that shows that DCGM runs on this machine. `None`: none does, or it runs where these files do not show it.
pub(super) fn dcgm(root: &Path) -> Option<PathBuf> {
    let cgroup = DCGM_CGROUPS.iter().map(|path| root.join(path)).find(|path| path.exists());
    cgroup.or_else(|| {
        let path = root.join(DCGM_PID);
        let mut text = String::new();
        // A FIFO in its place would hold an ordinary open up.
        let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).ok()?;
        file.take(32).read_to_string(&mut text).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        // An engine that was killed leaves the file.
        root.join(format!("proc/{pid}")).exists().then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn information_names_a_device_by_uuid_and_bus() {
        let text = "Model: \t\t NVIDIA H100\nIRQ:   \t\t 120\nGPU UUID: \t GPU-8f6c\nBus Location: \t 0000:1B:00.0\n";
        let known = device(text).unwrap();
        assert_eq!((known.id.as_str(), known.name.as_deref()), ("GPU-8f6c", Some("NVIDIA H100")));
        assert_eq!(known.pci_address.as_deref(), Some("0000:1b:00.0"));
        let unknown = device(&text.replace("8f6c", "????")).unwrap();
        assert_eq!((unknown.id.as_str(), unknown.uuid), ("0000:1b:00.0", None));
    }
}
