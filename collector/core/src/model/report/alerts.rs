//! The alerts that the user set for the run, and what came of them.

use serde::{Deserialize, Serialize};

use crate::model::rule::{Quantity, Unit};

/// An alert of the run (`--alert`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlertUse {
    /// The user's words, such as `ram>80%`.
    pub alert: String,
    /// What it is about.
    pub quantity: Quantity,
    /// The unit of `allowed`.
    pub unit: Unit,
    /// Where it goes on; of growth, what the run may use. `None`: not known.
    pub allowed: Option<f64>,
    /// Why it could not go on; `None`: it could.
    pub reason: Option<String>,
    /// How often it went on.
    pub times: u64,
    /// When it first went on, seconds after the command's start; `None`: it did not.
    pub first_at_s: Option<f64>,
    /// How long it was on in all, seconds.
    pub on_s: f64,
    /// Whether it was on at the end.
    pub is_on: bool,
}
