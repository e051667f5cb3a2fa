//! A sum over devices as samples see it. It is the largest that became known since the sample before, or the last one while
//! that is not too old.

use serde::{Deserialize, Serialize};

use super::amount::Amount;

/// The sums that became known since the last sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RecentSum<T> {
    largest: Option<T>,
    last: Option<(u64, T)>,
}

impl<T: Amount> RecentSum<T> {
    /// Takes in a sum that a reading of this time made known.
    pub(super) fn add(&mut self, read_ns: u64, sum: T) {
        self.largest = Some(self.largest.map_or(sum, |largest| largest.larger(sum)));
        self.last = Some((read_ns, sum));
    }

    /// Gives the largest. `None`: nothing was read since `oldest_ns`.
    pub(super) fn get(&self, oldest_ns: u64) -> Option<T> {
        let last = self.last.filter(|(read_ns, _)| *read_ns >= oldest_ns);
        last.map(|(_, sum)| self.largest.unwrap_or(sum))
    }

    /// Begins a sample: its largest is that of what becomes known from now on.
    pub(super) fn begin(&mut self) {
        self.largest = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_since_the_last_sample_and_the_last_until_it_is_old() {
        let mut sum = RecentSum::default();
        assert_eq!(sum.get(0), None);
        sum.add(10, 7);
        sum.add(11, 5);
        assert_eq!(sum.get(9), Some(7));
        sum.begin();
        assert_eq!((sum.get(11), sum.get(12)), (Some(5), None));
        sum.add(20, 0);
        assert_eq!(sum.get(12), Some(0), "what was freed is gone");
    }
}
