//! GPU memory by group: main, descendants, and both.

use serde::{Deserialize, Serialize};

/// GPU memory of main and descendants, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupMemory {
    /// The command's first process.
    pub main: u64,
    /// All others.
    pub descendants: u64,
    /// Both; over time not their sum, since the two peak at different times.
    pub combined: u64,
}

impl GroupMemory {
    pub(super) fn add(&mut self, is_main: bool, bytes: u64) {
        let part = if is_main { &mut self.main } else { &mut self.descendants };
        *part = part.saturating_add(bytes);
        self.combined = self.combined.saturating_add(bytes);
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            main: self.main.saturating_add(other.main),
            descendants: self.descendants.saturating_add(other.descendants),
            combined: self.combined.saturating_add(other.combined),
        }
    }

    pub(super) fn max(&self, other: &Self) -> Self {
        Self {
            main: self.main.max(other.main),
            descendants: self.descendants.max(other.descendants),
            combined: self.combined.max(other.combined),
        }
    }
}
