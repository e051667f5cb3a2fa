//! The core: from observations to what the run used. It does no I/O and reads no clock.

pub(crate) mod cause;
pub(crate) mod failures;
pub(crate) mod gpu;
pub(crate) mod nodes;
pub(crate) mod orders;
pub(crate) mod outbox;
#[cfg(test)]
pub(crate) mod random_seed;
#[cfg(test)]
pub(crate) mod random_trees;
pub(crate) mod ranks;
pub(crate) mod samples;
pub(crate) mod sampling;
pub(crate) mod schedule;
pub(crate) mod series;
pub(crate) mod sink_troubles;
pub mod state;
pub mod tree;
pub mod trust;
pub mod usage;
pub(crate) mod waiting;

pub use state::RunState;
