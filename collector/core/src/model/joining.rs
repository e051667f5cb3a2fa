//! How the values of a quantity at several points of time become one.

/// How the values of a quantity at several points of time become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// The largest.
    Largest,
    /// The mean over the times of the points.
    Mean,
    /// The last that is known.
    Last,
}
