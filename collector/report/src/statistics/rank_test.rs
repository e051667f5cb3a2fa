//! The rank test of Mann and Whitney: whether the values of one set tend to be larger than those of another.
//!
//! It assumes nothing about how the values are distributed. Run times and memory peaks have no normal distribution, and often an
//! outlier.

use super::normal;

/// Maximum number of values for which the distribution of ranks is counted out. The number of ways to choose half of them is below
/// 2^53, so an `f64` has it exactly.
const MOST_EXACT: usize = 50;

/// How two sets compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RankTest {
    /// The share of pairs, with one value of each set, in which the value of the second set is larger. A pair of equal values counts
    /// half.
    pub(crate) larger: f64,
    /// The two-sided p-value: how likely ranks at least as far apart are if both sets are drawn from one distribution.
    pub(crate) p: f64,
}

/// Compares two sets. `None`: one is empty.
///
/// For up to 50 values, p is exact, also with equal values: all ways to choose one of the sets are counted. For more, it is that of
/// the normal distribution with corrections for ties and continuity.
pub(crate) fn rank_test(first: &[f64], second: &[f64]) -> Option<RankTest> {
    let (n, m) = (first.len(), second.len());
    if n == 0 || m == 0 {
        return None;
    }
    // Doubled, the ranks of equal values (such as 2.5) are whole numbers, too.
    let doubled = doubled_ranks(first, second);
    let doubled_sum: usize = doubled[n..].iter().sum();
    // Twice the test's statistic U, the sum of ranks minus the smallest that it can be.
    let doubled_u = doubled_sum - m * (m + 1);
    let larger = doubled_u as f64 / (2 * n * m) as f64;
    let p = if n + m <= MOST_EXACT {
        exact(&doubled, m, doubled_sum)
    } else {
        approximate(&doubled, m, doubled_u)
    };
    Some(RankTest { larger, p })
}

/// The smallest p that sets of `n` and `m` values can have: that of all values of one set above all of the other.
pub(crate) fn least_p(n: usize, m: usize) -> f64 {
    // 2 over the number of ways to choose m of n + m.
    (1..=m).fold(2.0, |p, i| p * i as f64 / (n + i) as f64).min(1.0)
}

/// Twice the rank of each value among all. Equal values share the mean of their ranks, of which only the double is always whole.
fn doubled_ranks(first: &[f64], second: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = first.iter().chain(second).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut begin = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        // Ranks begin + 1 to begin + equal.len().
        let doubled = 2 * begin + equal.len() + 1;
        equal.iter().for_each(|at| ranks[*at] = doubled);
        begin += equal.len();
    }
    ranks
}

/// The two-sided p, by counting all ways to choose `m` of these doubled ranks. It is the share of them whose sum is at least as far
/// from the middle as `doubled_sum`: twice the smaller tail of the sums, at most 1.
fn exact(doubled: &[usize], m: usize, doubled_sum: usize) -> f64 {
    let most: usize = doubled.iter().sum();
    // ways[k][s]: ways to choose k of the ranks so far with the sum s.
    let mut ways = vec![vec![0.0_f64; most + 1]; m + 1];
    ways[0][0] = 1.0;
    for rank in doubled {
        // Downwards, so that no choice has this rank twice.
        for chosen in (0..m).rev() {
            for sum in 0..=most - rank {
                ways[chosen + 1][sum + rank] += ways[chosen][sum];
            }
        }
    }
    let of_m = &ways[m];
    let all: f64 = of_m.iter().sum();
    let (low, high): (f64, f64) = (of_m[..=doubled_sum].iter().sum(), of_m[doubled_sum..].iter().sum());
    (2.0 * low.min(high) / all).min(1.0)
}

/// The two-sided p by the normal distribution. `m`: size of the second set; `doubled_u`: twice its U.
fn approximate(doubled: &[usize], m: usize, doubled_u: usize) -> f64 {
    let (all, m) = (doubled.len() as f64, m as f64);
    let n = all - m;
    let mut sorted = doubled.to_vec();
    sorted.sort_unstable();
    let ties: f64 =
        sorted.chunk_by(|a, b| a == b).map(|equal| equal.len() as f64).map(|t| t.powi(3) - t).sum();
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    // The half that is subtracted corrects for continuity.
    let apart = (doubled_u as f64 / 2.0 - n * m / 2.0).abs() - 0.5;
    // All values are equal.
    if variance <= 0.0 {
        return 1.0;
    }
    (2.0 * normal::above(apart / variance.sqrt())).min(1.0)
}

/// How many runs each variant needs so that a test can have a p below this after Holm's adjustment for `tests` tests.
pub(crate) fn least_runs(below: f64, tests: usize) -> usize {
    (1..usize::MAX).find(|n| least_p(*n, *n) * (tests as f64) < below).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(first: &[f64], second: &[f64]) -> f64 {
        rank_test(first, second).unwrap().p
    }

    #[track_caller]
    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} {expected}");
    }

    /// All in this test: scipy 1.17.1.
    // Requirement: CMD-32
    #[test]
    fn p_is_that_of_scipy() {
        // mannwhitneyu(x, y, method="exact")
        assert_near(p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        assert_near(p(&[1.1, 1.2, 1.3, 1.4, 1.5], &[2.1, 2.2, 2.3, 2.4, 2.5]), 0.007936507936507936);
        assert_near(p(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]), 0.1111111111111111);
        let first = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        assert_near(p(&first, &[1.15, 0.88, 0.90, 0.74, 1.21]), 0.2544122544122544);
        // With ties: mannwhitneyu(x, y, method=PermutationMethod(n_resamples=10**9))
        assert_near(p(&[0.0; 3], &[4096.0; 3]), 0.1);
        assert_near(p(&[1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 3.0, 4.0, 5.0]), 0.15873015873015872);
        assert_near(p(&[1.0, 1.0, 2.0, 2.0, 3.0], &[2.0, 3.0, 3.0, 3.0, 4.0, 4.0]), 0.05627705627705628);
        assert_near(p(&[5.0; 3], &[5.0; 4]), 1.0);
        // mannwhitneyu(x, y, method="asymptotic")
        let first: Vec<f64> = (0..30).map(|i| f64::from(i * 37 % 101) / 10.0).collect();
        let second: Vec<f64> = (0..28).map(|i| f64::from(i * 53 % 97) / 10.0 + 1.5).collect();
        assert_near(p(&first, &second), 0.2046762068502469);
        let floors = |values: &[f64]| values.iter().map(|value| value.floor()).collect::<Vec<_>>();
        assert_near(p(&floors(&first), &floors(&second)), 0.2841096631560639);
        assert_near(p(&[1.0; 30], &[1.0; 30]), 1.0);
    }

    #[test]
    fn part_of_larger_pairs_tells_the_direction() {
        let larger = |first: &[f64], second: &[f64]| rank_test(first, second).unwrap().larger;
        assert_eq!(larger(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
        assert_eq!(larger(&[3.0, 4.0], &[1.0, 2.0]), 0.0);
        // Pairs: 1 < 2, 1 < 3, 2 = 2, 2 < 3.
        assert_eq!(larger(&[1.0, 2.0], &[2.0, 3.0]), 0.875);
        assert_eq!(rank_test(&[], &[1.0]), None);
    }

    #[test]
    fn least_p_is_that_of_sets_that_do_not_overlap() {
        for (n, m) in [(1, 1), (3, 3), (2, 5), (5, 5), (7, 4)] {
            let first: Vec<f64> = (0..n).map(f64::from).collect();
            let second: Vec<f64> = (0..m).map(|i| f64::from(i) + 100.0).collect();
            assert_near(p(&first, &second), least_p(first.len(), second.len()));
        }
        assert_eq!([1, 3, 10].map(|tests| least_runs(0.05, tests)), [4, 5, 6]);
    }
}
