//! End-to-end tests: real commands under the built gpu-track-run. Its JSON report is compared with exactly known work
//! and with the kernel's own figures for the same tree.
//!
//! A test whose requirements are missing on the machine writes a line `SKIPPED test: reason`, which scripts/test counts.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests panic and print as tests do")]

mod agents;
mod births_and_deaths;
mod causes;
mod companion;
mod completions;
mod connector;
mod contention;
mod counts;
mod coverage;
mod cpu;
mod entry_points;
mod exit_status;
mod footprints;
mod gpu;
mod gpu_check;
mod gpu_drivers;
mod gpu_engines;
mod gpu_intervals;
mod gpu_kernel;
mod gpu_lost;
mod gpu_processes;
mod gpu_report;
mod gpu_slow;
mod gpu_sums;
mod gpu_time;
mod gpu_trace;
mod gpu_tracker;
mod gpu_utilization;
mod gpu_which;
mod input;
mod kept;
mod languages;
mod limits;
mod live_file;
mod memory;
mod merge;
mod mpi;
mod nested;
mod nodes;
mod old_shims;
mod output;
mod page;
mod progress;
mod prometheus;
mod report_file;
mod resilience;
mod series;
mod signals;
mod streams;
mod studies;
mod sub_track;
mod summary;
mod support;
mod terminal;
mod trace;
mod tracking_file;
mod tracking_forms;
mod trees;
mod untracked;
mod users;
mod wait_all;
mod watch;
