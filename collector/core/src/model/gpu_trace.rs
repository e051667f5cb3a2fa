//! `--trace-gpu`: the log of GPUs in the CSV form of `nvidia-smi --query-gpu=... --format=csv`.
//!
//! Names, headings and values are nvidia-smi's, and so is [`UNKNOWN`] for a figure that is not known.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gpu::gpu_figure::GpuFigure;
use super::style::StreamFile;
use super::tree_sample::GpuSample;
use crate::named;

/// What stands for a figure that is not known.
const UNKNOWN: &str = "[N/A]";

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// A log that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTrace {
    /// The file, which the launcher made; `None`: stdout.
    pub file: Option<StreamFile>,
    /// Time between two lines of a GPU.
    pub every: Duration,
    /// The columns.
    pub fields: Vec<Field>,
}

impl GpuTrace {
    /// Time between two lines of a GPU, nanoseconds.
    pub fn every_ns(&self) -> u64 {
        u64::try_from(self.every.as_nanos()).unwrap_or(u64::MAX)
    }
}

named! {
    /// A column of the log. Its name is what its heading begins with.
    pub enum Field {
        /// When the sample was taken, local time.
        Timestamp = "timestamp",
        /// The driver's number of the GPU.
        Index = "index",
        /// UUID; the PCI address of a GPU without one.
        Uuid = "uuid",
        /// Product name.
        Name = "name",
        /// PCI address.
        BusId = "pci.bus_id",
        /// Version of the kernel driver.
        DriverVersion = "driver_version",
        /// Performance state, P0 the fastest.
        Pstate = "pstate",
        /// Temperature, degrees Celsius.
        Temperature = "temperature.gpu",
        /// Utilisation, percent.
        Utilization = "utilization.gpu",
        /// Utilisation of the memory, percent.
        MemoryUtilization = "utilization.memory",
        /// Utilisation of the video encoder, percent.
        EncoderUtilization = "utilization.encoder",
        /// Utilisation of the video decoder, percent.
        DecoderUtilization = "utilization.decoder",
        /// Memory capacity.
        MemoryTotal = "memory.total",
        /// Memory that no process uses.
        MemoryFree = "memory.free",
        /// Memory in use by all processes of the machine.
        MemoryUsed = "memory.used",
        /// Power, watts.
        Power = "power.draw",
        /// Clock of the processors, MHz.
        SmClock = "clocks.current.sm",
        /// Clock of the memory, MHz.
        MemoryClock = "clocks.current.memory",
    }
}

impl Field {
    /// The columns of a log for which none are named.
    pub const DEFAULT: [Self; 10] = [
        Self::Timestamp,
        Self::Pstate,
        Self::Temperature,
        Self::Utilization,
        Self::MemoryUtilization,
        Self::MemoryTotal,
        Self::MemoryFree,
        Self::MemoryUsed,
        Self::Index,
        Self::Uuid,
    ];

    /// Its names in `nvidia-smi --help-query-gpu`, that of its heading first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let other = match self {
            Self::Uuid => Some("gpu_uuid"),
            Self::Name => Some("gpu_name"),
            Self::BusId => Some("gpu_bus_id"),
            Self::SmClock => Some("clocks.sm"),
            Self::MemoryClock => Some("clocks.mem"),
            _ => None,
        };
        [self.name()].into_iter().chain(other)
    }

    /// Finds the field that nvidia-smi calls `name`. `None`: it has no such field, or the collector does not read the figure.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.names().any(|other| other == name))
    }

    /// The figure that it shows. `None`: it shows what the device is, or when it was read.
    fn figure(self) -> Option<GpuFigure> {
        Some(match self {
            Self::Pstate => GpuFigure::Pstate,
            Self::Temperature => GpuFigure::Temperature,
            Self::Utilization => GpuFigure::Utilization,
            Self::MemoryUtilization => GpuFigure::MemoryUtilization,
            Self::EncoderUtilization => GpuFigure::EncoderUtilization,
            Self::DecoderUtilization => GpuFigure::DecoderUtilization,
            Self::MemoryFree => GpuFigure::MemoryFree,
            Self::MemoryUsed => GpuFigure::MemoryUsed,
            Self::Power => GpuFigure::Power,
            Self::SmClock => GpuFigure::SmClock,
            Self::MemoryClock => GpuFigure::MemoryClock,
            _ => return None,
        })
    }

    /// The heading of its column: its name, and its unit.
    fn heading(self) -> String {
        let name = self.name();
        match self.figure().map(|figure| figure.row().unit) {
            Some(None) => format!("{name} [MiB]"),
            Some(Some(unit @ ("%" | "W" | "MHz"))) => format!("{name} [{unit}]"),
            None if self == Self::MemoryTotal => format!("{name} [MiB]"),
            _ => name.to_owned(),
        }
    }

    /// The text of its cell in the line of a GPU. `timestamp`: the time of the sample, as text. `None`: the value is not known.
    fn value(self, gpu: &GpuSample, timestamp: Option<&str>) -> Option<String> {
        let device = &gpu.device;
        let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
        match self {
            Self::Timestamp => timestamp.map(str::to_owned),
            Self::Index => device.index.map(|index| index.to_string()),
            Self::Uuid => Some(csv_cell(device.uuid.as_ref().unwrap_or(&device.id))),
            Self::Name => device.name.as_deref().map(csv_cell),
            Self::BusId => device.pci_address.as_deref().map(bus_id),
            Self::DriverVersion => device.driver_version.as_deref().map(csv_cell),
            Self::MemoryTotal => device.memory_bytes.map(mib),
            _ => {
                let row = self.figure()?.row();
                let value = (row.value)(gpu)?;
                Some(match row.unit {
                    None => mib(value as u64),
                    Some("") => format!("P{value:.0}"),
                    Some("C") => format!("{value:.0}"),
                    Some("W") => format!("{value:.2} W"),
                    Some(unit) => format!("{value:.0} {unit}"),
                })
            }
        }
    }
}

/// Writes the first line of a log, without a line break.
pub fn header(fields: &[Field]) -> String {
    fields.iter().map(|field| field.heading()).collect::<Vec<_>>().join(", ")
}

/// Writes the line of a GPU, without a line break. `timestamp` is the time of the sample, as text; `None`: it is not known.
pub fn line(fields: &[Field], gpu: &GpuSample, timestamp: Option<&str>) -> String {
    let value = |field: &Field| field.value(gpu, timestamp).unwrap_or_else(|| UNKNOWN.to_owned());
    fields.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// Writes a name so that it is one cell: without control characters, and in quotes if it has a comma or a quote.
fn csv_cell(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.contains([',', '"']) { format!("\"{}\"", plain.replace('"', "\"\"")) } else { plain }
}

/// Writes a PCI address as nvidia-smi does: with a domain of eight digits, in capitals.
fn bus_id(address: &str) -> String {
    match address.split_once(':') {
        Some((domain, rest)) => format!("{domain:0>8}:{rest}").to_ascii_uppercase(),
        None => csv_cell(address),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::{Device, Figure};

    const AT: Option<&str> = Some("2026/11/25 12:01:02.123");

    fn known() -> GpuSample {
        let device = Device {
            id: "GPU-1".into(),
            uuid: Some("GPU-1".into()),
            index: Some(3),
            pci_address: Some("0000:3b:00.0".into()),
            name: Some("Fake A100".into()),
            driver_version: Some("550.54.15".into()),
            memory_bytes: Some(81_920 << 20),
            ..Device::default()
        };
        let gauges = [
            (Figure::Pstate, 2.0),
            (Figure::Temperature, 41.0),
            (Figure::MemoryUtilization, 7.0),
            (Figure::Power, 100.25),
            (Figure::SmClock, 1410.0),
            (Figure::MemoryClock, 1593.0),
        ];
        GpuSample {
            device: Arc::new(device),
            used_bytes: Some((1024 << 20) + 1),
            busy_percent: Some(37.0),
            gauges: BTreeMap::from(gauges),
            ..GpuSample::default()
        }
    }

    // Requirement: TIME-21
    #[test]
    fn default_columns_are_those_of_nvidia_smi_with_index_and_uuid() {
        let fields = Field::DEFAULT;
        assert_eq!(
            header(&fields),
            "timestamp, pstate, temperature.gpu, utilization.gpu [%], utilization.memory [%], memory.total [MiB], \
             memory.free [MiB], memory.used [MiB], index, uuid"
        );
        assert_eq!(
            line(&fields, &known(), AT),
            format!("{}, P2, 41, 37 %, 7 %, 81920 MiB, 80895 MiB, 1024 MiB, 3, GPU-1", AT.unwrap())
        );
    }

    // Requirement: TIME-21
    #[test]
    fn unknown_figure_is_never_zero() {
        let unknown = GpuSample {
            device: Arc::new(Device { id: "0000:03:00.0".into(), ..Device::default() }),
            ..GpuSample::default()
        };
        let all: Vec<&str> = Field::ALL.map(Field::name).to_vec();
        for (name, value) in all.iter().zip(line(&Field::ALL, &unknown, AT).split(", ")) {
            match *name {
                "timestamp" => assert_eq!(Some(value), AT),
                "uuid" => assert_eq!(value, "0000:03:00.0", "what it is named by"),
                _ => assert_eq!(value, UNKNOWN, "{name}"),
            }
        }
    }

    #[test]
    fn each_field_is_found_by_its_names_and_written_with_its_unit() {
        for field in Field::ALL {
            assert!(field.names().all(|name| Field::named(name) == Some(field)), "{field:?}");
        }
        assert_eq!(Field::named("utilization.ofa"), None);
        let fields = ["name", "pci.bus_id", "driver_version", "power.draw", "clocks.sm", "clocks.mem"];
        let fields: Vec<Field> = fields.into_iter().filter_map(Field::named).collect();
        assert_eq!(
            header(&fields),
            "name, pci.bus_id, driver_version, power.draw [W], clocks.current.sm [MHz], clocks.current.memory [MHz]"
        );
        assert_eq!(
            line(&fields, &known(), AT),
            "Fake A100, 00000000:3B:00.0, 550.54.15, 100.25 W, 1410 MHz, 1593 MHz"
        );
    }

    #[test]
    fn name_with_a_comma_or_a_line_break_is_one_cell() {
        let device = Device { name: Some("RX \"7900\",\nXT".into()), ..Device::default() };
        let gpu = GpuSample { device: Arc::new(device), ..GpuSample::default() };
        assert_eq!(line(&[Field::Name], &gpu, AT), "\"RX \"\"7900\"\", XT\"");
    }
}
