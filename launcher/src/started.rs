//! What a run was started with: the command, or what stands for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpu_track_abi::record::Usage;
use gpu_track_collector::TreeMember;

use crate::main_process::MainProcess;
use crate::signals::Received;

/// What the run lasts as long as.
pub(crate) enum Subject {
    /// The command's first process.
    Command(MainProcess),
    /// The input of a launcher without a command. True: it has ended.
    Input(Arc<AtomicBool>),
    /// The process that the run attached to, and whether it has ended.
    Attached { pid: u32, has_ended: Arc<AtomicBool> },
}

impl Subject {
    /// Gives the command's first process. `None`: there is no command.
    pub(crate) fn main(&self) -> Option<MainProcess> {
        match self {
            Self::Command(main) => Some(*main),
            Self::Input(_) | Self::Attached { .. } => None,
        }
    }
}

/// What has been started.
pub(crate) struct Started {
    pub(crate) subject: Subject,
    /// When, CLOCK_MONOTONIC nanoseconds just before its fork.
    pub(crate) at_ns: u64,
    /// RUSAGE_CHILDREN just before.
    pub(crate) children_before: Usage,
    /// Requests to end that came before the fork: the command did not get them.
    pub(crate) early_signals: Vec<Received>,
    /// Children of the launcher that are not of the run, as far as a limit may have to tell them apart.
    pub(crate) strangers: Vec<TreeMember>,
}
