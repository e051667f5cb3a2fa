//! The report: one model, and writers that are pure functions of it.
pub mod build;
pub mod gpu;
pub mod json;
pub mod quote;
pub mod text;
pub mod write;

#[cfg(test)]
mod golden;
