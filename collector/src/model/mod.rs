//! Data that several parts share: names, qualities, what sources find, what was asked for, and the report. It knows no
//! other module and does no I/O.

pub mod cgroup;
pub mod command;
pub mod config;
pub mod finding;
pub mod gpu;
pub(crate) mod groups;
pub mod host;
pub mod ids;
pub(crate) mod journal;
pub mod observation;
pub mod order;
pub mod policy;
pub mod process_table;
pub mod quality;
pub(crate) mod report;
pub mod signal;
pub mod style;
pub(crate) mod timestamp;
pub(crate) mod tree_sample;
pub mod values;
