//! The largest values of something that several reports saw, such as the memory in use on a machine. The first report's values
//! are in the sums; later reports can show that it was larger at some time.

use super::grid::Grid;
use super::quantity::Quantity;
use super::shape::Shape;

/// The largest values that the reports so far saw.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// In each bin.
    bins: Vec<u64>,
    /// The largest value of reports that are in no bin, because their times have nothing to do with those of the others.
    apart: u64,
}

/// By how much a report raises what was seen.
pub(super) struct Raised {
    /// The bins in which it saw more, each with how much more.
    pub bins: Vec<(usize, u64)>,
    /// How much more it saw if it is in no bin.
    pub apart: u64,
}

impl Seen {
    /// Adds what a report saw, and returns by how much that is more than what was seen before.
    pub(super) fn raise(&mut self, quantity: &Quantity, grid: Grid) -> Raised {
        if quantity.is_apart {
            let apart = quantity.max.saturating_sub(self.apart);
            self.apart += apart;
            return Raised { bins: Vec::new(), apart };
        }
        self.bins.resize(grid.bins, 0);
        let shape = Shape::new(quantity, grid);
        let mut bins = Vec::new();
        for (bin, high) in (shape.first..).zip(&shape.high) {
            let seen = &mut self.bins[bin];
            if *high > *seen {
                bins.push((bin, *high - *seen));
                *seen = *high;
            }
        }
        Raised { bins, apart: 0 }
    }
}
