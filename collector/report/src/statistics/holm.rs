//! Probabilities of several tests together (Holm: A simple sequentially rejective multiple test procedure, 1979).

/// Adjusts the p-value of each test; the order stays. With the adjusted ones, the chance of any false finding among all tests is no
/// larger than that of a single test.
pub(crate) fn adjusted(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    // From the smallest p on, each is multiplied by how many tests are left. None may become smaller than the one before it.
    let mut largest = 0.0_f64;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(p[at] * (p.len() - rank) as f64).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_are_adjusted_as_r_does_it() {
        // R's help of p.adjust has no figures; these are its definition by hand: 3 x 0.01, 2 x 0.02, max(0.04, 0.03).
        let expected = [0.03, 0.04, 0.04];
        let result = adjusted(&[0.01, 0.03, 0.02]);
        assert!(
            result.iter().zip([expected[0], expected[2], expected[1]]).all(|(a, b)| (a - b).abs() < 1e-12)
        );
        assert_eq!(adjusted(&[0.6, 0.5]), [1.0, 1.0]);
        assert_eq!(adjusted(&[0.04]), [0.04]);
        assert_eq!(adjusted(&[]), [0.0; 0]);
    }
}
