//! Numbers and names as Python writes them, since gpu_tracker's reports are Python's.

/// Formats a number as Python's `repr` does: with the fewest digits that tell it from all others.
pub fn number(value: f64) -> String {
    // Such as "1.25e-5"; NaN and infinity have no exponent.
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        // Python writes numbers from 1e-4 to below 1e16 without an exponent, and others with at least two digits of it.
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

/// Formats a number of a table: rounded to 8 decimals, without needless zeros.
pub(super) fn rounded(value: f64) -> String {
    number(format!("{value:.8}").parse().unwrap_or(value))
}

/// Formats a key as Python's `str.title` does, with spaces for underscores: `num_calls` becomes `Num Calls`.
pub(super) fn title(key: &str) -> String {
    let mut title = String::with_capacity(key.len());
    let mut is_in_word = false;
    for c in key.replace('_', " ").chars() {
        if is_in_word {
            title.extend(c.to_lowercase());
        } else {
            title.extend(c.to_uppercase());
        }
        is_in_word = c.is_alphabetic();
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-41
    #[test]
    fn numbers_are_those_of_pythons_repr() {
        for (value, text) in [
            (0.0, "0.0"),
            (-1.5, "-1.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (1e-300, "1e-300"),
            (1746129779.2048252, "1746129779.2048252"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(rounded(0.1234567891), "0.12345679");
        assert_eq!(rounded(0.000001234), "1.23e-06");
        assert_eq!(rounded(-1e-12), "-0.0");
    }

    #[test]
    fn titles_are_pythons() {
        assert_eq!(title("num_non_empty_calls"), "Num Non Empty Calls");
        assert_eq!(title("gpu0_RAM2max x"), "Gpu0 Ram2Max X");
    }
}
