//! What outlives a collector: the state file with its checkpoints and journal, and the files of stale sessions.

pub(crate) mod checkpoint;
pub mod journal;
pub mod output_lock;
pub mod stale;
pub mod state_file;
