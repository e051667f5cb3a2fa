//! The bootstrap interval of a mean, by percentiles (Efron, Tibshirani: An introduction to the bootstrap, 1993, chapter 13).

use serde::Serialize;

use super::random::Random;

/// How many sets of runs are drawn.
const RESAMPLES: usize = 10_000;
/// The share of the means that lie outside of the interval: half of it below, half above.
const OUTSIDE: f64 = 0.05;
/// A fixed seed, so that the same runs always have the same interval.
const SEED: u64 = 1;

/// The interval that has 95% of the means of redrawn sets of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The 95% interval of the mean of these values. `None`: fewer than two say nothing about their spread.
///
/// Many times over, a set of as many values is drawn from them, in which a value can come several times. The interval has 95% of the
/// means of these sets.
pub fn interval_of_mean(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 {
        return None;
    }
    let mut random = Random::new(SEED);
    let mut mean = || {
        let drawn = (0..values.len()).map(|_| values[random.below(values.len())]);
        drawn.sum::<f64>() / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| mean()).collect();
    means.sort_by(f64::total_cmp);
    Some(Interval { low: quantile(&means, OUTSIDE / 2.0), high: quantile(&means, 1.0 - OUTSIDE / 2.0) })
}

/// The quantile `part` (0 to 1) of sorted values. Between two values it is interpolated linearly, as numpy does.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-32
    #[test]
    fn interval_is_that_of_scipy() {
        // scipy 1.17.1: bootstrap((values,), np.mean, n_resamples=1_000_000, method="percentile").
        let cases = [
            (&[1.0, 2.0, 3.0, 4.0, 10.0][..], (1.8, 7.2), 0.2),
            (&[12.1, 11.9, 12.4, 13.0, 12.2, 11.8, 12.6, 12.3, 12.0, 12.5], (12.08, 12.5), 0.015),
        ];
        for (values, (low, high), within) in cases {
            let interval = interval_of_mean(values).unwrap();
            let differences = [interval.low - low, interval.high - high];
            assert!(differences.iter().all(|difference| difference.abs() <= within), "{interval:?}");
            assert_eq!(interval_of_mean(values), Some(interval));
        }
        assert_eq!(interval_of_mean(&[2.0, 2.0]), Some(Interval { low: 2.0, high: 2.0 }));
        assert_eq!(interval_of_mean(&[2.0]), None);
    }
}
