//! The report: built from the run state, then written as text or JSON. Only `write` does I/O.

pub(crate) mod build;
mod counts;
pub mod format;
mod gpu;
mod hints;
pub(crate) mod inputs;
mod json;
pub mod quote;
pub mod read;
mod text;
mod usable;
mod warnings;
pub mod write;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod nulls;

pub(crate) use crate::model::report::{Ending, Report};
use crate::model::timestamp;
