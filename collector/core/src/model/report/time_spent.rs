//! Where the wall time of a run went.

use serde::{Deserialize, Serialize};

use super::OTHER_COMMANDS;

use crate::named;

named! {
    /// What a run does at a moment: the first of these that holds for one of its threads.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum TimeState {
        /// A thread has a core.
        Computing = "computing",
        /// A thread is ready to run, and none has a core.
        WaitingForCore = "waiting_for_core",
        /// For a disk, or a file system of the network.
        Storage = "storage",
        /// For memory that was swapped out, or that the kernel has to reclaim.
        Swap = "swap",
        /// For a socket.
        Network = "network",
        /// For a GPU.
        Gpu = "gpu",
        /// For a lock on a file.
        FileLock = "file_lock",
        /// For a lock of memory, such as a mutex.
        Lock = "lock",
        /// For the other end of a pipe, which is not of the run.
        Pipe = "pipe",
        /// For a terminal.
        Terminal = "terminal",
        /// For one of several events (poll, select, epoll).
        Events = "events",
        /// For a time, or a signal.
        Sleeping = "sleeping",
        /// A signal or a debugger has stopped it.
        Stopped = "stopped",
        /// Not known.
        Unknown = "unknown",
    }
}

impl TimeState {
    /// What it is called in text.
    pub fn label(self) -> &'static str {
        match self {
            Self::WaitingForCore => "waiting for a core",
            Self::Gpu => "GPU",
            Self::FileLock => "file lock",
            Self::Pipe => "pipe from outside",
            Self::Events => "input or replies (poll)",
            other => other.name(),
        }
    }
}

/// Where the wall time went: what the run did at each moment, by the first of its states that held for one of its threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimeSpent {
    /// How the shares are known.
    pub basis: Option<String>,
    /// Samples that read what threads do.
    pub n_samples: u64,
    /// The states that took time, in their order. The shares add up to 1.
    pub states: Vec<StateTime>,
    /// Mean number of cores in use while it computed.
    pub cores_while_computing: Option<f64>,
    /// The GPUs of the run, and what it did meanwhile; `None`: it held no GPU memory, or the use of its GPUs is unknown.
    pub gpu: Option<GpuTime>,
    /// The commands by the time that they decided, the longest first.
    pub commands: Vec<CommandTime>,
    /// What took most of the time; `None`: nothing did, or too little is known.
    pub verdict: Option<Verdict>,
    /// Why a part is unknown, or there is no verdict.
    pub reason: Option<String>,
}

/// How a run used the time of its GPUs. Parts of the time in which it held GPU memory, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuTime {
    /// Time in which it held GPU memory, seconds.
    pub s: f64,
    /// One of these GPUs was busy.
    pub busy_share: f64,
    /// They were idle, and the CPU computed.
    pub idle_while_computing_share: f64,
    /// They were idle, and the CPU did not compute.
    pub idle_while_waiting_share: f64,
}

/// A state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StateTime {
    /// The state.
    pub state: TimeState,
    /// Part of the wall time, from 0 to 1.
    pub share: f64,
    /// Seconds.
    pub s: f64,
    /// The first five commands whose threads were in it, by their part of the wall time.
    pub by_command: Vec<CommandShare>,
}

/// The part of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandShare {
    /// Command name.
    pub command: String,
    /// Part of the wall time, from 0 to 1.
    pub share: f64,
}

/// What the threads of a command did, thread-seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandTime {
    /// Command name.
    pub command: String,
    /// Time that its threads spent in each state, thread-seconds.
    pub states: Vec<ThreadTime>,
    /// Time that they waited for a child, thread-seconds.
    pub waiting_for_children_s: f64,
    /// Time that they waited for a pipe whose other end is of the run, thread-seconds.
    pub waiting_for_pipes_s: f64,
}

/// Time of threads in a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadTime {
    /// The state.
    pub state: TimeState,
    /// Thread-seconds.
    pub s: f64,
}

/// What took most of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// A state, `serial` (one core of several computed) or `gpu_starved` (a GPU was idle while the CPU computed).
    pub kind: VerdictKind,
    /// Part of the wall time, from 0 to 1.
    pub share: f64,
    /// The command that decided most of it.
    pub command: Option<String>,
    /// One sentence.
    pub text: String,
    /// What to change, where that is certain.
    pub next_step: Option<String>,
}

/// What a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum VerdictKind {
    /// A state that took most of the time. It is not `unknown`.
    State(TimeState),
    /// More than that.
    Special(SpecialVerdict),
}

named! {
    /// A verdict that says more than a state.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum SpecialVerdict {
        /// It computed, on one core of several.
        Serial = "serial",
        /// A GPU of the run was idle while its processes computed.
        GpuStarved = "gpu_starved",
    }
}

impl Verdict {
    /// A state with less of the time is no verdict.
    pub const LEAST_SHARE: f64 = 0.6;
}

impl VerdictKind {
    /// The kind of a state. `None`: the state is not known.
    pub fn of_state(state: TimeState) -> Option<Self> {
        (state != TimeState::Unknown).then_some(Self::State(state))
    }
}

impl StateTime {
    /// The command that decided at least half of it. `None`: no single one did.
    pub fn leader(&self) -> Option<&str> {
        let first = self.by_command.first().filter(|first| first.command != OTHER_COMMANDS);
        first.filter(|first| first.share * 2.0 >= self.share).map(|first| first.command.as_str())
    }
}
