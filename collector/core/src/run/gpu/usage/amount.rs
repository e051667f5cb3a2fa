//! What can be summed over devices: a figure, or a figure of each group (first process, descendants, both).

use crate::model::groups::Groups;

/// A figure, or one for each group. The default is 0.
pub(super) trait Amount: Copy + Default + PartialEq {
    /// The sum of both.
    fn plus(self, other: Self) -> Self;
    /// The smaller of both, group by group.
    fn smaller(self, other: Self) -> Self;
    /// The larger of both, group by group.
    fn larger(self, other: Self) -> Self;
}

impl Amount for u64 {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn smaller(self, other: Self) -> Self {
        self.min(other)
    }

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

impl Amount for f64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn smaller(self, other: Self) -> Self {
        self.min(other)
    }

    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
}

impl<T: Amount> Amount for Groups<T> {
    fn plus(self, other: Self) -> Self {
        self.with(other, T::plus)
    }

    fn smaller(self, other: Self) -> Self {
        self.with(other, T::smaller)
    }

    fn larger(self, other: Self) -> Self {
        self.with(other, T::larger)
    }
}
