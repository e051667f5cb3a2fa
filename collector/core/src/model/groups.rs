//! Figures by group: main (the first process of the tree), descendants (all others), and combined (both together).

use serde::{Deserialize, Serialize};

/// A figure of each part of the tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Groups<T> {
    /// Of this part of the tree.
    pub main: T,
    /// Of this part of the tree.
    pub descendants: T,
    /// Of this part of the tree.
    pub combined: T,
}

impl<T> Groups<T> {
    /// The three figures, to be changed.
    pub fn as_mut(&mut self) -> Groups<&mut T> {
        let Self { main, descendants, combined } = self;
        Groups { main, descendants, combined }
    }

    /// Combines these figures with those of `other`, group by group.
    pub fn with<U, V>(self, other: Groups<U>, combine: impl Fn(T, U) -> V) -> Groups<V> {
        Groups {
            main: combine(self.main, other.main),
            descendants: combine(self.descendants, other.descendants),
            combined: combine(self.combined, other.combined),
        }
    }
}

impl<T: Copy> Groups<T> {
    /// The figure of the first process (`is_main`), or that of all others.
    pub fn part_mut(&mut self, is_main: bool) -> &mut T {
        if is_main { &mut self.main } else { &mut self.descendants }
    }

    /// All three figures: main, descendants, both.
    pub fn values(self) -> [T; 3] {
        [self.main, self.descendants, self.combined]
    }

    /// Adds a process's figure to that of its group, and to the combined one. `plus` adds two figures.
    pub fn add(&mut self, is_main: bool, figure: T, plus: impl Fn(T, T) -> T) {
        let group = self.part_mut(is_main);
        *group = plus(*group, figure);
        self.combined = plus(self.combined, figure);
    }

    /// Converts the figures, group by group.
    pub fn map<V>(self, convert: impl Fn(T) -> V) -> Groups<V> {
        self.with(self, |figure, _| convert(figure))
    }
}
