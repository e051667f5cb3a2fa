//! What outlives a collector: the state file with its checkpoints and journal, and the files of sessions, for readers outside.

pub(crate) mod checkpoint;
pub(crate) mod live_session;
pub mod output_lock;
pub mod replay_journal;
pub mod run_directory;
pub mod session_name;
pub mod stale;
pub mod state_file;
