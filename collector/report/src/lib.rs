//! What is made of reports: the forms of one (text, JSON, HTML and others). Several become a merged report, a comparison or a
//! study. Also the lines of the files that a run writes, and the tables that are made of these files.
//!
//! All of it is pure functions of the data, and of the form that the user asked for.

#![forbid(unsafe_code)]

pub mod alerts_in_words;
mod command_line;
mod command_sums;
pub mod compare;
mod document;
pub mod event_line;
pub mod events;
pub mod export;
pub mod figures;
pub mod format;
mod gpu_tracker;
mod gpustat;
mod html;
mod json;
pub mod merge;
pub mod metrics;
mod openmetrics;
pub mod over_time;
pub mod progress;
mod quantities;
pub mod quote;
pub mod read;
pub mod rules_in_words;
pub mod runs;
mod sections;
mod statistics;
pub mod study;
pub mod sub_track;
pub mod task_table;
mod text;
pub mod tracking_line;
mod units;

#[cfg(test)]
mod golden;

pub(crate) use gpu_track_core::model;
