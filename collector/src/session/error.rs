//! Why a collector can't work.

use std::io;

use thiserror::Error;

use crate::sys::segment::SegmentError;

/// Why a collector can't work.
#[derive(Debug, Error)]
pub enum SessionError {
    /// A line of the launcher's, such as the configuration, can't be parsed.
    #[error("no configuration from the launcher: {0}")]
    Config(#[from] serde_json::Error),
    /// The pipe from the launcher can't be read, or it closed before the configuration came.
    #[error("cannot read from the launcher: {0}")]
    Pipe(#[from] io::Error),
    /// The thread that reads the records can't be started.
    #[error("cannot start a thread: {0}; the command runs untracked")]
    Thread(io::Error),
    /// The memory with the process connector's events can't be mapped.
    #[error("cannot map the process connector's events: {0}; the command runs untracked")]
    Inbox(io::Error),
    /// The segment can't be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The report could not be written.
    #[error("{0}")]
    Output(io::Error),
}
