//! A process's DRM clients, from `/proc/PID/fdinfo/FD` (the kernel's drm-usage-stats.rst).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::gpu::pid_facts::DRM_DEVICES;
use crate::sys::proc_fs::ProcRoot;

/// One open file of a DRM device. Many descriptors, of many processes, can refer to one client.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Client {
    /// `drm-driver`.
    pub driver: String,
    /// `drm-pdev`, the device's PCI address.
    pub pdev: String,
    /// `drm-client-id`, unique within the device.
    pub id: u64,
    /// The number of the render node by which the client was opened (`/dev/dri/renderD129`). It tells partitions of a device
    /// apart. `None`: the client was opened by another node, or the descriptor's target may not be read.
    pub render_minor: Option<u32>,
    /// Memory of the device itself (not of the machine) that the client holds, bytes; `None`: no such region is reported.
    pub device_bytes: Option<u64>,
    /// The use of each engine, by its name.
    pub engines: BTreeMap<String, Engine>,
}

/// One engine's use by one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Engine {
    /// Busy time, nanoseconds (`drm-engine-`), or cycles (`drm-cycles-`).
    pub busy: u64,
    /// Cycles that passed (`drm-total-cycles-`), where busy is in cycles.
    pub total_cycles: Option<u64>,
    /// Engines of this name (`drm-engine-capacity-`), 1 if not reported.
    pub capacity: u64,
}

impl Client {
    /// Parses the text of an fdinfo file. `None`: the file is not of a DRM device, or lacks the keys that name the client.
    pub fn parse(text: &str) -> Option<Self> {
        let mut client = Self::default();
        let mut has_id = false;
        // For each memory region, its bytes by the keys `drm-resident-`, `drm-memory-` and `drm-total-`. Of those that a driver
        // reports, the first counts.
        let mut regions: BTreeMap<&str, [Option<u64>; 3]> = BTreeMap::new();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let Some(key) = key.strip_prefix("drm-") else { continue };
            match key {
                "driver" => client.driver = value.to_owned(),
                "pdev" => client.pdev = value.to_ascii_lowercase(),
                "client-id" => {
                    client.id = value.parse().ok()?;
                    has_id = true;
                }
                _ => {
                    client.take_engine_line(key, value);
                    for (kind, prefix) in ["resident-", "memory-", "total-"].into_iter().enumerate() {
                        if let Some(region) = key.strip_prefix(prefix)
                            && is_device_region(region)
                        {
                            regions.entry(region).or_default()[kind] = bytes(value);
                        }
                    }
                }
            }
        }
        // The memory of all regions is added up.
        let of_regions = regions.values().filter_map(|kinds| kinds.iter().flatten().next());
        client.device_bytes = of_regions.copied().reduce(u64::saturating_add);
        (has_id && !client.pdev.is_empty()).then_some(client)
    }

    /// Takes in a line about an engine: its busy time, cycles or capacity. Other lines change nothing.
    fn take_engine_line(&mut self, key: &str, value: &str) {
        let Some(number) = value.split(' ').next().and_then(|digits| digits.parse::<u64>().ok()) else {
            return;
        };
        if let Some(name) = key.strip_prefix("engine-capacity-") {
            self.engine(name).capacity = number.max(1);
        } else if let Some(name) = key.strip_prefix("engine-").or_else(|| key.strip_prefix("cycles-")) {
            self.engine(name).busy = number;
        } else if let Some(name) = key.strip_prefix("total-cycles-") {
            self.engine(name).total_cycles = Some(number);
        }
    }

    /// The engine of this name, which is added if it is new.
    fn engine(&mut self, name: &str) -> &mut Engine {
        self.engines.entry(name.to_owned()).or_insert(Engine { capacity: 1, ..Engine::default() })
    }
}

/// Whether a region is the device's memory: amdgpu's and xe's `vram`, `vram0`, ...; i915's `local0`, ...
fn is_device_region(region: &str) -> bool {
    ["vram", "local"].iter().any(|kind| {
        region.strip_prefix(kind).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Parses `123 KiB`, `4 MiB`, or plain bytes, into bytes.
fn bytes(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let factor: u64 = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Reads the DRM clients of a process. A process that is gone, or whose descriptors may not be read, has none.
pub(super) fn clients(proc_root: &Path, pid: u32) -> Vec<Client> {
    let process = proc_root.join(pid.to_string());
    // After the main thread of a process has ended, only its other threads show the files.
    let of_threads = || {
        let threads = ProcRoot::new(proc_root).threads(pid).into_iter();
        threads.map(|thread| process.join("task").join(thread.to_string())).find_map(|task| clients_of(&task))
    };
    clients_of(&process).or_else(of_threads).unwrap_or_default()
}

/// Reads the DRM clients of a process or thread. `None`: it has no files at all.
fn clients_of(task: &Path) -> Option<Vec<Client>> {
    let mut entries = fs::read_dir(task.join("fdinfo")).ok()?.flatten().peekable();
    entries.peek()?;
    let client_of = |entry: fs::DirEntry| {
        // Reading a link is much cheaper than an fdinfo file, for which the driver writes a page.
        let target = fs::read_link(task.join("fd").join(entry.file_name())).ok();
        let is_other = |target: &PathBuf| !DRM_DEVICES.iter().any(|directory| target.starts_with(directory));
        if target.as_ref().is_some_and(is_other) {
            return None;
        }
        let client = Client::parse(&fs::read_to_string(entry.path()).ok()?)?;
        let node = target.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        let render_minor = node.and_then(|node| node.strip_prefix("renderD")?.parse().ok());
        Some(Client { render_minor, ..client })
    };
    Some(entries.filter_map(client_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amdgpu_memory_region_comes_before_total() {
        let client = Client::parse(
            "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t1\ndrm-driver:\tamdgpu\ndrm-client-id:\t48\n\
             drm-pdev:\t0000:03:00.0\npasid:\t32771\ndrm-total-vram:\t900 KiB\ndrm-memory-vram:\t700 KiB\n\
             drm-memory-gtt: \t4096 KiB\ndrm-engine-gfx:\t1500000000 ns\ndrm-engine-compute:\t7 ns\n",
        )
        .unwrap();
        assert_eq!((client.driver.as_str(), client.pdev.as_str(), client.id), ("amdgpu", "0000:03:00.0", 48));
        assert_eq!(client.device_bytes, Some(700 << 10), "memory before total, and no memory of the machine");
        assert_eq!(client.engines["gfx"], Engine { busy: 1_500_000_000, total_cycles: None, capacity: 1 });
    }

    #[test]
    fn xe_example_of_the_kernel_parses() {
        let client = Client::parse(
            "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-gtt:\t192 KiB\n\
             drm-total-vram0:\t23992 KiB\ndrm-shared-vram0:\t16 MiB\ndrm-resident-vram0:\t20000 KiB\n\
             drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\ndrm-engine-capacity-ccs:\t4\n",
        )
        .unwrap();
        assert_eq!(client.device_bytes, Some(20_000 << 10));
        assert_eq!(
            client.engines["rcs"],
            Engine { busy: 28_257_900, total_cycles: Some(7_655_183_225), capacity: 1 }
        );
        assert_eq!(client.engines["ccs"].capacity, 4);
    }

    #[test]
    fn i915_of_a_processor_has_no_device_memory() {
        let client = Client::parse(
            "drm-driver: i915\ndrm-client-id: 7\ndrm-pdev: 0000:00:02.0\ndrm-total-system0: 12 MiB\n\
             drm-engine-render: 123 ns\ndrm-engine-capacity-video: 2\n",
        )
        .unwrap();
        assert_eq!(client.device_bytes, None);
    }

    #[test]
    fn files_without_client_keys_are_none() {
        assert_eq!(Client::parse("pos:\t0\nflags:\t02\n"), None);
        assert_eq!(Client::parse("drm-driver: amdgpu\ndrm-client-id: x\ndrm-pdev: 0000:03:00.0\n"), None);
        assert_eq!(Client::parse("drm-driver: vgem\ndrm-client-id: 1\n"), None, "a device that is on no bus");
    }
}
