//! Data that several parts share: names, qualities, what sources find, what was asked for, and the report. It knows no
//! other module and does no I/O.

pub mod alert;
pub mod attached;
pub mod batch;
pub mod cgroup;
pub mod command;
pub mod config;
pub mod counts_in_words;
pub mod ended_process;
pub mod exit_account;
pub mod gpu;
pub mod gpu_trace;
pub mod groups;
pub mod host_info;
pub mod host_name;
pub mod ids;
pub mod joining;
pub mod journal;
pub mod kernel_event;
pub mod live;
pub mod mpi_daemons;
pub mod named;
pub mod observation;
pub mod order;
pub mod policy;
pub mod process_table;
pub mod quality;
pub mod record_or_event;
pub mod report;
pub mod rule;
pub mod run_end;
pub mod run_limit;
pub mod signal;
pub mod style;
pub mod timestamp;
pub mod tree_sample;
