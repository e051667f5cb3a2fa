//! Figures by group: main, descendants, and both.

use serde::{Deserialize, Serialize};

/// A figure of each group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups<T> {
    /// The command's first process.
    pub main: T,
    /// All others.
    pub descendants: T,
    /// Both; a maximum over time is not the sum of theirs, since the two peak at different times.
    pub combined: T,
}

impl<T: Copy> Groups<T> {
    /// Gives the figure of the first process, or that of all others.
    pub fn part_mut(&mut self, is_main: bool) -> &mut T {
        if is_main { &mut self.main } else { &mut self.descendants }
    }

    /// Gives all three figures: main, descendants, both.
    pub fn values(self) -> [T; 3] {
        [self.main, self.descendants, self.combined]
    }

    /// Add a process's figure to its group, and to both.
    pub fn add(&mut self, is_main: bool, figure: T, plus: impl Fn(T, T) -> T) {
        let group = self.part_mut(is_main);
        *group = plus(*group, figure);
        self.combined = plus(self.combined, figure);
    }

    /// Combines the figures of two, group by group.
    pub fn with<U, V>(self, other: Groups<U>, combine: impl Fn(T, U) -> V) -> Groups<V> {
        Groups {
            main: combine(self.main, other.main),
            descendants: combine(self.descendants, other.descendants),
            combined: combine(self.combined, other.combined),
        }
    }

    /// Converts the figures, group by group.
    pub fn map<V>(self, combine: impl Fn(T) -> V) -> Groups<V> {
        self.with(self, |figure, _| combine(figure))
    }
}
