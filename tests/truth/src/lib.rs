//! The kernel's own figures of a process tree. Its processes and their exits come from the process connector, peak RSS
//! from taskstats, CPU time from a cgroup, memory from page frames. Shares no code with gpu-track. Needs root.

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
