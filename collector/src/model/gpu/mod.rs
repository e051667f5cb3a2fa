//! GPUs: what the user wants to know, the devices, and what a reading of them holds.

pub mod config;
mod device;
mod figure;
pub mod listing;
mod observation;
mod sample;
pub mod select;

pub(crate) use config::DRIVER_PERCENT_AT_INTERVAL;
pub use config::{ENV_NVML_LIB, GpuConfig, Vendor};
pub use device::Device;
pub(crate) use figure::{Figure, Missing, Reading, either};
pub(crate) use observation::{
    BackendsAtEnd, Batch, DeviceList, GpuObservation, GpuPids, PidFacts, TrackedDevice,
};
pub(crate) use sample::{AccountingEntry, Busy, DeviceSample, ProcessBusy, ProcessMemory};

/// The name of the NVML backend in reports.
pub(crate) const NVIDIA: &str = "NVIDIA";
