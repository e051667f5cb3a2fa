//! How well a figure is known.

use crate::named;

named! {
    /// How a figure is known, best first.
    #[derive(Default)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Quality {
        /// The kernel's own figure at the end.
        Exact = "exact",
        /// A lower bound: by the last sample, or of some of its programs.
        Sampled = "sampled",
        /// An upper bound: it may be another process's.
        Bound = "bound",
        /// Unknown.
        #[default]
        Unknown = "unknown",
    }
}
