//! What reads the outside: the event ring, the process connector, /proc, cgroups and GPU drivers.

pub mod cgroup;
pub mod connector;
pub mod connector_queue;
pub mod exit_watch;
pub mod gpu;
pub mod host;
pub mod limits;
pub mod membership;
pub mod overflow;
pub mod pump;
pub mod records;
pub mod sampler;
pub mod scan;
