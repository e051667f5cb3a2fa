//! What GPUs there are, and what each can tell: `--gpus`, and the check of `--guuids`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::monitor;
use super::worker::Phase;
use crate::model::gpu::config::GpuConfig;
use crate::model::gpu::select::{self, Seen};
use crate::model::gpu::{Device, Missing};
use crate::report::quote;

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// The devices.
    pub gpus: Vec<Listed>,
    /// Drivers that gave nothing, and why.
    pub drivers: Vec<Driver>,
    /// What is wrong besides.
    pub warnings: Vec<String>,
}

/// A driver that gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Whose GPUs it is for.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Which it is.
    #[serde(flatten)]
    pub device: Device,
    /// Whether the options leave it in.
    pub tracked: bool,
    /// Whether the environment names it; null: it names none.
    pub visible: Option<bool>,
    /// What it can tell.
    pub figures: Vec<Capability>,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// What it is called.
    pub figure: String,
    /// Whether it can be read.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// Ask the drivers, for as long as `patience` at most.
#[must_use]
pub fn list(config: &GpuConfig, patience: Duration) -> Listing {
    // All devices are wanted here; the options only mark them.
    let everything = GpuConfig { uuids: None, only_visible: false, accounting: false, ..config.clone() };
    let workers = monitor::workers(&everything);
    let deadline = Instant::now() + patience;
    let mut listing = Listing::default();
    for worker in &workers {
        worker.wait_sampled(deadline);
        match worker.phase() {
            Phase::Starting | Phase::Reading => listing.drivers.push(Driver {
                name: worker.name.to_owned(),
                reason: format!("driver not initialised within {} s", patience.as_secs()),
            }),
            Phase::Failed(Missing::NoDevice) => {}
            Phase::Failed(missing) => {
                listing.drivers.push(Driver { name: worker.name.to_owned(), reason: missing.to_string() });
            }
            Phase::Ready | Phase::Done => {}
        }
        listing.warnings.extend(worker.warnings());
        for batch in worker.exchange(&[]).into_iter().take(1) {
            let devices = batch.devices.unwrap_or_default();
            let seen = Seen::new(&config.visible, &devices);
            let tracked: Vec<String> =
                select::wanted(config, &devices).into_iter().map(|device| device.id.clone()).collect();
            for device in devices {
                let sample = batch.samples.iter().find(|sample| sample.device == device.id);
                let figures = sample.map(|sample| {
                    let able =
                        |(figure, reading): (crate::model::gpu::Figure, Result<(), Missing>)| Capability {
                            figure: figure.name().to_owned(),
                            available: reading.is_ok(),
                            reason: reading.err().map(|missing| missing.to_string()),
                        };
                    let lost = sample.is_lost.then_some(Missing::Lost);
                    let capabilities = sample.capabilities().into_iter();
                    capabilities
                        .map(|(figure, is_able)| (figure, lost.clone().map_or(is_able, Err)))
                        .map(able)
                        .collect()
                });
                listing.gpus.push(Listed {
                    tracked: tracked.contains(&device.id),
                    visible: seen.sees(&device.id),
                    device,
                    figures: figures.unwrap_or_default(),
                });
            }
        }
    }
    listing
}

/// As JSON, with a newline at its end.
#[must_use]
pub fn json(listing: &Listing) -> String {
    // Plain data always serializes.
    serde_json::to_string_pretty(listing).unwrap_or_default() + "\n"
}

/// For people, with a newline at its end.
#[must_use]
pub fn text(listing: &Listing) -> String {
    let mut text = String::new();
    let mut line = |level: usize, label: &str, value: &str| {
        let line = format!("{:indent$}{label}: {}", "", quote::escape(value), indent = level * 3);
        let _infallible = writeln!(text, "{}", line.trim_end());
    };
    line(0, "GPUs", &listing.gpus.len().to_string());
    for driver in &listing.drivers {
        line(1, &driver.name, &driver.reason);
    }
    for warning in &listing.warnings {
        line(1, "Warning", warning);
    }
    for gpu in &listing.gpus {
        let device = &gpu.device;
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "n/a".into());
        line(0, &device.id, &known(&device.name));
        if let Some(parent) = &device.parent {
            line(1, "Part of", parent);
        }
        line(1, "PCI address", &known(&device.pci_address));
        let gigabytes = device.memory_bytes.map(|bytes| format!("{:.3} gigabytes", bytes as f64 / 1e9));
        line(1, "Memory", &known(&gigabytes));
        line(1, "Driver", &known(&device.driver_version));
        line(1, "Runtime", &known(&device.runtime_version));
        line(1, "Source", &device.source);
        line(1, "Tracked", if gpu.tracked { "yes" } else { "no (left out by the options)" });
        let visible = match gpu.visible {
            Some(true) => "yes",
            Some(false) => "no",
            None => "the environment names no GPUs",
        };
        line(1, "Visible to a command", visible);
        line(1, "Can tell", "");
        for figure in &gpu.figures {
            let answer = match &figure.reason {
                Some(reason) => format!("n/a ({reason})"),
                None => "yes".to_owned(),
            };
            line(2, &figure.figure, &answer);
        }
    }
    text
}
