//! What the code blocks of a program used, as `sub-track` of the Python program gpu_tracker tells it. A tracking file has the
//! samples, and a sub-tracking file says when each call of a block began and ended.
//!
//! [`calls`] pairs the marks of the second file, and [`analysis`] assigns each sample of the first to its blocks. [`comparison`]
//! holds several analyses side by side. [`json`] and [`text`] write both in gpu_tracker 5.0.1's forms.

mod analysis;
mod calls;
mod comparison;
mod json;
pub(crate) mod moments;
mod ordered;
mod python;
mod table;
mod text;

pub use analysis::{Analysis, Analyzer, Cell, CodeBlock, ComputeTime, Summary};
pub use calls::{Blocks, Mark, Marks, Position};
pub use comparison::{Comparison, Session, Statistic, compare};
pub use json::json;
pub use ordered::Ordered;
pub use python::number;
pub use text::{
    analysis as analysis_text, blocks as blocks_text, calls as calls_text, comparison as comparison_text,
};
