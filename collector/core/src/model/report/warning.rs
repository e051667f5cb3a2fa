//! What a reader should know to judge the figures.

use serde::{Deserialize, Serialize};

/// A warning: what happened, what it means for the figures, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// What it is about.
    pub topic: Topic,
    /// What happened, what it means, what to do.
    pub text: String,
}

/// What a warning is about, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Tracking lost something.
    Tracking,
    /// The kernel killed a process for lack of memory.
    OutOfMemory,
    /// Something else happened to the command.
    Command,
    /// Other nodes or ranks, in no figure.
    OtherNodes,
    /// Other work in no figure.
    Elsewhere,
    /// Missing or less exact figures.
    Figures,
    /// A GPU that the command did not use.
    IdleGpu,
}

impl Warning {
    /// Makes a warning of its parts.
    pub fn new(topic: Topic, text: String) -> Self {
        Self { topic, text }
    }
}
