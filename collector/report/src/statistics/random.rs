//! Random numbers that a seed determines: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
//!
//! No crate's generator is used, because that could change with its version. A seed must always make the same order of runs and the
//! same interval.

/// A sequence of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Makes the sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, by SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, each as likely. `limit` is at least 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        // Numbers from the last multiple of `limit` on would make small remainders more likely, so they are drawn again.
        let fair = u64::MAX - u64::MAX % limit;
        loop {
            let number = self.next();
            if number < fair {
                return (number % limit) as usize;
            }
        }
    }

    /// Brings entries into a random order, each order as likely (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, entries: &mut [T]) {
        for at in (1..entries.len()).rev() {
            entries.swap(at, self.below(at + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // The test vector of rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64.
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn each_order_is_as_likely() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut entries = [0, 1, 2];
            random.shuffle(&mut entries);
            *seen.entry(entries).or_insert(0) += 1;
        }
        // 5 standard deviations of a binomial distribution are 145.
        assert!(seen.len() == 6 && seen.values().all(|count| (855..=1_145).contains(count)), "{seen:?}");
    }
}
