//! The interposed functions, one file per family. A hook has the signature and the safety contract of libc's
//! function. It calls the next definition and returns its result, errno included.

mod exec;
pub(crate) mod exit;
pub(crate) mod fork;
mod seccomp;
mod spawn;
mod wait;
