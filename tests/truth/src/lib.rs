//! What the kernel itself says of a process tree: which processes there were, and how they ended (process connector),
//! their peak RSS (taskstats), their CPU time (a cgroup). Shares no code with gpu-track; needs root.

pub mod cgroup;
pub mod connector;
pub mod enter;
pub mod listener;
pub mod netlink;
pub mod record;
pub mod taskstats;
pub mod tree;
