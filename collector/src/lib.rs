//! The collector: from observations of a tracked process tree to one report.

pub mod model;
mod passes;
pub mod recover;
pub mod report;
pub mod run;
pub mod session;
pub mod sources;
pub mod store;
pub mod sys;
