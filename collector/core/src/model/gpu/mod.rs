//! GPUs: what the user wants to know, the devices, and what a reading of them holds.

mod believed;
pub mod config;
mod device;
mod figure;
pub mod gpu_figure;
pub mod listing;
mod observation;
mod sample;
pub mod select;
mod short_name;
mod torch;

pub use believed::{MOST_BYTES, most_bytes};
pub use config::{DRIVER_PERCENT_AT_INTERVAL, ENV_METRICS, ENV_NVML_LIB, GpuConfig, Vendor};
pub use device::Device;
pub use figure::{Figure, Missing, Reading, either};
pub use observation::{BackendsAtEnd, Batch, DeviceList, GpuObservation, GpuPids, PidFacts, TrackedDevice};
pub use sample::{AccountingEntry, Activity, Busy, DeviceSample, ProcessBusy, ProcessMemory, Work};
pub use short_name::{Named, short_names};
pub use torch::TorchMemory;

/// The name of the NVML backend in reports.
pub const NVIDIA: &str = "NVIDIA";
/// The name of the DRM backend in reports.
pub const AMD_AND_INTEL: &str = "AMD and Intel";
