//! A device's figures from `/sys/class/drm/cardN` (amdgpu's thermal.rst, the ABI files of i915 and xe).

use std::fs;
use std::path::{Path, PathBuf};

use crate::model::gpu::{Device, Figure, Missing, Reading, Vendor};
use crate::model::sorting::Sorting;

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
    hwmon: Option<Hwmon>,
}

/// A directory of sensors.
#[derive(Debug, Clone)]
struct Hwmon {
    path: PathBuf,
    /// Each sensor that has a label: the label, such as `edge`, and the beginning of its files' names, such as `temp1`.
    labels: Vec<(String, String)>,
}

/// Where the files of a sensor are found: labels are tried first, then numbers.
struct Sensor {
    /// The beginning of its files' names, without the number.
    kind: &'static str,
    /// Its possible labels, best first.
    labels: &'static [&'static str],
    /// Its numbers where it has no label, by the drivers' documentation.
    numbers: &'static [u32],
}

/// xe: the card, else the package, which is all that some boards measure (sysfs-driver-intel-xe-hwmon).
const ENERGY: Sensor = Sensor { kind: "energy", labels: &["card", "pkg"], numbers: &[1, 2] };
const POWER: Sensor = Sensor { kind: "power", labels: &["PPT", "slowPPT", "card", "pkg"], numbers: &[1, 2] };
/// amdgpu: the edge, else the junction, since an MI300 has no edge; xe and i915: the package.
const TEMPERATURE: Sensor = Sensor { kind: "temp", labels: &["edge", "junction", "pkg"], numbers: &[1, 2] };
const CORE_CLOCK: Sensor = Sensor { kind: "freq", labels: &["sclk"], numbers: &[1] };
const MEMORY_CLOCK: Sensor = Sensor { kind: "freq", labels: &["mclk"], numbers: &[2] };

impl Hwmon {
    /// Finds the sensors of a PCI device. A device can have several directories (i915 has one for each GT, `i915_gt0`). The directory
    /// of the whole device has the driver's name.
    fn find(pci: &Path, driver: &str) -> Option<Self> {
        let entries = fs::read_dir(pci.join("hwmon")).ok()?.flatten();
        let number = |path: &Path| path.file_name()?.to_str()?.strip_prefix("hwmon")?.parse::<u32>().ok();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        // The directory with the driver's name comes first (`false` is before `true`), then by number.
        paths.order_by_key(|path| (line(&path.join("name")).as_deref() != Some(driver), number(path)));
        let path = paths.into_iter().next()?;
        let files =
            fs::read_dir(&path).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let label = |file: String| Some((line(&path.join(&file))?, file.strip_suffix("_label")?.to_owned()));
        let labels = files.filter(|file| file.ends_with("_label")).filter_map(label).collect();
        Some(Self { path, labels })
    }

    /// Reads a sensor's value from the first file that the device supports. A file's name is a beginning, such as `temp1`, and one of
    /// `endings`, such as `input`. Beginnings with the sensor's labels are tried first, then those with its numbers. For each, the
    /// endings are tried in their order. `factor` turns the file's unit into the figure's.
    fn read(&self, sensor: &Sensor, endings: &[&str], factor: f64) -> Reading<f64> {
        let of_kind =
            |beginning: &str| beginning.strip_prefix(sensor.kind).is_some_and(|n| n.parse::<u32>().is_ok());
        let mut beginnings: Vec<String> = Vec::new();
        for wanted in sensor.labels {
            let found = self.labels.iter().filter(|(label, beginning)| label == wanted && of_kind(beginning));
            beginnings.extend(found.map(|(_, beginning)| beginning.clone()));
        }
        for number in sensor.numbers {
            let beginning = format!("{}{number}", sensor.kind);
            // A number that has any label is tried above, or is another sensor.
            let is_labelled = self.labels.iter().any(|(_, labelled)| *labelled == beginning);
            if !is_labelled {
                beginnings.push(beginning);
            }
        }
        let path = |beginning: &String, ending: &str| self.path.join(format!("{beginning}_{ending}"));
        let paths =
            beginnings.iter().flat_map(|beginning| endings.iter().map(move |ending| path(beginning, ending)));
        first(paths, factor)
    }
}

/// Reads the first line of a file, trimmed. `None`: it is empty, or can't be read.
pub(super) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Reads the number in a file, and multiplies it by `factor`.
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

/// Reads the number in the first of several files that the device supports, as [`number`] does.
fn first(paths: impl IntoIterator<Item = PathBuf>, factor: f64) -> Reading<f64> {
    let mut readings = paths.into_iter().map(|path| number(&path, factor));
    readings.find(|read| *read != Err(Missing::NotSupported)).unwrap_or(Err(Missing::NotSupported))
}

/// Lists the cards with supported drivers, by number. `sys` is the directory /sys. The cards of one maker are numbered from 0 on.
pub(super) fn cards(sys: &Path) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(sys.join("class/drm")) else { return Vec::new() };
    let is_card =
        |name: &str| name.strip_prefix("card").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| is_card(name))
        .collect();
    names.order_by_key(|name| (name.len(), name.clone()));
    let mut cards: Vec<Card> =
        names.iter().filter_map(|name| card(sys, &sys.join("class/drm").join(name))).collect();
    // Variables such as ROCR_VISIBLE_DEVICES count the devices of one maker only.
    for vendor in Vendor::ALL {
        let of_vendor = cards.iter_mut().filter(|card| card.device.vendor == Some(vendor));
        for (index, card) in (0..).zip(of_vendor) {
            card.device.index = Some(index);
        }
    }
    cards
}

/// Reads what a card is. `None`: its driver is not supported.
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
    let hwmon = Hwmon::find(&pci, driver);
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

    /// Reads the figures of the whole device. hwmon has microwatts, microjoules, millidegrees Celsius and hertz.
    pub(super) fn values(&self) -> Vec<(Figure, Reading<f64>)> {
        let pci = |name: &str| number(&self.pci.join(name), 1.0);
        let sensor = |sensor: &Sensor, files: &[&str], factor| match &self.hwmon {
            Some(hwmon) => hwmon.read(sensor, files, factor),
            None => Err(Missing::NotSupported),
        };
        let i915_clock = self.card.join("gt/gt0/rps_act_freq_mhz");
        let xe_clock = self.pci.join("tile0/gt0/freq0/act_freq");
        vec![
            (Figure::MemoryUsed, pci("mem_info_vram_used")),
            (Figure::MemoryUtilization, pci("mem_busy_percent")),
            (Figure::Power, sensor(&POWER, &["average", "input"], 1e-6)),
            (Figure::Energy, sensor(&ENERGY, &["input"], 1e-6)),
            (Figure::Temperature, sensor(&TEMPERATURE, &["input"], 1e-3)),
            (
                Figure::SmClock,
                match self.device.vendor {
                    Some(Vendor::Amd) => sensor(&CORE_CLOCK, &["input"], 1e-6),
                    _ => first([i915_clock, xe_clock], 1.0),
                },
            ),
            (Figure::MemoryClock, sensor(&MEMORY_CLOCK, &["input"], 1e-6)),
        ]
    }

    /// Reads the utilisation at this moment, percent. Intel's drivers report it by process only.
    pub(super) fn busy_percent(&self) -> Reading<f64> {
        number(&self.pci.join("gpu_busy_percent"), 1.0)
    }
}
