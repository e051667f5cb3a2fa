//! What outlives a collector: the state file, checkpoints of the run, and the files of sessions that were killed.

pub mod checkpoint;
pub mod stale;
pub mod state_file;
