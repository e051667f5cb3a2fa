//! The run over time, in a bounded number of spans.

/// The tree's RAM over a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RamSpan {
    /// Its begin, seconds after the command's start.
    pub start_s: f64,
    /// Its end, seconds after the command's start.
    pub end_s: f64,
    /// Smallest RAM at a sample, bytes.
    pub min_bytes: u64,
    /// Mean RAM, bytes; `None` for a span of no length.
    pub mean_bytes: Option<f64>,
    /// Largest RAM at any time, bytes.
    pub max_bytes: u64,
}
