//! The limits that the user set for the run, and which were exceeded.

use serde::{Deserialize, Serialize};

use super::cause::Enforcer;
use crate::model::rule::{Quantity, Unit};

/// A limit of the run (`--limit`, `--signal-at`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLimitUse {
    /// The user's words, such as `ram=8G`.
    pub limit: String,
    /// What it is about.
    pub quantity: Quantity,
    /// Unit of `allowed` and `amount`.
    pub unit: Unit,
    /// How much; `None`: unknown, so it did not act.
    pub allowed: Option<f64>,
    /// `end`, or the signal that the command gets.
    pub action: String,
    /// What holds it.
    pub enforced_by: Enforcer,
    /// Why it was not held, or not by the kernel.
    pub reason: Option<String>,
    /// When it was exceeded, seconds after the command's start.
    pub exceeded_at_s: Option<f64>,
    /// How much there was then.
    pub amount: Option<f64>,
}
