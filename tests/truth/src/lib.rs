//! The kernel's own figures of a process tree: its processes and their exits (process connector), their peak RSS
//! (taskstats) and their CPU time (a cgroup). Shares no code with gpu-track. Needs root.

pub mod cgroup;
pub mod connector;
pub mod enter;
pub mod listener;
pub mod netlink;
pub mod record;
pub mod taskstats;
pub mod tree;
