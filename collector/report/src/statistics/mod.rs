//! Statistics of several runs: what they have in common, how sure their mean is, and whether two sets of them differ.

mod bootstrap;
mod holm;
mod normal;
pub(crate) mod random;
mod rank_test;

use serde::Serialize;

pub use bootstrap::{Interval, interval_of_mean};
pub(crate) use holm::adjusted;
pub(crate) use rank_test::{RankTest, least_p, least_runs, rank_test};

/// A quantity of several runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// In how many of the runs it is known.
    pub known: usize,
    /// Mean; null: it is known of none.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Standard deviation of the sample; null for fewer than two.
    pub standard_deviation: Option<f64>,
}

/// The mean, the extremes and the standard deviation of what is known.
pub(crate) fn summary(values: impl Iterator<Item = Option<f64>>) -> Summary {
    let known: Vec<f64> = values.flatten().collect();
    let count = known.len() as f64;
    let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / count);
    let standard_deviation = mean.filter(|_| known.len() > 1).map(|mean| {
        let squares: f64 = known.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (count - 1.0)).sqrt()
    });
    Summary {
        known: known.len(),
        mean,
        min: known.iter().copied().reduce(f64::min),
        max: known.iter().copied().reduce(f64::max),
        standard_deviation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-32
    #[test]
    fn deviation_is_that_of_a_sample() {
        // numpy 2.4.6: np.std([1, 2, 3, 4, 10], ddof=1).
        let values = [1.0, 2.0, 3.0, 4.0, 10.0].map(Some);
        let expected = Summary {
            known: 5,
            mean: Some(4.0),
            min: Some(1.0),
            max: Some(10.0),
            standard_deviation: Some(3.5355339059327378),
        };
        assert_eq!(summary(values.into_iter().chain([None])), expected);
        let single = summary([Some(2.0)].into_iter());
        assert_eq!((single.mean, single.standard_deviation), (Some(2.0), None));
        assert_eq!(summary([None].into_iter()), Summary::default());
    }
}
