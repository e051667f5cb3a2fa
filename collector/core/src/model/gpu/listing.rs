//! The GPUs of a machine and what each can report, as `--gpus` prints them and `--guuids` is checked against.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::device::Device;
use super::gpu_figure::{ByGpuFigure, GpuFigure};
use super::sample::Work;

/// The GPUs and drivers of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// How many GPUs the machine has, even if some are not in `gpus`. A divided GPU counts once. null: a driver could not be read, so there
    /// may be more.
    pub count: Option<usize>,
    /// The devices.
    pub gpus: Vec<Listed>,
    /// The drivers that could not be read.
    pub drivers: Vec<Driver>,
    /// Other problems.
    pub warnings: Vec<String>,
    /// The machine's name; null: not known.
    pub hostname: Option<String>,
    /// When the GPUs were listed, local time, such as `2026/11/25 12:01:02.123`; null: not known.
    pub timestamp: Option<String>,
}

impl Listing {
    /// The instances (MIG) of a GPU.
    pub fn parts<'a>(&'a self, gpu: &'a Listed) -> impl Iterator<Item = &'a Listed> {
        self.gpus.iter().filter(|part| part.device.parent.as_ref() == Some(&gpu.device.id))
    }
}

/// A driver that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The makers of its GPUs.
    pub name: String,
    /// Why it could not be read.
    pub reason: String,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// A device, and what it can report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// The device.
    #[serde(flatten)]
    pub device: Device,
    /// Whether the options select it.
    pub tracked: bool,
    /// Whether the environment names it; null: it names none.
    pub visible: Option<bool>,
    /// Each figure, and whether it can be read.
    pub figures: Vec<Capability>,
    /// What it shows now.
    pub now: GpuNow,
}

/// What a device shows at a time. A figure that its driver does not report is null; [`Listed::figures`] has the reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuNow {
    /// Its figures, each under its name.
    #[serde(flatten, serialize_with = "by_name", deserialize_with = "of_names")]
    pub figures: ByGpuFigure<Option<f64>>,
    /// The driver's bits of why its clocks are low; null: not known.
    pub throttle_bits: Option<u64>,
    /// The processes with memory on it; null: the driver does not list them.
    pub processes: Option<Vec<ListedProcess>>,
}

/// The value of a figure as JSON has it.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Real(f64),
}

/// Writes all figures but the one of a run, since there is none.
fn by_name<S: Serializer>(figures: &ByGpuFigure<Option<f64>>, serializer: S) -> Result<S::Ok, S::Error> {
    let shown = GpuFigure::ALL.into_iter().filter(|figure| *figure != GpuFigure::MemoryRun);
    serializer.collect_map(shown.map(|figure| {
        let number =
            |value| if figure.is_whole() { Number::Whole(value as u64) } else { Number::Real(value) };
        (figure.name(), figures[figure].map(number))
    }))
}

/// Reads the figures that are there.
fn of_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByGpuFigure<Option<f64>>, D::Error> {
    let figures = BTreeMap::<GpuFigure, Option<f64>>::deserialize(deserializer)?;
    Ok(ByGpuFigure::new(|figure| figures.get(&figure).copied().flatten()))
}

/// A process with memory on a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedProcess {
    /// Its pid, as the driver has it.
    pub pid: u32,
    /// The name of its user, or the number of a user without a name; null: /proc does not show it.
    pub user: Option<String>,
    /// Its command name; null as `user`.
    pub command: Option<String>,
    /// Its memory on the device, bytes.
    pub memory_bytes: Option<u64>,
    /// What it does there.
    #[serde(default)]
    pub work: Work,
    /// Its utilization of the device, percent; null: not known.
    pub utilization_percent: Option<f64>,
    /// Its command line; null as `user`.
    pub arguments: Option<Vec<String>>,
    /// Its RSS, bytes; null as `user`.
    pub rss_bytes: Option<u64>,
}

/// Whether a figure can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The figure's name.
    pub figure: String,
    /// Whether it can be read.
    pub available: bool,
    /// Why it can't be read.
    pub reason: Option<String>,
}
