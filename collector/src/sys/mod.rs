//! Thin wrappers of kernel interfaces: system calls, /proc, and the shared-memory segment.

pub mod clock;
pub(crate) mod descriptors;
pub(crate) mod files;
pub mod given_file;
pub(crate) mod given_path;
pub mod kernel;
pub(crate) mod local_time;
pub(crate) mod netlink;
pub mod own_program;
pub mod own_stdout;
pub mod pidfd;
pub mod priority;
pub mod proc_fs;
pub mod rlimit;
pub mod safe_path;
pub mod segment;
pub(crate) mod signal_mask;
pub(crate) mod umask;
pub(crate) mod user;
