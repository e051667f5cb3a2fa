//! Keys of what a file has, as many as can come again.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashSet;

/// Most keys that are kept: many times what a collector knows before its state is saved.
const MOST: usize = 65_536;

/// The keys that were added last.
#[derive(Debug)]
pub(super) struct Recent<K> {
    keys: FxHashSet<K>,
    in_order: VecDeque<K>,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { keys: FxHashSet::default(), in_order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash> Recent<K> {
    /// Adds a key, for which the oldest is dropped if there are too many. Gives whether it is new.
    pub(super) fn add(&mut self, key: K) -> bool {
        if !self.keys.insert(key) {
            return false;
        }
        self.in_order.push_back(key);
        if self.in_order.len() > MOST
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_new_once_and_memory_is_bounded() {
        let mut recent = Recent::default();
        assert!((0..100_000).all(|key| recent.add(key)));
        assert!((50_000..100_000).all(|key| !recent.add(key)));
        assert_eq!((recent.keys.len(), recent.in_order.len()), (MOST, MOST));
    }
}
