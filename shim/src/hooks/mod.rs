//! The interposed functions, one file per family. A hook takes what libc's function takes, calls the next
//! definition, and hands back what that gave, errno included.

pub mod exec;
pub mod exit;
pub mod fork;
mod seccomp;
mod spawn;
mod wait;
