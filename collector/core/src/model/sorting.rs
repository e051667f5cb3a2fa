//! Sorting of lists that are short, or sorted rarely.
//!
//! The standard library's sort is compiled anew for each type and comparison, 4 kB each time, which was a fourteenth of the program.
//! Here the order of the places is found by one sort for all types, and only moving the elements is compiled for each. To `collect` into
//! an ordered map or set is a sort, too.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts in place. Equal elements keep their order.
pub trait Sorting<T> {
    /// Sorts by a comparison.
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key, which is made anew for each comparison.
    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|a, b| key(a).cmp(&key(b)));
    }
}

impl<T> Sorting<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut places = sorted_places(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for first in 0..places.len() {
            // Each element of a cycle goes where the one before it in the cycle was.
            let mut to = first;
            loop {
                let from = std::mem::replace(&mut places[to], to);
                if from == first {
                    break;
                }
                self.swap(to, from);
                to = from;
            }
        }
    }
}

/// Collects into maps and sets that are in order, without a sort.
pub trait InOrder: Iterator + Sized {
    /// Collects keys and values. Of equal keys, the last one counts.
    fn ordered_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }

    /// Collects into a set.
    fn ordered_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

impl<I: Iterator> InOrder for I {}

/// The places of `count` elements in their order: the first is that of the smallest element.
#[inline(never)]
fn sorted_places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn order_is_that_of_the_standard_librarys_stable_sort(list: Vec<(u8, String)>) {
            let (mut ours, mut expected) = (list.clone(), list);
            ours.order_by_key(|(number, _)| number % 8);
            expected.sort_by_key(|(number, _)| number % 8);
            prop_assert_eq!(&ours, &expected);
            ours.order_by(|a, b| b.1.cmp(&a.1));
            expected.sort_by(|a, b| b.1.cmp(&a.1));
            prop_assert_eq!(ours, expected);
        }
    }
}
