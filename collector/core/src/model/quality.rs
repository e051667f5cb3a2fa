//! How well a figure is known.

use serde::{Deserialize, Serialize};

/// How a figure is known, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Quality {
    /// The kernel's own figure at the end.
    Exact,
    /// A lower bound: by the last sample, or of some of its programs.
    Sampled,
    /// An upper bound: it may be another process's.
    Bound,
    /// Unknown.
    Unknown,
}

impl Quality {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sampled => "sampled",
            Self::Bound => "bound",
            Self::Unknown => "unknown",
        }
    }
}
