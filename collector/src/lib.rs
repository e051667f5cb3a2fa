//! The collector: from the events of a tracked process tree and samples of its processes to one report.
//!
//! The way of the data is one way, each room handing on to the next:
//!
//! ```text
//! discovery -> tree -> sampler -> usage -> report
//! ```
pub mod report;
