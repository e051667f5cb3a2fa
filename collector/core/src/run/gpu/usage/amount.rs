//! What can be summed over devices: a figure, or one for each group.

use crate::model::groups::Groups;

/// A figure of one device at one time.
pub(super) trait Amount: Copy + Default + PartialEq {
    fn plus(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
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
