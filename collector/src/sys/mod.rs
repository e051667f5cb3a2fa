//! Thin calls to the kernel.

pub mod clock;
pub mod kernel;
pub mod pidfd;
pub mod priority;
pub mod proc_fs;
pub mod segment;
