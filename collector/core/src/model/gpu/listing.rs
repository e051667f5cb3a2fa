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
    /// Drivers that could not be read.
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
