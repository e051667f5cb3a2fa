//! The CSV form of `nvidia-smi --query-gpu=... --format=csv`: that of the log of `--trace-gpu`, and of `gpu-track gpus --query-gpu`.
//!
//! Names, headings and values are nvidia-smi's, and so is [`UNKNOWN`] for a figure that is not known.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gpu::Device;
use super::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use super::style::StreamFile;
use super::tree_sample::GpuSample;
use crate::named;

/// What stands for a figure that is not known.
pub const UNKNOWN: &str = "[N/A]";

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// What nvidia-smi's option `--format=csv,noheader,nounits` says of a CSV form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvStyle {
    /// There is no line of headings.
    pub no_header: bool,
    /// Values are without their units. Headings keep theirs, as in nvidia-smi.
    pub no_units: bool,
}

impl CsvStyle {
    /// Takes in one of the words after `csv`. Returns whether it is one.
    pub fn take(&mut self, word: &str) -> bool {
        match word {
            "noheader" => self.no_header = true,
            "nounits" => self.no_units = true,
            _ => return false,
        }
        true
    }

    /// Adds the unit to a number, or leaves it out.
    pub(crate) fn with_unit(self, number: String, unit: &str) -> String {
        if self.no_units { number } else { format!("{number} {unit}") }
    }

    /// Writes an amount of memory in whole MiB.
    pub(crate) fn mib(self, bytes: u64) -> String {
        self.with_unit((bytes / MIB).to_string(), "MiB")
    }
}

/// A GPU at a time, as a line shows it.
#[derive(Debug, Clone, Copy)]
pub struct GpuLine<'a> {
    /// The GPU.
    pub device: &'a Device,
    /// Its figures.
    pub figures: &'a ByGpuFigure<Option<f64>>,
    /// The driver's bits of why its clocks are low.
    pub throttle_bits: Option<u64>,
    /// How many GPUs there are; `None`: not known.
    pub count: Option<usize>,
    /// The time, as text; `None`: not known.
    pub timestamp: Option<&'a str>,
    /// It is a line of the log, whose column of UUIDs has the PCI address of a GPU without one: else nothing in the usual columns would
    /// tell such GPUs apart.
    pub is_logged: bool,
}

/// A log that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTrace {
    /// The file, which the launcher made; `None`: stdout.
    pub file: Option<StreamFile>,
    /// Time between two lines of a GPU.
    pub every: Duration,
    /// The columns.
    pub fields: Vec<Field>,
    /// What a line looks like.
    #[serde(default)]
    pub style: CsvStyle,
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
        /// How many GPUs there are.
        Count = "count",
        /// The driver's number of the GPU.
        Index = "index",
        /// UUID; in the log, the PCI address of a GPU without one.
        Uuid = "uuid",
        /// Product name.
        Name = "name",
        /// PCI address.
        BusId = "pci.bus_id",
        /// The domain in it.
        PciDomain = "pci.domain",
        /// The bus in it.
        PciBus = "pci.bus",
        /// The device in it.
        PciDevice = "pci.device",
        /// Version of the kernel driver.
        DriverVersion = "driver_version",
        /// Performance state, P0 the fastest.
        Pstate = "pstate",
        /// Temperature, degrees Celsius.
        Temperature = "temperature.gpu",
        /// Temperature of the memory (HBM), degrees Celsius.
        MemoryTemperature = "temperature.memory",
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
        /// Memory that the driver keeps for itself.
        MemoryReserved = "memory.reserved",
        /// Speed of the fan, percent.
        FanSpeed = "fan.speed",
        /// Power, watts.
        Power = "power.draw",
        /// Power, watts: that of this moment, which `power.draw` is here, too.
        InstantPower = "power.draw.instant",
        /// The power limit that was set, watts.
        PowerLimit = "power.limit",
        /// The power limit that holds, watts.
        EnforcedPowerLimit = "enforced.power.limit",
        /// Clock of the graphics domain, MHz.
        GraphicsClock = "clocks.current.graphics",
        /// Clock of the processors, MHz.
        SmClock = "clocks.current.sm",
        /// Clock of the memory, MHz.
        MemoryClock = "clocks.current.memory",
        /// Why the clocks are low, as bits.
        ThrottleBits = "clocks_event_reasons.active",
        /// Whether it is divided into MIG instances.
        MigMode = "mig.mode.current",
        /// Nothing runs.
        ReasonIdle = "clocks_event_reasons.gpu_idle",
        /// Somebody has set the clocks.
        ReasonSetting = "clocks_event_reasons.applications_clocks_setting",
        /// The power limit.
        ReasonPowerCap = "clocks_event_reasons.sw_power_cap",
        /// Heat, or want of power, by the hardware.
        ReasonSlowdown = "clocks_event_reasons.hw_slowdown",
        /// GPUs with one clock.
        ReasonSyncBoost = "clocks_event_reasons.sync_boost",
        /// Heat, by the driver.
        ReasonSoftwareThermal = "clocks_event_reasons.sw_thermal_slowdown",
        /// Heat, by the hardware.
        ReasonThermal = "clocks_event_reasons.hw_thermal_slowdown",
        /// Want of power.
        ReasonPowerBrake = "clocks_event_reasons.hw_power_brake_slowdown",
        /// Generation of PCIe at which its link runs.
        PcieGeneration = "pcie.link.gen.current",
        /// `PcieGeneration`, by its name since the driver 525.
        GpuPcieGeneration = "pcie.link.gen.gpucurrent",
        /// Lanes of its PCIe link that are in use.
        PcieWidth = "pcie.link.width.current",
        /// Memory errors that were corrected, since the driver was loaded.
        EccCorrected = "ecc.errors.corrected.volatile.total",
        /// Memory errors that were not corrected, since the driver was loaded.
        EccUncorrected = "ecc.errors.uncorrected.volatile.total",
        /// The CUDA compute capability. From here on, fields are facts.
        ComputeCap = "compute_cap",
        /// Serial number.
        Serial = "serial",
        /// Version of its BIOS.
        Vbios = "vbios_version",
        /// The best that device and slot can do.
        MaxPcieGeneration = "pcie.link.gen.max",
        /// The most lanes of device and slot.
        MaxPcieWidth = "pcie.link.width.max",
        /// Largest clock of the graphics domain, MHz.
        MaxGraphicsClock = "clocks.max.graphics",
        /// Largest clock of the processors, MHz.
        MaxSmClock = "clocks.max.sm",
        /// Largest clock of the memory, MHz.
        MaxMemoryClock = "clocks.max.memory",
        /// The power limit after a start, watts.
        DefaultPowerLimit = "power.default_limit",
        /// The least power limit that can be set, watts.
        MinPowerLimit = "power.min_limit",
        /// The largest power limit that can be set, watts.
        MaxPowerLimit = "power.max_limit",
        /// Whether errors of its memory are corrected.
        EccMode = "ecc.mode.current",
        /// Whether the driver stays loaded without a program.
        PersistenceMode = "persistence_mode",
        /// Which programs may use it.
        ComputeMode = "compute_mode",
        /// Maker and model by PCI's numbers.
        PciDeviceId = "pci.device_id",
        /// Maker and model of the board by PCI's numbers.
        PciSubDeviceId = "pci.sub_device_id",
        /// Whether a display is initialised on it.
        DisplayActive = "display_active",
        /// Whether a display is connected to it.
        DisplayMode = "display_mode",
        /// Whether a display is connected to it, as yes or no.
        DisplayAttached = "display_attached",
        /// Whether the driver keeps the figures of ended processes.
        AccountingMode = "accounting.mode",
        /// Whether errors of its memory are corrected after the next start.
        PendingEccMode = "ecc.mode.pending",
        /// Whether it is divided into MIG instances after the next reset.
        PendingMigMode = "mig.mode.pending",
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
            Self::Pstate => Some("performance_state"),
            Self::SmClock => Some("clocks.sm"),
            Self::MemoryClock => Some("clocks.mem"),
            Self::GraphicsClock => Some("clocks.gr"),
            Self::Serial => Some("gpu_serial"),
            Self::MaxGraphicsClock => Some("clocks.max.gr"),
            Self::MaxMemoryClock => Some("clocks.max.mem"),
            Self::InstantPower => Some("gpu.power.draw.instant"),
            Self::PowerLimit => Some("gpu.power.requested_limit"),
            Self::EnforcedPowerLimit => Some("gpu.power.current_limit"),
            Self::DefaultPowerLimit => Some("gpu.power.default_limit"),
            Self::MinPowerLimit => Some("gpu.power.min_limit"),
            Self::MaxPowerLimit => Some("gpu.power.max_limit"),
            _ => None,
        };
        [self.name()].into_iter().chain(other)
    }

    /// Finds the field that nvidia-smi calls `name`. `None`: it has no such field, or the collector does not read the figure.
    pub fn named(name: &str) -> Option<Self> {
        let name = &*name_of_today(name);
        Self::ALL.into_iter().find(|field| field.names().any(|other| other == name))
    }

    /// The driver's bit of a single reason for low clocks (nvml.h, `nvmlClocksEventReason*`).
    fn reason(self) -> Option<u64> {
        Some(match self {
            Self::ReasonIdle => 0x1,
            Self::ReasonSetting => 0x2,
            Self::ReasonPowerCap => 0x4,
            Self::ReasonSlowdown => 0x8,
            Self::ReasonSyncBoost => 0x10,
            Self::ReasonSoftwareThermal => 0x20,
            Self::ReasonThermal => 0x40,
            Self::ReasonPowerBrake => 0x80,
            _ => return None,
        })
    }

    /// Whether the driver is asked once, for [`Device::facts`].
    fn is_fact(self) -> bool {
        self as usize >= Self::ComputeCap as usize
    }

    /// The unit of a fact; empty: it has none, or this is no fact.
    fn unit_of_fact(self) -> &'static str {
        match self {
            Self::MaxGraphicsClock | Self::MaxSmClock | Self::MaxMemoryClock => "MHz",
            Self::DefaultPowerLimit | Self::MinPowerLimit | Self::MaxPowerLimit => "W",
            _ => "",
        }
    }

    /// The figure that it shows. `None`: it shows what the device is, or when it was read.
    fn figure(self) -> Option<GpuFigure> {
        Some(match self {
            Self::Pstate => GpuFigure::Pstate,
            Self::Temperature => GpuFigure::Temperature,
            Self::MemoryTemperature => GpuFigure::MemoryTemperature,
            Self::Utilization => GpuFigure::Utilization,
            Self::MemoryUtilization => GpuFigure::MemoryUtilization,
            Self::EncoderUtilization => GpuFigure::EncoderUtilization,
            Self::DecoderUtilization => GpuFigure::DecoderUtilization,
            Self::MemoryFree => GpuFigure::MemoryFree,
            Self::MemoryUsed => GpuFigure::MemoryUsed,
            Self::Power | Self::InstantPower => GpuFigure::Power,
            Self::SmClock => GpuFigure::SmClock,
            Self::MemoryClock => GpuFigure::MemoryClock,
            Self::FanSpeed => GpuFigure::FanSpeed,
            Self::PowerLimit => GpuFigure::PowerLimit,
            Self::EnforcedPowerLimit => GpuFigure::EnforcedPowerLimit,
            Self::GraphicsClock => GpuFigure::GraphicsClock,
            Self::PcieGeneration | Self::GpuPcieGeneration => GpuFigure::PcieGeneration,
            Self::PcieWidth => GpuFigure::PcieWidth,
            Self::EccCorrected => GpuFigure::EccCorrected,
            Self::EccUncorrected => GpuFigure::EccUncorrected,
            _ => return None,
        })
    }

    /// Whether drivers are asked for it only if a log or a query names it.
    pub fn is_on_request(self) -> bool {
        self.figure().is_some_and(GpuFigure::is_on_request) || self.is_fact()
    }

    /// The heading of its column: its name, and its unit.
    pub(super) fn heading(self) -> String {
        let name = self.name();
        match self.figure().map(|figure| figure.row().unit) {
            Some(None) => format!("{name} [MiB]"),
            Some(Some(unit @ ("%" | "W" | "MHz"))) => format!("{name} [{unit}]"),
            None if matches!(self, Self::MemoryTotal | Self::MemoryReserved) => format!("{name} [MiB]"),
            None if !self.unit_of_fact().is_empty() => format!("{name} [{}]", self.unit_of_fact()),
            _ => name.to_owned(),
        }
    }

    /// The text of its cell in the line of a GPU.
    pub(super) fn cell(self, gpu: &GpuLine, style: CsvStyle) -> String {
        self.value(gpu, style).unwrap_or_else(|| UNKNOWN.to_owned())
    }

    /// The same. `None`: the value is not known.
    fn value(self, gpu: &GpuLine, style: CsvStyle) -> Option<String> {
        let device = gpu.device;
        match self {
            Self::Timestamp => gpu.timestamp.map(str::to_owned),
            Self::Count => gpu.count.map(|count| count.to_string()),
            Self::Index => device.index.map(|index| index.to_string()),
            Self::Uuid => {
                let uuid = device.uuid.as_ref().or(Some(&device.id).filter(|_| gpu.is_logged));
                uuid.map(|uuid| csv_cell(uuid))
            }
            Self::Name => device.name.as_deref().map(csv_cell),
            Self::BusId => device.pci_address.as_deref().map(bus_id),
            Self::PciDomain => pci_part(device, 0),
            Self::PciBus => pci_part(device, 1),
            Self::PciDevice => pci_part(device, 2),
            Self::DriverVersion => device.driver_version.as_deref().map(csv_cell),
            Self::MemoryTotal => device.memory_bytes.map(|bytes| style.mib(bytes)),
            Self::MemoryReserved => device.reserved_bytes.map(|bytes| style.mib(bytes)),
            Self::ThrottleBits => gpu.throttle_bits.map(|bits| format!("0x{bits:016X}")),
            Self::MigMode => {
                device.is_divided.map(|is_divided| if is_divided { "Enabled" } else { "Disabled" }.to_owned())
            }
            _ if self.is_fact() => {
                let (text, unit) = (csv_cell(device.facts.get(self.name())?), self.unit_of_fact());
                Some(if unit.is_empty() { text } else { style.with_unit(text, unit) })
            }
            _ => {
                if let Some(bit) = self.reason() {
                    return gpu.throttle_bits.map(|bits| active(bits & bit != 0).to_owned());
                }
                let figure = self.figure()?;
                let value = gpu.figures[figure]?;
                Some(match figure.row().unit {
                    None => style.mib(value as u64),
                    Some("") if figure == GpuFigure::Pstate => format!("P{value:.0}"),
                    Some("" | "C") => format!("{value:.0}"),
                    Some("W") => style.with_unit(format!("{value:.2}"), "W"),
                    Some(unit) => style.with_unit(format!("{value:.0}"), unit),
                })
            }
        }
    }
}

/// The name since the driver 535 of a field. Reasons for low clocks had other names before, which nvidia-smi still takes.
pub(super) fn name_of_today(name: &str) -> Cow<'_, str> {
    match name.strip_prefix("clocks_throttle_reasons.") {
        Some(reason) => format!("clocks_event_reasons.{reason}").into(),
        None => name.into(),
    }
}

/// A part of the PCI address of a device, as nvidia-smi writes it. `part`: 0 is the domain, 1 the bus, 2 the device.
fn pci_part(device: &Device, part: usize) -> Option<String> {
    let digits = device.pci_address.as_ref()?.split([':', '.']).nth(part)?;
    Some(format!("0x{}", digits.to_ascii_uppercase()))
}

/// nvidia-smi's words for a reason.
fn active(is_active: bool) -> &'static str {
    if is_active { "Active" } else { "Not Active" }
}

/// Writes the line of headings, without a line break.
pub fn header(fields: &[Field]) -> String {
    fields.iter().map(|field| field.heading()).collect::<Vec<_>>().join(", ")
}

/// Writes the line of a GPU, without a line break.
fn line(fields: &[Field], gpu: &GpuLine, style: CsvStyle) -> String {
    fields.iter().map(|field| field.cell(gpu, style)).collect::<Vec<_>>().join(", ")
}

/// Writes the line of a GPU as it is in a sample: see [`line`]. `count`: how many GPUs the machine has.
pub fn line_of_sample(trace: &GpuTrace, gpu: &GpuSample, count: usize, timestamp: Option<&str>) -> String {
    let (device, figures) = (&*gpu.device, &ByGpuFigure::from(gpu));
    let throttle_bits = gpu.throttle_bits;
    let line_of = GpuLine { device, figures, throttle_bits, count: Some(count), timestamp, is_logged: true };
    line(&trace.fields, &line_of, trace.style)
}

/// Writes a name so that it is one cell: without control characters, and in quotes if it has a comma or a quote.
pub(crate) fn csv_cell(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if plain.contains([',', '"']) { format!("\"{}\"", plain.replace('"', "\"\"")) } else { plain }
}

/// Writes a PCI address as nvidia-smi does: with a domain of eight digits, in capitals.
pub(crate) fn bus_id(address: &str) -> String {
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

    fn written(fields: &[Field], gpu: &GpuSample) -> String {
        let trace = GpuTrace {
            file: None,
            every: Duration::from_secs(1),
            fields: fields.to_vec(),
            style: CsvStyle::default(),
        };
        line_of_sample(&trace, gpu, 8, AT)
    }

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
            written(&fields, &known()),
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
        for (name, value) in all.iter().zip(written(&Field::ALL, &unknown).split(", ")) {
            match *name {
                "timestamp" => assert_eq!(Some(value), AT),
                "count" => assert_eq!(value, "8"),
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
        assert_eq!(Field::named("utilization.tpu"), None);
        let fields =
            ["name", "pci.bus_id", "pci.bus", "driver_version", "power.draw", "clocks.sm", "clocks.mem"];
        let fields: Vec<Field> = fields.into_iter().filter_map(Field::named).collect();
        assert_eq!(
            header(&fields),
            "name, pci.bus_id, pci.bus, driver_version, power.draw [W], clocks.current.sm [MHz], clocks.current.memory [MHz]"
        );
        assert_eq!(
            written(&fields, &known()),
            "Fake A100, 00000000:3B:00.0, 0x3B, 550.54.15, 100.25 W, 1410 MHz, 1593 MHz"
        );
    }

    // Requirement: GPU-80
    #[test]
    fn units_and_headings_are_left_out_as_asked_and_bits_are_hexadecimal() {
        let mut gpu = known();
        gpu.throttle_bits = Some(0x204);
        gpu.gauges.extend([
            (Figure::FanSpeed, 30.0),
            (Figure::PowerLimit, 400.0),
            (Figure::GraphicsClock, 1410.0),
        ]);
        let device =
            Device { reserved_bytes: Some(600 << 20), is_divided: Some(false), ..Device::clone(&gpu.device) };
        gpu.device = Arc::new(device);
        let names =
            ["memory.reserved", "fan.speed", "power.limit", "clocks.gr", "clocks_throttle_reasons.active"];
        let fields: Vec<Field> =
            names.into_iter().chain(["mig.mode.current", "count"]).filter_map(Field::named).collect();
        assert_eq!(
            header(&fields),
            "memory.reserved [MiB], fan.speed [%], power.limit [W], clocks.current.graphics [MHz], \
             clocks_event_reasons.active, mig.mode.current, count"
        );
        let bits = "0x0000000000000204";
        assert_eq!(written(&fields, &gpu), format!("600 MiB, 30 %, 400.00 W, 1410 MHz, {bits}, Disabled, 8"));
        let figures = ByGpuFigure::from(&gpu);
        let plain = GpuLine {
            device: &gpu.device,
            figures: &figures,
            throttle_bits: gpu.throttle_bits,
            count: None,
            timestamp: None,
            is_logged: false,
        };
        let style = CsvStyle { no_header: true, no_units: true };
        assert_eq!(line(&fields, &plain, style), format!("600, 30, 400.00, 1410, {bits}, Disabled, [N/A]"));
    }

    #[test]
    fn name_with_a_comma_or_a_line_break_is_one_cell() {
        let device = Device { name: Some("RX \"7900\",\nXT".into()), ..Device::default() };
        let gpu = GpuSample { device: Arc::new(device), ..GpuSample::default() };
        assert_eq!(written(&[Field::Name], &gpu), "\"RX \"\"7900\"\", XT\"");
    }
}
