//! The process that a run attached to.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The process that a run attached to. What it used before is in no figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttachedTo {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// When the run began to count what it uses.
    #[serde(with = "crate::model::timestamp")]
    pub since: SystemTime,
    /// How long it had run before `since`, seconds.
    pub ran_before_s: f64,
    /// Whether it ran on when tracking ended, or when this report was made.
    pub runs_on: bool,
}
