//! The process that a run attached to.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The process that a run attached to. What it used before is in no figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachedTo {
    /// Its pid, as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// When: RFC 3339 in UTC.
    #[serde(with = "crate::model::timestamp")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: SystemTime,
    /// How long it had run by then, seconds.
    pub ran_before_s: f64,
    /// It ran on at the end of tracking, or of this report.
    pub runs_on: bool,
}
