//! What a process adds to the RAM of the sets that it is in.

use serde::{Deserialize, Serialize};

/// What a process adds to the footprints of the sets that it is in, bytes. A page counts with the oldest process of the set that
/// maps it, so the contributions of all processes add up to the footprint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// To the footprint of the whole tree.
    pub added_bytes: u64,
    /// To the footprint of the descendants; it has no meaning for the command's first process.
    pub added_to_descendants_bytes: u64,
    /// Pages that no other process maps.
    pub private_bytes: u64,
}

impl Contribution {
    /// The contribution of memory that no other process maps.
    pub(crate) fn private(bytes: u64) -> Self {
        Self { added_bytes: bytes, added_to_descendants_bytes: bytes, private_bytes: bytes }
    }

    /// What it adds to the footprint of the first process alone, or of the descendants, bytes.
    pub(crate) fn added_to_part_bytes(&self, is_main: bool) -> u64 {
        if is_main { self.added_bytes } else { self.added_to_descendants_bytes }
    }

    /// Combines each part of two contributions by `f`.
    pub(crate) fn with(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            added_bytes: f(self.added_bytes, other.added_bytes),
            added_to_descendants_bytes: f(self.added_to_descendants_bytes, other.added_to_descendants_bytes),
            private_bytes: f(self.private_bytes, other.private_bytes),
        }
    }

    /// The sum of each part.
    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The difference of each part, at least 0.
    pub(crate) fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// Whether it adds nothing.
    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}
