//! What the run used on GPUs.
//!
//! ```text
//! backend (a thread each: nvml, drm + kfd) -> samples -> roster (whose pid is it) -> usage (maxima, integrals) -> report
//! ```
//!
//! A driver can stall, start slowly, or lose a device. So nobody waits for a backend: its thread hands over what it
//! has, and is abandoned if it doesn't come back ([`worker`]). Every figure is a value or a [`Missing`] reason.

pub mod drm;
pub mod kfd;
pub mod list;
pub mod monitor;
pub mod nvml;
pub mod worker;

pub use monitor::GpuRoom;

use crate::model::gpu::{Device, DeviceSample, Missing};

/// A way to a driver. It lives on a thread of its own, so its calls may take what they take.
pub trait Backend: Send {
    /// The devices that are there now.
    fn devices(&mut self) -> Vec<Device>;

    /// Read the devices in `wanted` (ids); it is `at_ns` now, CLOCK_MONOTONIC. `pids` are the processes of the run, for those
    /// drivers that have to be asked process by process.
    fn sample(&mut self, at_ns: u64, wanted: &[String], pids: &[u32]) -> Vec<DeviceSample>;

    /// Put back what was changed in the driver's settings.
    fn restore(&mut self) {}

    /// Why devices that never said which they are can't be read.
    fn unreadable(&self) -> Vec<Missing> {
        Vec::new()
    }

    /// What a reader should know of this backend.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
