//! A device's figures from `/sys/class/drm/cardN` (amdgpu's thermal.rst, the ABI files of i915 and xe).

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::gpu::{Device, Figure, Missing, Reading, Vendor};

/// A device's directories.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// The device.
    pub device: Device,
    /// `/sys/class/drm/cardN`.
    card: PathBuf,
    /// `/sys/class/drm/cardN/device`.
    pci: PathBuf,
    /// Its sensors.
    hwmon: Option<PathBuf>,
}

/// First line of a file, trimmed; `None` if it is empty.
pub(super) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// A number in a file, times a factor.
fn number(path: &Path, factor: f64) -> Reading<f64> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Missing::NotSupported,
        std::io::ErrorKind::PermissionDenied => Missing::NoPermission,
        // amdgpu answers EINVAL or EOPNOTSUPP for sensors that a board lacks, ENODEV for a device that is gone.
        _ if error.raw_os_error() == Some(libc::ENODEV) => Missing::Lost,
        _ if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Missing::NotSupported,
        _ => Missing::Failed(error.to_string()),
    })?;
    text.trim().parse::<f64>().map(|value| value * factor).map_err(|_| Missing::NotReported)
}

/// The number in the first of several files that exists.
fn first(paths: &[(PathBuf, f64)]) -> Reading<f64> {
    let mut result = Err(Missing::NotSupported);
    for (path, factor) in paths {
        result = number(path, *factor);
        if result != Err(Missing::NotSupported) {
            break;
        }
    }
    result
}

/// The cards with supported drivers.
pub(super) fn cards(sys: &Path) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(sys.join("class/drm")) else { return Vec::new() };
    let is_card =
        |name: &str| name.strip_prefix("card").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| is_card(name))
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let mut cards: Vec<Card> =
        names.iter().filter_map(|name| card(sys, &sys.join("class/drm").join(name))).collect();
    // Index lists of the environment count the devices of one maker.
    for vendor in Vendor::ALL {
        let of_vendor = cards.iter_mut().filter(|card| card.device.vendor == Some(vendor));
        for (index, card) in (0..).zip(of_vendor) {
            card.device.index = Some(index);
        }
    }
    cards
}

fn card(sys: &Path, card: &Path) -> Option<Card> {
    let pci = card.join("device");
    let uevent = fs::read_to_string(pci.join("uevent")).ok()?;
    let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let driver = value("DRIVER")?;
    let vendor = match driver {
        "amdgpu" => Vendor::Amd,
        "i915" | "xe" => Vendor::Intel,
        _ => return None,
    };
    let address = value("PCI_SLOT_NAME")?.to_ascii_lowercase();
    let sensors = fs::read_dir(pci.join("hwmon")).ok();
    let hwmon = sensors.into_iter().flatten().flatten().map(|entry| entry.path()).min();
    let total = number(&pci.join("mem_info_vram_total"), 1.0).ok();
    let device = Device {
        id: address.clone(),
        uuid: line(&pci.join("unique_id")).map(|id| format!("GPU-{id}")),
        pci_address: Some(address),
        name: line(&pci.join("product_name")).or_else(|| value("PCI_ID").map(|id| format!("{driver} {id}"))),
        vendor: Some(vendor),
        memory_bytes: total.map(|bytes| bytes as u64),
        driver_version: line(&sys.join("module").join(driver).join("version")),
        source: driver.to_owned(),
        ..Device::default()
    };
    Some(Card { device, card: card.to_owned(), pci, hwmon })
}

impl Card {
    /// Whether the device is still present.
    pub(super) fn is_there(&self) -> bool {
        self.pci.join("uevent").exists()
    }

    fn sensor(&self, name: &str, factor: f64) -> (PathBuf, f64) {
        (self.hwmon.as_ref().map_or_else(|| self.pci.join("hwmon"), |hwmon| hwmon.join(name)), factor)
    }

    /// Gauges and counters. Units of hwmon: microwatts, microjoules, millidegrees, hertz.
    pub(super) fn values(&self) -> Vec<(Figure, Reading<f64>)> {
        let pci = |name: &str| (self.pci.join(name), 1.0);
        let card = |name: &str| (self.card.join(name), 1.0);
        let sensors = |sensors: &[(PathBuf, f64)]| match self.hwmon {
            Some(_) => first(sensors),
            None => Err(Missing::NotSupported),
        };
        vec![
            (Figure::MemoryUsed, first(&[pci("mem_info_vram_used")])),
            (Figure::MemoryUtilization, first(&[pci("mem_busy_percent")])),
            (
                Figure::Power,
                sensors(&[self.sensor("power1_average", 1e-6), self.sensor("power1_input", 1e-6)]),
            ),
            (Figure::Energy, sensors(&[self.sensor("energy1_input", 1e-6)])),
            (Figure::Temperature, sensors(&[self.sensor("temp1_input", 1e-3)])),
            (
                Figure::SmClock,
                match self.device.vendor {
                    Some(Vendor::Amd) => sensors(&[self.sensor("freq1_input", 1e-6)]),
                    _ => first(&[card("gt/gt0/rps_act_freq_mhz"), pci("tile0/gt0/freq0/act_freq")]),
                },
            ),
            (Figure::MemoryClock, sensors(&[self.sensor("freq2_input", 1e-6)])),
        ]
    }

    /// Utilisation at this moment, percent. Intel's drivers report it by process only.
    pub(super) fn busy_percent(&self) -> Reading<f64> {
        number(&self.pci.join("gpu_busy_percent"), 1.0)
    }
}
