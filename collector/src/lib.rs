//! The collector: from the events of a tracked process tree and samples of its processes to one report.
//!
//! The way of the data is one way, each room handing on to the next:
//!
//! ```text
//! discovery (who exists) -> tree (who is who, who ended how) -> sampler (what each uses now)
//!     -> usage (maxima, means, sums) -> report (pure functions)
//! ```
//!
//! `session` runs the rooms; `account` is what the run has come to so far, `state` keeps it for the next collector should
//! this one be killed; `stale` finds what is left where all was killed, `recover` makes a report of it. `segment` is the
//! shared memory, `proc_fs`, `pidfd` and `kernel` are the ways to the kernel.

pub mod account;
pub mod cgroup;
pub mod clock;
pub mod config;
pub mod discovery;
pub mod gpu;
pub mod keeper;
pub mod kernel;
pub mod limits;
pub mod pidfd;
pub mod priority;
pub mod proc_fs;
pub mod recover;
pub mod report;
pub mod sampler;
pub mod segment;
pub mod session;
pub mod stale;
pub mod state;
pub mod tree;
pub mod usage;
