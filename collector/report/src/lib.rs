//! The forms of a report: text and JSON. Each is a pure function of the report, and of how the user wants it.

pub mod format;
mod json;
pub mod quote;
mod text;

#[cfg(test)]
mod golden;

pub(crate) use gpu_track_core::model;
