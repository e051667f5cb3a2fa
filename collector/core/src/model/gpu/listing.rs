//! The GPUs of a machine and what each can report, as `--gpus` prints them and `--guuids` is checked against.

use serde::{Deserialize, Serialize};

use super::device::Device;

/// The GPUs and drivers of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// How many there are; null: a driver could not be read, so there may be more than those below.
    pub count: Option<usize>,
    /// The devices.
    pub gpus: Vec<Listed>,
    /// The drivers that could not be read.
    pub drivers: Vec<Driver>,
    /// Other problems.
    pub warnings: Vec<String>,
}

/// A driver that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The makers of its GPUs.
    pub name: String,
    /// Why it could not be read.
    pub reason: String,
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
    /// Memory in use by all processes, bytes.
    pub memory_used_bytes: Option<u64>,
    /// The rest of its memory, bytes, less what the driver keeps for itself, as far as it says so.
    pub memory_free_bytes: Option<u64>,
    /// Time in which anything ran on it lately, percent.
    pub utilization_percent: Option<f64>,
    /// Time in which its memory was read or written lately, percent.
    pub memory_utilization_percent: Option<f64>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Power, watts.
    pub power_w: Option<f64>,
    /// Clock of the processors, MHz.
    pub sm_clock_mhz: Option<f64>,
    /// Performance state, 0 the fastest.
    pub pstate: Option<u32>,
    /// The processes with memory on it; null: the driver does not list them.
    pub processes: Option<Vec<ListedProcess>>,
}

/// A process with memory on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedProcess {
    /// Its pid, as the driver has it.
    pub pid: u32,
    /// The name of its user, or the number of a user without a name; null: /proc does not show it.
    pub user: Option<String>,
    /// Its command name; null as `user`.
    pub command: Option<String>,
    /// Its memory on the device, bytes.
    pub memory_bytes: Option<u64>,
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
