//! What reads the outside: the event ring, the process connector, /proc, cgroups and GPU drivers.

pub(crate) mod allowed;
pub mod cgroup;
pub mod connector;
pub(crate) mod connector_queue;
pub(crate) mod disks;
pub(crate) mod exit_accounts;
pub mod exit_watch;
pub mod gpu;
pub(crate) mod helpers;
pub(crate) mod host;
mod inbox;
pub(crate) mod io_usage;
pub(crate) mod machine_usage;
pub(crate) mod membership;
mod merge;
pub(crate) mod overflow;
pub(crate) mod program;
pub(crate) mod pump;
pub(crate) mod records;
pub mod sampler;
pub mod scan;
pub(crate) mod segment_name;
pub(crate) mod signal_sender;
pub(crate) mod stalls;
mod taskstats;
pub(crate) mod thread_states;
pub(crate) mod waited_for;
