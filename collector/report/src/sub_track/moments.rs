//! Minimum, maximum, mean and standard deviation of numbers that come one by one.
//!
//! Sums are kept in twice the precision of a number, so one pass is enough, and the order of the numbers does not matter.
//! With plain sums, the variance would lose all digits where a column hardly changes, as a time in nanoseconds does.

/// A number in twice the precision: the sum of `high` and `low`. `low` has what was lost when `high` was rounded.
#[derive(Debug, Clone, Copy, Default)]
struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// Adds two numbers without an error (Knuth's `TwoSum`).
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let from_b = high - a;
        Self { high, low: (a - (high - from_b)) + (b - from_b) }
    }

    /// Multiplies two numbers without an error: the fused multiply-add computes by how much the product was rounded.
    fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: a.mul_add(b, -high) }
    }

    /// Adds two numbers of twice the precision. Only what is smaller than the last digits of `low` is lost.
    fn plus(self, other: Self) -> Self {
        let high = Self::sum(self.high, other.high);
        Self::sum(high.high, high.low + self.low + other.low)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self { high: -other.high, low: -other.low })
    }

    /// Multiplies two numbers of twice the precision. The product of both `low` is below their precision, so it is left
    /// out.
    fn times(self, other: Self) -> Self {
        let high = Self::product(self.high, other.high);
        Self::sum(high.high, high.low + self.high * other.low + self.low * other.high)
    }

    /// Divides by a number, and rounds once.
    fn divided_by(self, number: f64) -> f64 {
        let quotient = self.high / number;
        // What the quotient leaves undivided.
        let rest = quotient.mul_add(-number, self.high) + self.low;
        quotient + rest / number
    }
}

impl From<f64> for Double {
    fn from(high: f64) -> Self {
        Self { high, low: 0.0 }
    }
}

/// What is known of the numbers so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    pub(super) count: u64,
    min: f64,
    max: f64,
    sum: Double,
    squares: Double,
}

impl Default for Moments {
    fn default() -> Self {
        let (sum, squares) = (Double::default(), Double::default());
        Self { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, sum, squares }
    }
}

impl Moments {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: f64) {
        self.count += 1;
        self.min = self.min.min(number);
        self.max = self.max.max(number);
        self.sum = self.sum.plus(number.into());
        self.squares = self.squares.plus(Double::product(number, number));
    }

    /// The smallest number. `None`: no number was added.
    pub(crate) fn min(&self) -> Option<f64> {
        self.known(self.min)
    }

    /// The largest number. `None`: no number was added.
    pub(crate) fn max(&self) -> Option<f64> {
        self.known(self.max)
    }

    /// The sum. `None`: no number was added.
    pub(super) fn sum(&self) -> Option<f64> {
        self.known(self.sum.high)
    }

    /// The mean. `None`: no number was added.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.known(self.sum.divided_by(self.count as f64))
    }

    /// The standard deviation of a population: it divides by the count, not by one less. `None`: no number was added, or the sums of
    /// squares overflow or underflow.
    pub(super) fn std(&self) -> Option<f64> {
        if self.min == self.max {
            return Some(0.0);
        }
        let count = self.count as f64;
        let variance_by_squared_count = self.squares.times(count.into()).minus(self.sum.times(self.sum));
        // Numbers that differ have a deviation above 0. An overflow makes it NaN or infinite, an underflow 0, and a rounding
        // error can make it negative.
        let variance_by_squared_count = variance_by_squared_count.high;
        (variance_by_squared_count.is_finite() && variance_by_squared_count > 0.0)
            .then(|| variance_by_squared_count.sqrt() / count)
    }

    /// A value that is only defined if there is a number.
    fn known(&self, value: f64) -> Option<f64> {
        (self.count > 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(numbers: impl IntoIterator<Item = f64>) -> Moments {
        let mut all = Moments::default();
        numbers.into_iter().for_each(|number| all.add(number));
        all
    }

    // Requirement: CMD-41
    #[test]
    fn figures_are_those_of_a_population() {
        let all = moments([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((all.min(), all.max(), all.sum()), (Some(2.0), Some(9.0), Some(40.0)));
        assert_eq!((all.mean(), all.std()), (Some(5.0), Some(2.0)));
        let one = moments([0.1]);
        assert_eq!((one.mean(), one.std()), (Some(0.1), Some(0.0)));
    }

    // Requirement: CMD-41
    #[test]
    fn of_no_number_nothing_is_known() {
        let none = moments([]);
        assert_eq!([none.min(), none.max(), none.sum(), none.mean(), none.std()], [None; 5]);
    }

    // Requirement: CMD-42
    #[test]
    fn deviation_that_can_not_be_computed_is_unknown_and_no_0() {
        for numbers in [[5.0, 1e160, -1e160], [1e200, 2e200, 0.0], [1e-170, 3e-170, 2e-170]] {
            assert_eq!(moments(numbers).std(), None, "{numbers:?}");
        }
        assert!(moments([5.0, 1e150, -1e150]).std().is_some());
    }

    #[test]
    fn large_numbers_that_hardly_differ_keep_their_digits() {
        // Nanoseconds of ten days' uptime, half a second apart. The deviation of 0, 1, ..., n-1 is sqrt((n^2 - 1) / 12).
        let n = 100_000.0_f64;
        let all = moments((0..100_000).map(|at| 864e12 + f64::from(at) * 5e8));
        let right = ((n * n - 1.0) / 12.0).sqrt() * 5e8;
        assert!((all.std().unwrap() / right - 1.0).abs() < 1e-15, "{:?} {right}", all.std());
        assert_eq!(all.mean(), Some(864e12 + (n - 1.0) / 2.0 * 5e8));
        // 0.1 has no end in binary: its sums are rounded, and the deviation is 0 all the same.
        assert_eq!(moments([0.1; 1000]).std(), Some(0.0));
        assert_eq!(moments([0.1; 1000]).mean(), Some(0.1));
    }
}
