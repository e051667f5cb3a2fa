//! The report: built from the run state, then written as text or JSON. Only `write` does I/O.

pub(crate) mod build;
mod counts;
mod document;
mod figures;
pub mod format;
mod gpu;
mod gpu_tracker;
mod hints;
pub(crate) mod inputs;
mod json;
pub mod quote;
pub mod read;
mod sections;
mod text;
mod units;
mod usable;
mod warnings;
pub mod write;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod nulls;

pub(crate) use crate::model::report::{Ending, Report};
use crate::model::timestamp;
