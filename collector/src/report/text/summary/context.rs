//! What all parts of the summary share: the report, its units, the terminal, and the columns.

use super::super::look::{Look, Tone, left};
use crate::report::Report;
use crate::report::quote;
use crate::report::units::Units;

/// Columns before the figures.
pub(super) const LABEL: usize = 15;
/// Columns of a figure.
pub(super) const FIGURE: usize = 13;

/// What all parts of the summary share.
pub(super) struct Context<'a> {
    pub(super) report: &'a Report,
    pub(super) units: Units,
    pub(super) look: Look,
    pub(super) shows_hints: bool,
}

impl Context<'_> {
    /// A line with a label and a text, which is cut at the edge.
    pub(super) fn row(&self, label: &str, text: &str) -> String {
        self.painted_row(label, &quote::cut(text, self.room()))
    }

    /// The same for text that may have colours, and fits.
    pub(super) fn painted_row(&self, label: &str, text: &str) -> String {
        let label = left(label, LABEL);
        format!("  {}{text}", self.look.paint(Tone::Strong, &label))
    }

    /// Columns after the label.
    pub(super) fn room(&self) -> usize {
        self.look.width() - LABEL - 2
    }

    /// Cells of a gauge: fewer on a narrow terminal.
    pub(super) fn gauge_cells(&self) -> usize {
        const MOST: usize = 20;
        const LEAST: usize = 8;
        const AROUND: usize = 2 + LABEL + 2 * FIGURE + "[] >999 %  12.3 s".len();
        self.look.width().saturating_sub(AROUND).clamp(LEAST, MOST)
    }
}
