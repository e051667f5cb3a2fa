//! GPUs: memory, utilisation, and each device over the run.
//!
//! A figure is `None` where the driver does not give it; [`GpuDevice::missing`] and a warning say why.

use serde::{Deserialize, Serialize};

use super::cpu::Percent;
use crate::model::gpu::Vendor;

/// Largest GPU memory over time, summed over the tracked GPUs, bytes. All are 0 on a machine without a GPU, and `None`
/// where a driver failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MaxGpuRam {
    /// Memory that the GPUs have.
    #[serde(rename = "system_capacity")]
    pub system_capacity_bytes: Option<u64>,
    /// In use by any process of the machine.
    #[serde(rename = "system")]
    pub system_bytes: Option<u64>,
    /// The command's first process.
    #[serde(rename = "main")]
    pub main_bytes: Option<u64>,
    /// All its descendants.
    #[serde(rename = "descendants")]
    pub descendants_bytes: Option<u64>,
    /// The whole tree.
    #[serde(rename = "combined")]
    pub combined_bytes: Option<u64>,
}

/// GPU utilisation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// GPUs of the machine; `None` where a driver failed, or one could not be read.
    pub system_gpu_count: Option<u32>,
    /// Tracked GPUs; `None` where a driver failed.
    #[serde(rename = "n_expected_gpus")]
    pub expected_gpus: Option<u32>,
    /// Sum over the tracked GPUs of their utilisation by any process, percent of one GPU.
    #[serde(rename = "gpu_percentages", default)]
    pub percent: Percent,
}

/// A GPU, or a part of one (MIG), over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuDevice {
    /// Its UUID, or its PCI address where it has none.
    pub id: String,
    /// The driver's number for it.
    pub index: Option<u32>,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// `nvidia`, `amd` or `intel`.
    pub vendor: Option<Vendor>,
    /// The id of the device that it is a part of; `None` for a whole device.
    pub parent: Option<String>,
    /// The interface that the figures come from, such as `nvml`.
    pub source: String,
    /// Version of the kernel driver.
    pub driver_version: Option<String>,
    /// Version of the runtime (CUDA, ROCm) that the driver supports.
    pub runtime_version: Option<String>,
    /// Whether the command's environment (CUDA_VISIBLE_DEVICES and the like) names it; `None` if it names no device.
    pub visible: Option<bool>,
    /// Whether a process of the run was seen on it; `None`: none was, and one can have been missed.
    pub used: Option<bool>,
    /// When the driver first reported it lost, seconds after the command's start; `None`: never.
    pub lost_at_s: Option<f64>,
    /// How often its process lists, and with them its memory, were read.
    #[serde(default)]
    pub reading: GpuReading,
    /// Memory.
    #[serde(default)]
    pub memory: GpuMemory,
    /// Utilisation.
    #[serde(default)]
    pub utilization: GpuUtilization,
    /// Power and energy.
    #[serde(default)]
    pub power: GpuPower,
    /// Largest temperature, degrees Celsius.
    pub max_temperature_c: Option<f64>,
    /// Clocks.
    #[serde(default)]
    pub clocks: GpuClocks,
    /// Performance states.
    #[serde(default)]
    pub pstate: GpuPstate,
    /// Time in each throttle reason.
    pub throttle: Option<Vec<GpuThrottle>>,
    /// PCIe traffic.
    #[serde(default)]
    pub pcie: GpuPcie,
    /// Errors during the run.
    #[serde(default)]
    pub errors: GpuErrors,
    /// The processes of the run that were seen on it, largest peak first.
    pub processes: Vec<GpuProcess>,
    /// The figures that are not known, and why.
    pub missing: Vec<GpuMissing>,
    /// The figures that could not be read for a part of the run, and why.
    pub gaps: Vec<GpuGap>,
}

/// How often a GPU's process lists were read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// How often in all; `None` in the report of a version that did not count.
    pub count: Option<u64>,
    /// Mean time between two, seconds.
    pub mean_interval_s: Option<f64>,
    /// Longest time between two, seconds.
    pub max_interval_s: Option<f64>,
}

/// A GPU's memory, bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// Memory that it has.
    pub total_bytes: Option<u64>,
    /// Most in use by any process of the machine.
    pub max_used_bytes: Option<u64>,
    /// Most in use by the command's first process.
    pub max_main_bytes: Option<u64>,
    /// Most in use by all its descendants.
    pub max_descendants_bytes: Option<u64>,
    /// Most in use by the whole tree.
    pub max_combined_bytes: Option<u64>,
}

/// A GPU's utilisation by any process of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUtilization {
    /// Mean over the time that the driver's samples cover, percent.
    pub mean_percent: Option<f64>,
    /// Largest sample, percent.
    pub max_percent: Option<f64>,
    /// Busy time: utilisation integrated over the samples, seconds.
    pub active_s: Option<f64>,
    /// Time that the samples cover, seconds; `None` if the driver reports no utilisation.
    pub measured_s: Option<f64>,
    /// Mean of the memory controller, percent.
    pub mean_memory_percent: Option<f64>,
    /// Largest reading of the memory controller, percent.
    pub max_memory_percent: Option<f64>,
}

/// A GPU's power and energy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuPower {
    /// Mean over time, watts: the energy counter's energy over its time, else that of the readings.
    pub mean_w: Option<f64>,
    /// The time that the mean is over, seconds; `None`: it is a single reading.
    pub mean_span_s: Option<f64>,
    /// Largest reading, watts, and no less than the mean.
    pub max_w: Option<f64>,
    /// Difference of the device's energy counter between the first and the last reading, joules.
    pub energy_j: Option<f64>,
    /// Time between those two readings, seconds.
    pub energy_span_s: Option<f64>,
    /// Power integrated from its first reading to its last, joules.
    pub integrated_energy_j: Option<f64>,
}

/// A GPU's clocks, MHz.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuClocks {
    /// Mean of the processors' (SM) clock.
    pub mean_sm_mhz: Option<f64>,
    /// Largest of the processors' (SM) clock.
    pub max_sm_mhz: Option<f64>,
    /// Mean of the memory's clock.
    pub mean_memory_mhz: Option<f64>,
    /// Largest of the memory's clock.
    pub max_memory_mhz: Option<f64>,
}

/// A GPU's performance states: 0 is the fastest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPstate {
    /// Smallest number read.
    pub fastest: Option<u32>,
    /// Largest number read.
    pub slowest: Option<u32>,
}

/// Time in a throttle reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuThrottle {
    /// The driver's reason.
    pub reason: String,
    /// How long it applied, seconds.
    pub time_s: f64,
}

/// Bytes over PCIe: differences of the device's counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuPcie {
    /// Sent by the device.
    pub tx_bytes: Option<u64>,
    /// Received by the device.
    pub rx_bytes: Option<u64>,
}

/// Errors of a GPU during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuErrors {
    /// Memory errors that were corrected (ECC).
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not corrected (ECC).
    pub ecc_uncorrected: Option<u64>,
    /// Critical errors by NVIDIA's XID number.
    pub xid: Option<Vec<GpuXid>>,
}

/// A critical error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuXid {
    /// NVIDIA's number.
    pub xid: u64,
    /// How often it occurred.
    pub count: u64,
}

/// A process on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its pid, as the driver reports it.
    pub driver_pid: u32,
    /// Its command name.
    pub command: String,
    /// Whether it is the command's first process.
    pub is_main: bool,
    /// Its largest memory on this GPU, bytes; `None` if the driver never reported it.
    pub peak_bytes: Option<u64>,
    /// Mean utilisation over the time in which it had memory there, else from its accounting, percent.
    pub mean_sm_percent: Option<f64>,
    /// Largest sample of its utilisation, percent.
    pub max_sm_percent: Option<f64>,
    /// Whether its peak is from the driver's accounting, which saw more than any sample.
    pub accounted: bool,
}

/// A figure that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMissing {
    /// Its name.
    pub figure: String,
    /// Why it is not known.
    pub reason: String,
}

/// A figure that could not be read for a part of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuGap {
    /// Its name.
    pub figure: String,
    /// Why it could not be read, the last time.
    pub reason: String,
    /// For how long in all, seconds.
    pub time_s: f64,
}

/// The processes of one command name on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandGpu {
    /// How many of them used one.
    pub count: u64,
    /// Largest peak of any one of them, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest utilisation of one device by any one of them, percent.
    pub max_sm_percent: Option<f64>,
}

/// One process on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessGpu {
    /// Largest sum over the devices at one time, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest utilisation of one device, percent.
    pub max_sm_percent: Option<f64>,
}
