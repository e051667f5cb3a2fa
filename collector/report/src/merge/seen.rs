//! The largest that something was by several reports, such as the memory of a machine: one of them makes the sums, and the others
//! tell where it can have been larger.

use super::grid::Grid;
use super::quantity::Quantity;
use super::shape::Shape;

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
