//! How well a figure is known.

use serde::{Deserialize, Serialize};

/// How a figure is known, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// The kernel's own figure at the end.
    Exact,
    /// The last sample, or a part of the whole: it can't be less.
    Sampled,
    /// It can't be more.
    Bound,
    /// Nothing.
    Unknown,
}
