//! What a process was found to wait for, beyond the state of its threads.

use serde::{Deserialize, Serialize};

/// What a process was found to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitedFor {
    /// A file that it reads or writes.
    File {
        /// Its path.
        path: String,
        /// The type of its file system, such as `ext4`. `None`: not known.
        file_system: Option<String>,
        /// It may be written to.
        is_written: bool,
        /// Each write waits until it is on storage (O_SYNC, O_DSYNC).
        is_synced: bool,
    },
    /// The other end of its only TCP connection: address and port.
    Peer(String),
    /// A lock on a file.
    Lock {
        /// Path of the file. `None`: not known.
        path: Option<String>,
        /// Pid and command name of the process that holds it. `None`: not known.
        holder: Option<(u32, String)>,
    },
}
