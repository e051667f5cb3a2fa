//! The limits that the user set for the run, and which were exceeded.

use serde::{Deserialize, Serialize};

use super::cause::Enforcer;
use crate::model::rule::{Quantity, Unit};

/// A limit of the run (`--limit`, `--signal-at`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunLimitUse {
    /// The user's words, such as `ram=8G`.
    pub limit: String,
    /// What it is about.
    pub quantity: Quantity,
    /// The unit of the figures.
    pub unit: Unit,
    /// How much is allowed; `None`: it is a part of something that is not known, so it did not act.
    pub allowed: Option<f64>,
    /// What happens: `end`, or the name of a signal.
    pub action: String,
    /// What holds it.
    pub enforced_by: Enforcer,
    /// Why it was not held; or why samples hold a limit of RAM although the command was to have a cgroup of its own.
    pub reason: Option<String>,
    /// When it was seen to be exceeded, seconds after the command's start; `None`: it was not.
    pub exceeded_at_s: Option<f64>,
    /// How much there was then.
    pub amount: Option<f64>,
}
