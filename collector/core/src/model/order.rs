//! Orders: what the core wants done and only the launcher can do, as the parent of the command and the owner of its terminal.
//!
//! The launcher remembers what was done. It obeys an order's id once, and tells the result to every collector of the run, also to one
//! that replaces a killed one. An order without an answer is issued again. An id consists of what decided the order and a number. So a
//! collector that resumes an older state gives the same decision the same id.

use serde::{Deserialize, Serialize};

use super::alert::RunEvent;
use super::rule::Rule;
use super::run_limit::{Exceeded, Excess, LargestProcess};

/// The longest line of an order, its newline included, bytes: what a pipe takes as a whole or not at all (PIPE_BUF).
pub const LONGEST_LINE_BYTES: usize = 4096;

/// Something to be done once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its name, for the answer.
    pub id: OrderId,
    /// What is to be done.
    pub action: Action,
}

/// Names an order. A collector that resumes an older state decides again, and gives that decision the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OrderId {
    /// What decided it.
    pub by: OrderedBy,
    /// Which of its orders it is, from 0 on.
    pub epoch: u32,
}

/// What can decide an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OrderedBy {
    /// The wait of `--wait-all`: it takes a while, or is over.
    WaitAll,
    /// A limit of the run, by its place on the command line.
    Limit(u32),
    /// The alerts: the user is told of each that goes on or off.
    Alert,
    /// The alerts: a command of the user runs for each that goes on or off.
    AlertCommand,
}

/// What the launcher can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Tell the user this, in one line on stderr.
    Tell(String),
    /// Tell the user of this event, in one line on stderr.
    TellEvent(RunEvent),
    /// Run the command of `--on-alert`.
    RunAlertCommand {
        /// Which of the run's alerts it is of.
        alert: u32,
        /// The alert that went on or off.
        event: RunEvent,
        /// The process that held most RAM then, or most memory of GPUs if the alert is of that; `None`: not known.
        largest: Option<LargestProcess>,
    },
    /// End the wait for the tree (`--wait-all`), which is empty now. A launcher that inherits no orphans can't see that itself.
    EndWait,
    /// End every process of the tree, because a limit is exceeded.
    EndTree {
        /// The limit.
        limit: Rule,
        /// By how much it is exceeded, and when.
        exceeded: Exceeded,
    },
    /// Send a signal to the command's first process, because a limit is exceeded.
    Signal {
        /// Its number.
        signal: i32,
        /// By how much, and when.
        excess: Excess,
    },
}

impl Action {
    /// By how much a limit is exceeded, if the action is taken at a limit.
    pub fn excess(&self) -> Option<Excess> {
        match self {
            Self::EndTree { exceeded, .. } => Some(exceeded.by),
            Self::Signal { excess, .. } => Some(*excess),
            Self::Tell(_) | Self::TellEvent(_) | Self::RunAlertCommand { .. } | Self::EndWait => None,
        }
    }
}

/// What came of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderResult {
    /// It is done.
    Done,
    /// It was tried, and this error came of it.
    Failed {
        /// errno.
        errno: i32,
    },
}
