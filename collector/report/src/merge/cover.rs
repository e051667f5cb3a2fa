//! Whether the first of several reports of a machine covers the time of all, so that its means are those of the machine.

use super::quantity::Span;

/// The first report's mean stands for all of the time if at most one tenth of that is outside of the report's own time. Ranks of
/// one job start within a second or so of each other.
const NEGLIGIBLE: u128 = 10;

/// The times of several reports, and that of the first of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cover {
    first: Span,
    /// From the first start to the last end.
    all: Span,
}

impl Cover {
    /// Begins with the first report.
    pub(super) fn new(first: Span) -> Self {
        Self { first, all: first }
    }

    /// Adds the time of another report.
    pub(super) fn with(self, span: Span) -> Self {
        Self { all: self.all.joined(span), ..self }
    }

    /// Whether a time is within that of the first report.
    pub(super) fn holds(self, span: Span) -> bool {
        self.first.joined(span) == self.first
    }

    /// Whether the first report covers all of the time, except for a negligible part.
    pub(super) fn is_whole(self) -> bool {
        let (first_us, all_us) = (u128::from(self.first.length_us()), u128::from(self.all.length_us()));
        (all_us - first_us) * NEGLIGIBLE <= all_us
    }

    /// Whether the report of `span`, were it the first one, would cover the time of all reports and of itself, except
    /// for a negligible part.
    pub(super) fn is_whole_for(self, span: Span) -> bool {
        Self { first: span, ..self.with(span) }.is_whole()
    }
}
