//! GPUs: memory, utilization, and each device over the run.
//!
//! A figure is `None` where the driver does not give it; [`GpuDevice::missing`] and a warning say why.

use serde::{Deserialize, Serialize};

use super::cpu::Percent;
use crate::model::gpu::Vendor;

/// Largest GPU memory over time, summed over the tracked GPUs, bytes. All are 0 on a machine without a GPU, and `None`
/// where a driver failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MaxGpuRam {
    /// What they have, bytes.
    #[serde(rename = "system_capacity")]
    pub system_capacity_bytes: Option<u64>,
    /// Most in use by all processes, bytes.
    #[serde(rename = "system")]
    pub system_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    #[serde(rename = "main")]
    pub main_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    #[serde(rename = "descendants")]
    pub descendants_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    #[serde(rename = "combined")]
    pub combined_bytes: Option<u64>,
}

/// GPU utilization.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// GPUs of the machine.
    pub system_gpu_count: Option<u32>,
    /// Tracked GPUs.
    #[serde(rename = "n_expected_gpus")]
    pub expected_gpus: Option<u32>,
    /// Sum over them: the largest at one time, and that of their means.
    #[serde(rename = "gpu_percentages", default)]
    pub percent: Percent,
}

/// A GPU, or a part of one (MIG), over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuDevice {
    /// UUID, else PCI address; of a partition `ADDRESS/NUMBER`.
    pub id: String,
    /// The driver's number for it.
    pub index: Option<u32>,
    /// Such as `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Its maker.
    pub vendor: Option<Vendor>,
    /// Id of the GPU that it is a part of.
    pub parent: Option<String>,
    /// `nvml`, or the kernel driver's name.
    pub source: String,
    /// The kernel driver's.
    pub driver_version: Option<String>,
    /// The CUDA or ROCm that the driver supports.
    pub runtime_version: Option<String>,
    /// CUDA_VISIBLE_DEVICES and the like name it; `None`: none is set.
    pub visible: Option<bool>,
    /// A process of the tree was seen on it; `None`: none was, and one can have been missed.
    pub used: Option<bool>,
    /// When it was lost, seconds after the command's start.
    pub lost_at_s: Option<f64>,
    /// How often its process lists, and with them its memory, were read.
    #[serde(default)]
    pub reading: GpuReading,
    /// Memory.
    #[serde(default)]
    pub memory: GpuMemory,
    /// Utilization.
    #[serde(default)]
    pub utilization: GpuUtilization,
    /// What its performance counters showed.
    #[serde(default)]
    pub activity: GpuActivity,
    /// What its figures mean, where the run used it; `None`: an earlier release made the report.
    pub findings: Option<Vec<GpuFinding>>,
    /// Power and energy.
    #[serde(default)]
    pub power: GpuPower,
    /// Largest, degrees Celsius.
    pub max_temperature_c: Option<f64>,
    /// Clocks.
    #[serde(default)]
    pub clocks: GpuClocks,
    /// Performance states.
    #[serde(default)]
    pub pstate: GpuPstate,
    /// Time in each throttle reason seen.
    pub throttle: Option<Vec<GpuThrottle>>,
    /// For how long the throttle reasons were read, seconds.
    #[serde(default)]
    pub throttle_span_s: Option<f64>,
    /// PCIe traffic.
    #[serde(default)]
    pub pcie: GpuPcie,
    /// Errors during the run.
    #[serde(default)]
    pub errors: GpuErrors,
    /// Processes of the tree on it, largest peak first.
    pub processes: Vec<GpuProcess>,
    /// Figures that are not known.
    pub missing: Vec<GpuMissing>,
    /// Figures that were not read for more than two intervals: maxima may be higher.
    pub gaps: Vec<GpuGap>,
}

impl GpuDevice {
    /// What it is called in texts: its index, or else its id.
    pub fn number(&self) -> String {
        self.index.map_or_else(|| self.id.clone(), |index| index.to_string())
    }

    /// The GPUs that sums are over. A part of a GPU (MIG) is left out if its whole device is tracked, too: that has its figures.
    pub fn whole(gpus: &[Self]) -> impl Iterator<Item = &Self> {
        gpus.iter().filter(|gpu| !gpus.iter().any(|other| gpu.parent.as_ref() == Some(&other.id)))
    }

    /// The GPUs that tell their own utilization: not those that are divided (MIG).
    pub fn undivided(gpus: &[Self]) -> impl Iterator<Item = &Self> {
        gpus.iter().filter(|gpu| !gpus.iter().any(|part| part.parent.as_ref() == Some(&gpu.id)))
    }
}

/// Whether figures can be compared or put together. `seconds`: for how long each is known. If one is known for less time than another, it
/// can lack work that the other has.
pub fn are_of_one_time(seconds: &[f64]) -> bool {
    /// The times of such figures differ by no more than this part.
    const OTHER_PART: f64 = 0.1;
    let least = seconds.iter().copied().fold(f64::MAX, f64::min);
    seconds.iter().all(|s| s - least <= s * OTHER_PART)
}

/// How often a GPU's process lists were read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuReading {
    /// How often its memory was read.
    pub count: Option<u64>,
    /// Time between two readings, seconds.
    pub mean_interval_s: Option<f64>,
    /// Time between two readings, seconds.
    pub max_interval_s: Option<f64>,
}

/// A GPU's memory, bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuMemory {
    /// What it has, bytes.
    pub total_bytes: Option<u64>,
    /// Most in use by all processes, bytes.
    pub max_used_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    pub max_main_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    pub max_descendants_bytes: Option<u64>,
    /// Most in use by this part of the tree, bytes.
    pub max_combined_bytes: Option<u64>,
}

/// A GPU's utilization by any process of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuUtilization {
    /// Utilization over `measured_s`, percent.
    pub mean_percent: Option<f64>,
    /// Utilization over `measured_s`, percent.
    pub max_percent: Option<f64>,
    /// Busy time, seconds.
    pub active_s: Option<f64>,
    /// Time that the driver reported on, seconds.
    pub measured_s: Option<f64>,
    /// Utilization of the memory controller, percent.
    pub mean_memory_percent: Option<f64>,
    /// Utilization of the memory controller, percent.
    pub max_memory_percent: Option<f64>,
}

/// What the performance counters of a GPU showed of its work, by any process of the machine. NVIDIA since Hopper (GPM); others null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuActivity {
    /// Time that the counters cover, seconds.
    pub measured_s: Option<f64>,
    /// Time in which a warp was on an SM, mean of all SMs, percent.
    pub mean_sm_percent: Option<f64>,
    /// Time in which a warp was on an SM, mean of all SMs, percent.
    pub max_sm_percent: Option<f64>,
    /// Warps on the SMs, percent of the most that fit.
    pub mean_occupancy_percent: Option<f64>,
    /// Warps on the SMs, percent of the most that fit.
    pub max_occupancy_percent: Option<f64>,
    /// Time in which the tensor cores worked, percent.
    pub mean_tensor_percent: Option<f64>,
    /// Time in which the tensor cores worked, percent.
    pub max_tensor_percent: Option<f64>,
    /// Traffic of its memory, percent of the most that is possible.
    pub mean_memory_bandwidth_percent: Option<f64>,
    /// Traffic of its memory, percent of the most that is possible.
    pub max_memory_bandwidth_percent: Option<f64>,
    /// Time in which the pipes for 64-bit numbers worked, percent.
    pub mean_fp64_percent: Option<f64>,
    /// Time in which the pipes for 64-bit numbers worked, percent.
    pub max_fp64_percent: Option<f64>,
    /// Time in which the pipes for 32-bit numbers worked, percent.
    pub mean_fp32_percent: Option<f64>,
    /// Time in which the pipes for 32-bit numbers worked, percent.
    pub max_fp32_percent: Option<f64>,
    /// Time in which the pipes for 16-bit numbers worked, percent.
    pub mean_fp16_percent: Option<f64>,
    /// Time in which the pipes for 16-bit numbers worked, percent.
    pub max_fp16_percent: Option<f64>,
    /// Largest rate over PCIe, bytes a second.
    pub max_pcie_tx_bytes_per_s: Option<f64>,
    /// Largest rate over PCIe, bytes a second.
    pub max_pcie_rx_bytes_per_s: Option<f64>,
    /// Sent over all NVLinks, bytes.
    pub nvlink_tx_bytes: Option<u64>,
    /// Received over all NVLinks, bytes.
    pub nvlink_rx_bytes: Option<u64>,
    /// Largest rate over all NVLinks, bytes a second.
    pub max_nvlink_tx_bytes_per_s: Option<f64>,
    /// Largest rate over all NVLinks, bytes a second.
    pub max_nvlink_rx_bytes_per_s: Option<f64>,
}

/// A GPU's power and energy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuPower {
    /// Energy over its time, watts; without a counter, or below 1 s, the mean reading.
    pub mean_w: Option<f64>,
    /// Time that the mean is over, seconds; `None`: one reading.
    pub mean_span_s: Option<f64>,
    /// Largest reading, and no less than the mean, watts.
    pub max_w: Option<f64>,
    /// By its counter, joules; `None` also if that stood still.
    pub energy_j: Option<f64>,
    /// Time between the first and last reading, seconds.
    pub energy_span_s: Option<f64>,
    /// Power over time, joules.
    pub integrated_energy_j: Option<f64>,
}

/// A GPU's clocks, MHz.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuClocks {
    /// Of the processors, MHz.
    pub mean_sm_mhz: Option<f64>,
    /// Of the processors, MHz.
    pub max_sm_mhz: Option<f64>,
    /// Of the memory, MHz.
    pub mean_memory_mhz: Option<f64>,
    /// Of the memory, MHz.
    pub max_memory_mhz: Option<f64>,
}

/// A GPU's performance states: 0 is the fastest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuPstate {
    /// 0 is the fastest.
    pub fastest: Option<u32>,
    /// 0 is the fastest.
    pub slowest: Option<u32>,
}

/// Time in a throttle reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuThrottle {
    /// The driver's reason.
    pub reason: String,
    /// How long it applied, seconds.
    pub time_s: f64,
    /// Clock of the processors meanwhile, MHz.
    pub mean_sm_mhz: Option<f64>,
}

/// What a GPU's figures mean: a fact, never for a difference of less than a tenth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuFinding {
    /// Which fact.
    pub kind: GpuFindingKind,
    /// Its figure, percent.
    pub percent: f64,
    /// What that is compared with, or the clock that was lost, percent.
    pub of_percent: Option<f64>,
    /// The same in words.
    pub text: String,
}

/// A fact about a GPU's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum GpuFindingKind {
    /// It was busy, and its SMs had work in less than half of that time.
    SmsIdle,
    /// The pipes for 32-bit numbers worked, the tensor cores did not.
    TensorUnused,
    /// Its memory carried 60% of what it can, or more, while it was busy.
    BandwidthBound,
    /// PCIe carried half of what the link can, or more.
    PcieBound,
    /// Heat or want of power lowered its clocks by a tenth, for a tenth of the time.
    Throttled,
    /// The power limit did that.
    PowerCapped,
    /// Another GPU of the run was busy by a tenth more of the time.
    Unbalanced,
    /// Free parts of blocks in use, which PyTorch can't give back, were 30% or more of what it reserved.
    Fragmented,
}

/// Bytes over PCIe: differences of the device's counters, or over `activity.measured_s` by its performance counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuPcie {
    /// For how long they were counted, seconds.
    #[serde(default)]
    pub span_s: Option<f64>,
    /// Sent and received, bytes; `None` also if a counter can have wrapped.
    pub tx_bytes: Option<u64>,
    /// Sent and received, bytes; `None` also if a counter can have wrapped.
    pub rx_bytes: Option<u64>,
    /// The most that the link carries one way, bytes a second.
    pub link_bytes_per_s: Option<u64>,
}

/// Errors of a GPU during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuErrors {
    /// Memory errors during the run.
    pub ecc_corrected: Option<u64>,
    /// Memory errors during the run.
    pub ecc_uncorrected: Option<u64>,
    /// NVIDIA's critical errors during the run.
    pub xid: Option<Vec<GpuXid>>,
}

/// A critical error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuXid {
    /// NVIDIA's number.
    pub xid: u64,
    /// How often.
    pub count: u64,
}

/// A process on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuProcess {
    /// Its pid and name.
    pub pid: u32,
    /// As the driver reports it.
    pub driver_pid: u32,
    /// Its pid and name.
    pub command: String,
    /// It is the command's first process.
    pub is_main: bool,
    /// Its largest memory there, bytes.
    pub peak_bytes: Option<u64>,
    /// Its utilization of this GPU; the mean is over its time there, percent.
    pub mean_sm_percent: Option<f64>,
    /// Its utilization of this GPU; the mean is over its time there, percent.
    pub max_sm_percent: Option<f64>,
    /// Its peak is from the driver's accounting alone.
    pub accounted: bool,
    /// PyTorch's part of its memory; `None`: it did not tell, or not certainly of this GPU.
    #[serde(default)]
    pub torch: Option<GpuTorch>,
}

/// What PyTorch had on a GPU, bytes: the largest amounts that `gpu_track.torch_metrics()` told. Between its calls there can be more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuTorch {
    /// The memory of tensors.
    pub live_bytes: Option<u64>,
    /// The memory of tensors, and what the allocator kept for later ones.
    pub reserved_bytes: u64,
    /// Free parts of blocks that are in use. The allocator can't give them back.
    pub fragmented_bytes: Option<u64>,
    /// At most so much was CUDA's context, and memory of other libraries: the driver's peak without `reserved_bytes`.
    pub most_context_bytes: u64,
}

/// A figure that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuMissing {
    /// Its name.
    pub figure: String,
    /// Why.
    pub reason: String,
}

/// A figure that could not be read for a part of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuGap {
    /// Its name.
    pub figure: String,
    /// Why, the last time.
    pub reason: String,
    /// For how long in all, seconds.
    pub time_s: f64,
}

/// The processes of one command name on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandGpu {
    /// How many of them used a GPU.
    pub count: u64,
    /// Largest of a single one, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest of a single one on one GPU, percent.
    pub max_sm_percent: Option<f64>,
}

/// One process on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessGpu {
    /// Largest sum over GPUs at one time, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest on one GPU, percent.
    pub max_sm_percent: Option<f64>,
}
