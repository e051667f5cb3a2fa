//! The core of the collector: from observations of a tracked process tree to what its report says.
//!
//! `model` has the data that all share. `run` is the state of a run, which changes by observations only. `build` makes the
//! report of it. Nothing here does I/O or reads a clock: observations carry their times, and what the core wants to know it
//! asks for by a request.

#![forbid(unsafe_code)]

pub mod build;
#[cfg(any(test, feature = "test-support"))]
pub mod fixtures;
pub mod model;
#[cfg(any(test, feature = "test-support"))]
pub mod random_seed;
pub mod run;
