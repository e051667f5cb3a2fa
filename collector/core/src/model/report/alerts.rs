//! The alerts that the user set for the run, and what came of them.

use serde::{Deserialize, Serialize};

use crate::model::rule::{Quantity, Unit};

/// An alert of the run (`--alert`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlertUse {
    /// The user's words, such as `ram>80%`.
    pub alert: String,
    /// What it is about.
    pub quantity: Quantity,
    /// The unit of `allowed`.
    pub unit: Unit,
    /// Where it goes on; `growth`: what the run may use.
    pub allowed: Option<f64>,
    /// Why it could not go on.
    pub reason: Option<String>,
    /// How often it went on.
    pub times: u64,
    /// When it first went on, seconds after the command's start.
    pub first_at_s: Option<f64>,
    /// How long it was on in all, seconds.
    pub on_s: f64,
    /// It was on at the end.
    pub is_on: bool,
}
