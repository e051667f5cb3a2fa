//! Round numbers along an axis.

use crate::figures::thousands;

/// An axis whose numbers need more decimals than this has 0 alone.
const MOST_DECIMALS: usize = 12;

/// The numbers of an axis, each with its text: 0, and at most `most` other round numbers up to `largest`. Only 0 if `largest`
/// is not a finite number above 0, or if the numbers would need too many decimals.
pub(super) fn ticks(largest: f64, most: usize) -> Vec<(f64, String)> {
    let least_step = largest / most as f64;
    let zero = || vec![(0.0, "0".to_owned())];
    if !(least_step.is_normal() && least_step > 0.0) {
        return zero();
    }
    let (step, decimals) = round_step(least_step);
    if !step.is_normal() || decimals > MOST_DECIMALS {
        return zero();
    }
    // A quotient that is this little below a whole number is a whole number with a rounding error.
    let count = (largest / step + 1e-9).floor() as usize;
    let text = |value: f64| if decimals == 0 { thousands(value) } else { format!("{value:.decimals$}") };
    let tick = |at: usize| match at {
        0 => (0.0, "0".to_owned()),
        at => (at as f64 * step, text(at as f64 * step)),
    };
    (0..=count).map(tick).collect()
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least `least`, and how many decimals it has.
fn round_step(least: f64) -> (f64, usize) {
    let mut exponent = least.log10().floor() as i32;
    // `least` is this many times the power of ten; a rounding error above 1, 2 or 5 does not count.
    let least_factor = least / 10f64.powi(exponent) * (1.0 - 1e-9);
    let factor = match [1.0, 2.0, 5.0].into_iter().find(|factor| *factor >= least_factor) {
        Some(factor) => factor,
        // `least` is between 5 and 10 times the power: the next power of ten is the step.
        None => {
            exponent += 1;
            1.0
        }
    };
    // A division by a power of ten is exact where a multiplication by its inverse is not.
    let step = if exponent < 0 { factor / 10f64.powi(-exponent) } else { factor * 10f64.powi(exponent) };
    (step, usize::try_from(-exponent).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_almost_the_largest_value() {
        let texts = |largest, most| {
            ticks(largest, most).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(490.0, 4), "0 200 400");
        assert_eq!(texts(166.0, 6), "0 50 100 150");
        assert_eq!(texts(100.0, 2), "0 50 100");
        assert_eq!(texts(0.3, 3), "0 0.1 0.2 0.3");
        assert_eq!(texts(0.021, 4), "0 0.01 0.02");
        assert_eq!(texts(25_276.5, 3), "0 10,000 20,000");
        assert_eq!(texts(2.0, 4), "0 0.5 1.0 1.5 2.0");
        assert_eq!([texts(0.0, 4), texts(f64::NAN, 4)], ["0", "0"]);
        for smallest in [f64::MIN_POSITIVE, f64::MIN_POSITIVE / 3600.0, 1e-315, 1e-300, 5e-324] {
            assert_eq!(texts(smallest, 6), "0", "{smallest}");
        }
    }
}
