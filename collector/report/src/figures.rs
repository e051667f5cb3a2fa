//! Single values as text.

use crate::model::report::Exit;
pub(super) use crate::model::signal::signal_name;
use crate::model::style::RamUnit;

/// Stands for an unknown value.
pub(super) const UNKNOWN: &str = "n/a";

/// Converts a whole number, such as a count of bytes, to a float.
pub(super) fn float(whole: Option<u64>) -> Option<f64> {
    whole.map(|whole| whole as f64)
}

/// Formats a number with three decimals.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| format!("{v:.3}"))
}

/// Formats a whole number.
pub(super) fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| v.to_string())
}

/// Formats a number with about three digits, and commas between thousands: `0.020`, `4.18`, `66.2`, `25,277`.
pub fn short(value: f64) -> String {
    // Each bound is where rounding would make one digit more: 9.995 is written as 10.0.
    let magnitude = value.abs();
    if magnitude == 0.0 {
        "0".to_owned()
    } else if magnitude < 0.0995 {
        // Two significant digits.
        let decimals = (1.0 - magnitude.log10().floor()).clamp(2.0, 9.0) as usize;
        format!("{value:.decimals$}")
    } else if magnitude < 9.995 {
        format!("{value:.2}")
    } else if magnitude < 99.95 {
        format!("{value:.1}")
    } else {
        thousands(value.round())
    }
}

/// Formats energy in the largest unit of which there is at least one; less than a joule in joules.
pub(super) fn energy(joules: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e6, "MJ"), (1e3, "kJ"), (1.0, "J")];
    let (size, symbol) = UNITS.into_iter().find(|(size, _)| joules >= *size).unwrap_or((1.0, "J"));
    format!("{} {symbol}", short(joules / size))
}

/// Formats a whole number with commas between thousands.
pub(super) fn thousands(whole: f64) -> String {
    // No run has so much of anything. A forged report can, and its number would have up to 300 digits.
    if whole.abs() >= 1e18 {
        return format!("{whole:.2e}");
    }
    let digits = format!("{whole:.0}");
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.char_indices() {
        let is_first = out.is_empty() || out == "-";
        if !is_first && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats values that stand below one another. All have as many decimals as show the largest one with about four digits.
pub(super) fn column(values: &[Option<f64>]) -> Vec<String> {
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    let decimals = match largest {
        // Three significant digits. The three decimals of the next arm would show at most one of them.
        1e-12..0.009_995 => (2.0 - f64::log10(largest).floor()) as usize,
        ..9.9995 => 3,
        ..99.995 => 2,
        ..999.95 => 1,
        _ => 0,
    };
    let cell = |value: &Option<f64>| match value {
        None => UNKNOWN.to_owned(),
        Some(value) if decimals == 0 => thousands(value.round()),
        Some(value) => format!("{value:.decimals$}"),
    };
    values.iter().map(cell).collect()
}

/// Formats whole numbers that stand below one another, with commas between thousands.
pub(super) fn counts(values: &[Option<f64>]) -> Vec<String> {
    values.iter().map(|value| value.map_or_else(|| UNKNOWN.to_owned(), thousands)).collect()
}

/// Formats a part of a whole (1 is all of it) in percent.
pub(super) fn percent(part: f64) -> String {
    if part < 9.995 { format!("{:.0} %", part * 100.0) } else { ">999 %".to_owned() }
}

/// Formats bytes in the largest unit that fits.
pub fn bytes(bytes: u64) -> String {
    let unit = RamUnit::that_fits(bytes as f64);
    format!("{} {}", short(unit.convert(bytes as f64)), unit.symbol())
}

/// Formats a time for a glance: `4.18 s`, `3 min 12 s`; from an hour on as [`duration`] does.
pub fn readable(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match s {
        // From 59.95 on, `short` would write `60.0 s`.
        _ if seconds < 59.95 => format!("{} s", short(seconds)),
        ..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => duration(seconds.round()),
    }
}

/// Formats a time to the millisecond: `4.180 s`, `3 min 12.250 s`. From an hour on it is to the second, from a day on to the
/// minute.
pub(super) fn duration(seconds: f64) -> String {
    let ms = (seconds * 1e3).round() as u64;
    let s = seconds.round() as u64;
    match s {
        _ if ms < 60_000 => format!("{:.3} s", ms as f64 / 1e3),
        _ if ms < 3_600_000 => format!("{} min {:.3} s", ms / 60_000, (ms % 60_000) as f64 / 1e3),
        0..86_400 => format!("{} h {} min {} s", s / 3600, s / 60 % 60, s % 60),
        _ => format!("{} d {} h {} min", s / 86_400, s / 3600 % 24, s / 60 % 60),
    }
}

/// Formats an exit code, or the name of a signal.
pub(super) fn exit(exit: Exit) -> String {
    match exit {
        Exit { code: Some(code), .. } => code.to_string(),
        Exit { signal: Some(signal), .. } => signal_name(signal),
        Exit { code: None, signal: None } => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_readable_units() {
        let shown = [0.0204, 59.9996, 61.5, 3599.9999, 7384.4].map(duration).join(", ");
        assert_eq!(shown, "0.020 s, 1 min 0.000 s, 1 min 1.500 s, 1 h 0 min 0 s, 2 h 3 min 4 s");
        assert_eq!([86_399.9, 200_000.0].map(duration), ["1 d 0 h 0 min", "2 d 7 h 33 min"]);
        let shown = [59.94, 59.96, 719.6, 3599.4, 3599.6, 7384.4].map(readable).join(", ");
        assert_eq!(shown, "59.9 s, 1 min 0 s, 12 min 0 s, 59 min 59 s, 1 h 0 min 0 s, 2 h 3 min 4 s");
    }

    #[test]
    fn short_numbers_have_about_three_digits() {
        let below_ten = [0.0, 0.00031, 0.0204, 0.0996, 0.5, 4.1849].map(short);
        assert_eq!(below_ten, ["0", "0.00031", "0.020", "0.10", "0.50", "4.18"]);
        let above = [9.996, 41.02, 99.96, 271.4, 25_276.5, 1e9].map(short);
        assert_eq!(above, ["10.0", "41.0", "100", "271", "25,277", "1,000,000,000"]);
        assert_eq!([-123.0, -1234.0, -123_456.0].map(short), ["-123", "-1,234", "-123,456"]);
        assert_eq!([1e300, -1e18].map(short), ["1.00e300", "-1.00e18"]);
        assert_eq!([0.0, 0.655, 1.27, 9.996].map(percent), ["0 %", "66 %", "127 %", ">999 %"]);
        assert_eq!([bytes(0), bytes(307_200), bytes(999_999_999_999)], ["0 B", "307 kB", "1,000 GB"]);
    }

    #[test]
    fn column_has_the_decimals_of_its_largest_value() {
        assert_eq!(column(&[Some(4.124), Some(0.0322), None]), ["4.124", "0.032", "n/a"]);
        assert_eq!(column(&[Some(85.94), Some(4.8)]), ["85.94", "4.80"]);
        assert_eq!(column(&[Some(123_456.7), Some(0.2)]), ["123,457", "0"]);
        assert_eq!(column(&[Some(0.00123), Some(0.0001), Some(0.0)]), ["0.00123", "0.00010", "0.00000"]);
        assert_eq!(column(&[]), [""; 0]);
        assert_eq!(counts(&[Some(4.0), None, Some(1200.0)]), ["4", "n/a", "1,200"]);
    }

    #[test]
    fn energy_has_a_unit_that_fits() {
        assert_eq!([0.0, 12.0, 38_100.0, 3_046_065.0].map(energy), ["0 J", "12.0 J", "38.1 kJ", "3.05 MJ"]);
    }
}
