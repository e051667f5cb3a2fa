//! What a reader should know to judge the figures.

use serde::{Serialize, Serializer};

/// A warning: what happened, what it means for the figures, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub topic: Topic,
    /// The message.
    pub text: String,
}

/// What a warning is about, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Tracking itself went wrong: something was lost.
    Tracking,
    /// The kernel killed a process for lack of memory.
    OutOfMemory,
    /// Something else happened to the command.
    Command,
    /// Some figures are missing, or less exact than others.
    Figures,
    /// A GPU that the command did not use.
    IdleGpu,
}

impl Warning {
    /// A warning from its parts.
    pub fn new(topic: Topic, text: String) -> Self {
        Self { topic, text }
    }
}

/// Its text alone.
impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}
