//! Why a collector can't work.

use std::io;

use thiserror::Error;

use crate::sys::segment::SegmentError;

/// Why a collector can't work.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No configuration came through the pipe.
    #[error("no configuration from the launcher: {0}")]
    Config(#[from] serde_json::Error),
    /// The pipe broke.
    #[error("cannot read from the launcher: {0}")]
    Pipe(#[from] io::Error),
    /// No thread to read the records.
    #[error("cannot start a thread: {0}; the command runs untracked")]
    Thread(io::Error),
    /// No memory for the process connector's events.
    #[error("cannot map the process connector's events: {0}; the command runs untracked")]
    Inbox(io::Error),
    /// The segment can't be had.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The report could not be written.
    #[error("{0}")]
    Output(io::Error),
}
