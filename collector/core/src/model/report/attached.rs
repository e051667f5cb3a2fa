//! The process that a run attached to.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The process that a run attached to. What it used before is in no figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttachedTo {
    /// Its pid and name.
    pub pid: u32,
    /// Its pid and name.
    pub command: String,
    /// When: RFC 3339 in UTC.
    #[serde(with = "crate::model::timestamp")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub since: SystemTime,
    /// How long it had run by then, seconds.
    pub ran_before_s: f64,
    /// It ran on after tracking, or after this report.
    pub runs_on: bool,
}
