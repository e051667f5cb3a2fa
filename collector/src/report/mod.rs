//! The report: one model, and writers that are pure functions of it.
pub mod model;
