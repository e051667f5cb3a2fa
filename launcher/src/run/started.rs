//! What a run was started with: the command, or what stands for it.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpu_track_abi::record::Usage;

use crate::process::main_process::MainProcess;
use crate::process::signals::Received;

/// What decides how long the run lasts.
pub(crate) enum Subject {
    /// The command's first process.
    Command(MainProcess),
    /// The standard input of a launcher without a command (an agent). The flag becomes true when the input has ended.
    Input(Arc<AtomicBool>),
    /// The process that the run attached to. `has_ended` becomes true when it has ended.
    Attached { pid: u32, has_ended: Arc<AtomicBool> },
}

impl Subject {
    /// The command's first process. `None`: there is no command.
    pub(crate) fn main(&self) -> Option<MainProcess> {
        match self {
            Self::Command(main) => Some(*main),
            Self::Input(_) | Self::Attached { .. } => None,
        }
    }
}

/// What has been started, and the launcher's state just before.
pub(crate) struct Started {
    pub(crate) subject: Subject,
    /// The words of the command, or of the attached process.
    pub(crate) words: Vec<OsString>,
    /// When, CLOCK_MONOTONIC nanoseconds: just before the command's fork, or when the attached process's usage was read.
    pub(crate) at_ns: u64,
    /// RUSAGE_CHILDREN of the launcher at the start: its helpers until then.
    pub(crate) children_before: Usage,
    /// Requests to end that came before the fork: the command did not get them.
    pub(crate) early_signals: Vec<Received>,
}
