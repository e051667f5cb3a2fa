//! Asks the GPU drivers which devices there are, what each shows, and what processes use of it.
//!
//! ```text
//! backend (nvml; drm + kfd) -> worker (a thread each) -> monitor -> GpuObservation
//! ```
//!
//! A driver can stall, start slowly, or lose a device. So the collector never waits for one: a worker hands over what it
//! has read, and is abandoned if its driver does not return. Every figure is a value or a reason.

mod backend;
pub(crate) mod detection;
pub mod drm;
pub mod list;
pub(crate) mod monitor;
mod now;
pub(crate) mod nvml;
mod pid_facts;
mod policy;
mod worker;
