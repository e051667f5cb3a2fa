//! Several reports of the same thing, such as the memory of a machine: one of them makes its sums, and the others tell where it
//! can have been larger.

use super::grid::Grid;
use super::quantity::{Quantity, Span};
use super::sum::Shape;

/// The mean of the first report stands for all of the time if no more than one part of so many is outside of its own. Ranks of one
/// job start within a second or so of each other.
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
    pub(super) fn of(first: Span) -> Self {
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

    /// Whether the first report is of all of the time, but for a negligible part.
    pub(super) fn is_whole(self) -> bool {
        let (first_us, all_us) = (u128::from(self.first.length_us()), u128::from(self.all.length_us()));
        (all_us - first_us) * NEGLIGIBLE <= all_us
    }

    /// The same for a report of this time instead of the first one.
    pub(super) fn is_whole_for(self, span: Span) -> bool {
        Self { first: span, ..self.with(span) }.is_whole()
    }
}

/// The largest that something was by the reports so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// In each bin.
    bins: Vec<u64>,
    /// By reports that are in no bin.
    apart: u64,
}

/// By how much a report raises what was seen.
pub(super) struct Raised {
    /// The bins, each with what it is more there.
    pub bins: Vec<(usize, u64)>,
    /// What it is more outside of the bins.
    pub apart: u64,
}

impl Seen {
    /// Adds what a report has, and gives by how much that is more than what was seen. Its largest value is taken to be known.
    pub(super) fn raise(&mut self, quantity: &Quantity, grid: Grid) -> Raised {
        if quantity.is_apart {
            let apart = quantity.max.saturating_sub(self.apart);
            self.apart += apart;
            return Raised { bins: Vec::new(), apart };
        }
        self.bins.resize(grid.bins, 0);
        let shape = Shape::of(quantity, grid);
        let mut bins = Vec::new();
        for (seen, (bin, high)) in self.bins[shape.first..].iter_mut().zip((shape.first..).zip(&shape.high)) {
            if *high > *seen {
                bins.push((bin, *high - *seen));
                *seen = *high;
            }
        }
        Raised { bins, apart: 0 }
    }
}
