//! A task of a pipeline without a live process, as the sinks of a run write it.

use serde::{Deserialize, Serialize};

use super::report::TaskUsage;

/// A task of which no process lives. Its id is its key: if it goes on later, as one that is tried again, it comes again with all figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedTask {
    /// When its first process started, or entered it after another program, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The end of its last process, in nested tasks, too, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// What it was and what its own processes used, without those of nested tasks.
    #[serde(flatten)]
    pub usage: TaskUsage,
    /// Since when it ran, after it was last without a process, CLOCK_MONOTONIC nanoseconds. `None`: no process of it has ended since
    /// then, so only its figures or its name are new.
    #[serde(skip)]
    pub began_ns: Option<u64>,
    /// The tasks around it, innermost first.
    #[serde(skip)]
    pub around: Vec<TaskAround>,
}

/// A task around another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAround {
    /// Its number in this run.
    pub id: u32,
    /// What it is called in a text. It can have control characters.
    pub title: String,
}
