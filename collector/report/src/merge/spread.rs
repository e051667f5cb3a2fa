//! How a quantity differs between nodes or ranks.

use super::totals::millionths;
use crate::model::report::Spread;

/// The smallest, mean and largest of `values`, and the places of the extremes: the first one of equal values. Each value
/// comes with its place, such as a node. `None`: there is no value.
pub(super) fn spread<'a, P: Clone + 'a>(values: impl Iterator<Item = (f64, &'a P)>) -> Option<Spread<P>> {
    let mut values = values.peekable();
    let (first, place) = *values.peek()?;
    let (mut min, mut max) = ((first, place), (first, place));
    // The sum is one of whole millionths, so that the order of the values changes nothing.
    let (mut sum, mut count) = (0_u128, 0_u32);
    for (value, place) in values {
        sum = sum.saturating_add(millionths(value));
        count += 1;
        if value < min.0 {
            min = (value, place);
        }
        if value > max.0 {
            max = (value, place);
        }
    }
    let mean = sum as f64 / 1e6 / f64::from(count);
    Some(Spread {
        min: min.0,
        mean,
        max: max.0,
        imbalance: (mean > 0.0).then(|| max.0 / mean),
        min_at: min.1.clone(),
        max_at: max.1.clone(),
    })
}
