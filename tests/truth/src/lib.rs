//! The kernel's own figures of a process tree: its processes and their exits (process connector), their peak RSS
//! (taskstats), their CPU time (a cgroup) and their memory (page frames). Shares no code with gpu-track. Needs root.

pub mod cgroup;
pub mod connector;
pub mod enter;
pub mod footprint;
pub mod frames;
pub mod freezer;
pub mod listener;
pub mod netlink;
pub mod record;
pub mod relatives;
pub mod taskstats;
pub mod tree;
