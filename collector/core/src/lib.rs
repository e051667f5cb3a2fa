//! The core of the collector: from observations of a tracked process tree to what its report says.
//!
//! `model` is the data that all parts of the collector share. `run` is the state of a run; only observations change it. `build`
//! makes the report from that state. Nothing here does I/O or reads a clock: each observation carries its time, and the core
//! returns requests for what it wants to have read.

#![forbid(unsafe_code)]

pub mod build;
#[cfg(any(test, feature = "test-support"))]
pub mod fixtures;
pub mod model;
#[cfg(any(test, feature = "test-support"))]
pub mod random_seed;
pub mod run;
