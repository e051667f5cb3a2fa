//! What outlives a collector: the state file with its checkpoints and journal, and the files of stale sessions.

pub(crate) mod checkpoint;
pub mod output_lock;
pub mod replay_journal;
pub mod stale;
pub mod state_file;
