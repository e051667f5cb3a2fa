//! Keys of what a file has, so that items that come again after a restart are not written twice.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashSet;

use crate::model::ended_process::EndedProcess;
use crate::model::tree_sample::Event;

/// Maximum number of keys that are kept. Only items since the last saving of a collector's state can come again, and these are far
/// fewer.
const MAX_KEYS: usize = 65_536;

/// The key of an item that is no row. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Process {
        pid: u64,
        start_ns: u64,
    },
    /// A task as it was written once. `mark` tells that from what is written of the same task when it has gone on.
    Task {
        id: u64,
        mark: u64,
    },
    /// RAM of a time that was found later to be larger.
    Revised {
        at_ns: u64,
        bytes: [u64; 3],
    },
}

impl Key {
    pub(super) fn from_process(process: &EndedProcess) -> Self {
        Self::Process { pid: process.usage.pid.into(), start_ns: process.start_ns }
    }

    pub(super) fn from_event(event: &Event) -> Self {
        let Event::Revised { at_ns, max_footprint_bytes } = event;
        Self::Revised { at_ns: *at_ns, bytes: max_footprint_bytes.values() }
    }
}

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
    /// Adds a key, and drops the oldest one if there are then too many. Returns whether the key is new, as a set's `insert` does.
    pub(super) fn insert(&mut self, key: K) -> bool {
        if !self.keys.insert(key) {
            return false;
        }
        self.in_order.push_back(key);
        if self.in_order.len() > MAX_KEYS
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
        assert!((0..100_000).all(|key| recent.insert(key)));
        assert!((50_000..100_000).all(|key| !recent.insert(key)));
        assert_eq!((recent.keys.len(), recent.in_order.len()), (MAX_KEYS, MAX_KEYS));
    }
}
