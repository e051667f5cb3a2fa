//! The table of a GPU's figures that go up and down: a row each in [`GpuFigure::row`]. The points of a run, `series` of a report,
//! `report --every`, traces, `.sqlite`, `.prom`, `--trace-gpu`, `gpu-track gpus` and `gpu-track watch` take the figures from here.

use std::ops::Index;

use serde::{Deserialize, Serialize};

use super::Figure;
use crate::model::joining::Joining;
use crate::model::tree_sample::GpuSample;
use crate::named;

named! {
    /// A figure of a GPU. Its name has its unit. Those of [`GpuFigure::OVER_TIME`] come first.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum GpuFigure {
        /// Time in which anything ran, percent.
        Utilization = "utilization_percent",
        /// By all processes, bytes.
        MemoryUsed = "memory_used_bytes",
        /// By the run, bytes.
        MemoryRun = "memory_run_bytes",
        /// Temperature, degrees Celsius.
        Temperature = "temperature_c",
        /// Power, watts.
        Power = "power_w",
        /// Clock of the processors, MHz.
        SmClock = "sm_clock_mhz",
        /// Mean over the SMs of the time in which a warp was on them, percent.
        SmActive = "sm_active_percent",
        /// Warps on the SMs, percent of the most that fit.
        SmOccupancy = "sm_occupancy_percent",
        /// Time in which the tensor cores worked, percent.
        TensorActive = "tensor_active_percent",
        /// Bytes to and from its memory, percent of the most that is possible.
        MemoryBandwidth = "memory_bandwidth_percent",
        /// Time in which the pipes for 64-bit numbers worked, percent.
        Fp64Active = "fp64_active_percent",
        /// Time in which the pipes for 32-bit numbers worked, percent.
        Fp32Active = "fp32_active_percent",
        /// Time in which the pipes for 16-bit numbers worked, percent.
        Fp16Active = "fp16_active_percent",
        /// Sent over PCIe, bytes a second.
        PcieTxRate = "pcie_tx_bytes_per_s",
        /// Received over PCIe, bytes a second.
        PcieRxRate = "pcie_rx_bytes_per_s",
        /// Sent over all NVLinks, bytes a second.
        NvlinkTxRate = "nvlink_tx_bytes_per_s",
        /// Received over all NVLinks, bytes a second.
        NvlinkRxRate = "nvlink_rx_bytes_per_s",
        /// Memory that no process uses, bytes.
        MemoryFree = "memory_free_bytes",
        /// Time in which its memory was read or written, percent.
        MemoryUtilization = "memory_utilization_percent",
        /// Time in which its video encoder ran, percent.
        EncoderUtilization = "encoder_utilization_percent",
        /// Time in which its video decoder ran, percent.
        DecoderUtilization = "decoder_utilization_percent",
        /// Clock of the memory, MHz.
        MemoryClock = "memory_clock_mhz",
        /// Performance state, 0 the fastest.
        Pstate = "pstate",
        /// Speed of the fan, percent.
        FanSpeed = "fan_speed_percent",
        /// The power limit that was set, watts.
        PowerLimit = "power_limit_w",
        /// The power limit that holds, watts.
        EnforcedPowerLimit = "enforced_power_limit_w",
        /// Clock of the graphics domain, MHz.
        GraphicsClock = "graphics_clock_mhz",
        /// Temperature of the memory, degrees Celsius.
        MemoryTemperature = "memory_temperature_c",
        /// Generation of PCIe at which its link runs.
        PcieGeneration = "pcie_generation",
        /// Lanes of its PCIe link that are in use.
        PcieWidth = "pcie_width",
        /// Memory errors that were corrected, since the driver was loaded.
        EccCorrected = "ecc_corrected",
        /// Memory errors that were not corrected, since the driver was loaded.
        EccUncorrected = "ecc_uncorrected",
    }
}

/// Reads a gauge of a device from a sample.
macro_rules! gauge {
    ($figure:ident) => {
        |gpu| gpu.gauge(Figure::$figure)
    };
}

/// How a figure is read from a sample, joined over time, and shown.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its title in charts and tables.
    pub title: &'static str,
    /// The symbol of its unit; empty: it has none. `None`: bytes, which are shown in several units.
    pub unit: Option<&'static str>,
    /// How its values at several points of time become one.
    pub joining: Joining,
    /// Its value in a sample; `None`: not known.
    pub value: fn(&GpuSample) -> Option<f64>,
}

impl GpuFigure {
    /// The figures that are kept over the time of a run: the first ones. Lists of all figures are cut behind them.
    pub const OVER_TIME: [Self; Self::NvlinkRxRate as usize + 1] =
        *Self::ALL.first_chunk().expect("it is a part of all");
    /// How many of these come first that each GPU can have.
    pub const USUAL: usize = 6;

    /// Whether it is kept over time where it is known, and left out elsewhere: most GPUs lack the performance counters that give it.
    pub fn is_optional(self) -> bool {
        (Self::USUAL..Self::OVER_TIME.len()).contains(&(self as usize))
    }

    /// Whether drivers are asked for it only if a log or a query names it.
    pub fn is_on_request(self) -> bool {
        (Self::FanSpeed..=Self::PcieWidth).contains(&self)
    }

    /// Whether its values are whole numbers.
    pub fn is_whole(self) -> bool {
        matches!(self.row().unit, None | Some(""))
    }

    /// How it is read from a sample, joined over time, and shown.
    pub const fn row(self) -> Row {
        use Joining::{Largest, Last, Mean};
        let (title, unit, joining, value): (_, _, _, fn(&GpuSample) -> Option<f64>) = match self {
            Self::Utilization => ("Utilization", Some("%"), Mean, |gpu| gpu.busy_percent),
            Self::MemoryUsed => {
                ("Memory in use by all", None, Largest, |gpu| gpu.used_bytes.map(|bytes| bytes as f64))
            }
            Self::MemoryRun => {
                ("Memory of the run", None, Largest, |gpu| gpu.run_bytes.map(|bytes| bytes.combined as f64))
            }
            Self::Temperature => ("Temperature", Some("C"), Largest, gauge!(Temperature)),
            Self::Power => ("Power", Some("W"), Mean, gauge!(Power)),
            Self::SmClock => ("SM clock", Some("MHz"), Mean, gauge!(SmClock)),
            Self::SmActive => ("SM activity", Some("%"), Mean, gauge!(SmActive)),
            Self::SmOccupancy => ("SM occupancy", Some("%"), Mean, gauge!(SmOccupancy)),
            Self::TensorActive => ("Tensor core activity", Some("%"), Mean, gauge!(TensorActive)),
            Self::MemoryBandwidth => ("Memory bandwidth", Some("%"), Mean, gauge!(MemoryBandwidth)),
            Self::Fp64Active => ("FP64 activity", Some("%"), Mean, gauge!(Fp64Active)),
            Self::Fp32Active => ("FP32 activity", Some("%"), Mean, gauge!(Fp32Active)),
            Self::Fp16Active => ("FP16 activity", Some("%"), Mean, gauge!(Fp16Active)),
            Self::PcieTxRate => ("PCIe sent", Some("B/s"), Mean, gauge!(PcieTxRate)),
            Self::PcieRxRate => ("PCIe received", Some("B/s"), Mean, gauge!(PcieRxRate)),
            Self::NvlinkTxRate => ("NVLink sent", Some("B/s"), Mean, gauge!(NvlinkTxRate)),
            Self::NvlinkRxRate => ("NVLink received", Some("B/s"), Mean, gauge!(NvlinkRxRate)),
            Self::MemoryFree => {
                ("Free memory", None, Last, |gpu| Some(gpu.device.free_bytes(gpu.used_bytes?)? as f64))
            }
            Self::MemoryUtilization => ("Memory utilization", Some("%"), Mean, gauge!(MemoryUtilization)),
            Self::EncoderUtilization => ("Encoder utilization", Some("%"), Mean, gauge!(EncoderUtilization)),
            Self::DecoderUtilization => ("Decoder utilization", Some("%"), Mean, gauge!(DecoderUtilization)),
            Self::MemoryClock => ("Memory clock", Some("MHz"), Mean, gauge!(MemoryClock)),
            Self::Pstate => ("Performance state", Some(""), Largest, gauge!(Pstate)),
            Self::FanSpeed => ("Fan speed", Some("%"), Mean, gauge!(FanSpeed)),
            Self::PowerLimit => ("Power limit", Some("W"), Last, gauge!(PowerLimit)),
            Self::EnforcedPowerLimit => ("Enforced power limit", Some("W"), Last, gauge!(EnforcedPowerLimit)),
            Self::GraphicsClock => ("Graphics clock", Some("MHz"), Mean, gauge!(GraphicsClock)),
            Self::MemoryTemperature => ("Memory temperature", Some("C"), Largest, gauge!(MemoryTemperature)),
            Self::PcieGeneration => ("PCIe generation", Some(""), Last, gauge!(PcieGeneration)),
            Self::PcieWidth => ("PCIe lanes", Some(""), Last, gauge!(PcieWidth)),
            Self::EccCorrected => ("ECC errors corrected", Some(""), Last, gauge!(EccCorrected)),
            Self::EccUncorrected => ("ECC errors uncorrected", Some(""), Last, gauge!(EccUncorrected)),
        };
        Row { title, unit, joining, value }
    }
}

/// Number of figures.
const COUNT: usize = GpuFigure::ALL.len();

/// A value for each figure of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ByGpuFigure<T>([T; COUNT]);

impl<T> ByGpuFigure<T> {
    /// Makes a value for each figure by `of`.
    pub fn new(of: impl FnMut(GpuFigure) -> T) -> Self {
        Self(GpuFigure::ALL.map(of))
    }

    /// The values, in the order of [`GpuFigure::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// The values of [`GpuFigure::OVER_TIME`], in that order.
    pub fn over_time(&self) -> impl Iterator<Item = &T> {
        self.iter().take(GpuFigure::OVER_TIME.len())
    }

    /// The values to be changed, in the order of [`GpuFigure::ALL`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Replaces the value of a figure.
    #[must_use]
    pub fn with(mut self, figure: GpuFigure, value: T) -> Self {
        self.0[figure as usize] = value;
        self
    }
}

impl From<&GpuSample> for ByGpuFigure<Option<f64>> {
    /// The figures in a sample. `None`: not known.
    fn from(gpu: &GpuSample) -> Self {
        Self::new(|figure| (figure.row().value)(gpu))
    }
}

impl<T> Index<GpuFigure> for ByGpuFigure<T> {
    type Output = T;

    fn index(&self, figure: GpuFigure) -> &T {
        &self.0[figure as usize]
    }
}
