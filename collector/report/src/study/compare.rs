//! Whether the variants of a study differ from the first one in a quantity.

use serde::Serialize;

use crate::statistics::{RankTest, adjusted, least_p, rank_test};

/// A difference counts as sure if chance alone would cause it less often than this.
pub(super) const SURE_BELOW: f64 = 0.05;

/// How a variant compares with the first one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// How likely ranks at least as far apart are if both variants need the same: Mann-Whitney U test, two-sided.
    pub p: f64,
    /// `p` adjusted by Holm, since several variants are tested. A difference is sure by this one.
    pub p_adjusted: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// What the runs show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It needs less, surely.
    Less,
    /// It needs more, surely.
    More,
    /// No difference.
    NoneShown,
    /// Nothing: with so few runs no difference could be sure.
    TooFew,
}

/// Compares each variant with the first one, by the values of a quantity in its runs. An entry is `None` for the first, and where
/// the values of either are not known.
pub(super) fn with_first(values: &[Option<&[f64]>]) -> Vec<Option<Compared>> {
    let mut compared = vec![None; values.len()];
    let Some(first) = values.first().copied().flatten() else { return compared };
    // The place of each variant that can be tested, its values, and its test.
    let mut tests: Vec<(usize, &[f64], RankTest)> = Vec::new();
    for (at, values) in values.iter().enumerate().skip(1) {
        let Some(values) = *values else { continue };
        tests.extend(rank_test(first, values).map(|test| (at, values, test)));
    }
    let p: Vec<f64> = tests.iter().map(|(_, _, test)| test.p).collect();
    for ((at, values, test), p_adjusted) in tests.into_iter().zip(adjusted(&p)) {
        // Whether so many runs can be sure at all, with the least p that they allow. Holm multiplies the smallest p by the number
        // of tests.
        let can_be_sure = least_p(first.len(), values.len()) * (p.len() as f64) < SURE_BELOW;
        let verdict = match direction(first, values, test) {
            Some(verdict) if p_adjusted < SURE_BELOW => verdict,
            _ if can_be_sure => Verdict::NoneShown,
            _ => Verdict::TooFew,
        };
        compared[at] = Some(Compared { p: test.p, p_adjusted, verdict });
    }
    compared
}

/// Tells which way a variant differs from the first: by its mean and by the ranks, for which 0.5 is no difference.
/// `None`: one of the two shows no difference, or they contradict each other, which an outlier can cause.
fn direction(first: &[f64], values: &[f64], test: RankTest) -> Option<Verdict> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    match mean(values) - mean(first) {
        difference if difference < 0.0 && test.larger < 0.5 => Some(Verdict::Less),
        difference if difference > 0.0 && test.larger > 0.5 => Some(Verdict::More),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(sets: &[&[f64]]) -> Vec<Option<Verdict>> {
        let sets: Vec<_> = sets.iter().map(|set| Some(*set)).collect();
        with_first(&sets).into_iter().map(|compared| Some(compared?.verdict)).collect()
    }

    // Requirement: CMD-32
    #[test]
    fn difference_is_sure_only_with_runs_enough_for_the_number_of_variants() {
        let (low, high) = ([1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3]);
        assert_eq!(compared(&[&low, &high]), [None, Some(Verdict::More)]);
        assert_eq!(compared(&[&high, &low]), [None, Some(Verdict::Less)]);
        assert_eq!(compared(&[&low, &low]), [None, Some(Verdict::NoneShown)]);
        // 3 of each have no p below 0.1.
        assert_eq!(compared(&[&low[..3], &high[..3]]), [None, Some(Verdict::TooFew)]);
        // Nor have 4 of each a p below 0.05 where two variants are compared: 2 x 0.029.
        assert_eq!(compared(&[&low, &high, &high]), [None, Some(Verdict::TooFew), Some(Verdict::TooFew)]);
    }

    #[test]
    fn mean_that_an_outlier_makes_shows_no_difference() {
        // Larger in all but one of the runs, smaller on average.
        let first = [1.0, 1.1, 1.2, 1.3, 1.4, 1000.0];
        let second = [2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7];
        assert_eq!(compared(&[&first, &second]), [None, Some(Verdict::NoneShown)]);
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let values = [1.0, 2.0];
        assert_eq!(with_first(&[None, Some(&values)]), [None, None]);
        assert_eq!(with_first(&[Some(&values), None]), [None, None]);
        assert_eq!(with_first(&[]), []);
    }
}
