//! How well a figure is known.

use serde::{Deserialize, Serialize};

/// How a figure is known, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// The kernel's own figure at the end.
    Exact,
    /// A lower bound: the figure of the last sample, or of a part of what it is about.
    Sampled,
    /// An upper bound.
    Bound,
    /// It is not known.
    Unknown,
}
