//! The core: from observations to what the run used. It does no I/O and reads no clock.

pub mod gpu;
pub mod sampling;
pub mod schedule;
pub mod state;
pub mod tree;
pub mod trust;
pub mod usage;

pub use state::RunState;
