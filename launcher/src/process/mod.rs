//! Processes as the kernel has them: how this one starts and ends, its signals and children, and how it starts others. Nothing here
//! knows of a run.

pub(crate) mod before_main;
pub(crate) mod end_watch;
pub(crate) mod exit;
pub(crate) mod main_process;
pub(crate) mod own_stack;
pub(crate) mod reap;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod time_limit;
