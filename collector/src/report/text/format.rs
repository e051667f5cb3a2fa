//! Single values as text.

use crate::model::report::Exit;
pub(super) use crate::model::signal::signal_name;

/// Stands for an unknown value.
pub(super) const UNKNOWN: &str = "n/a";

/// With three decimals.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| format!("{v:.3}"))
}

/// A whole number.
pub(super) fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| v.to_string())
}

/// In one to three units; short times have milliseconds.
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

/// An exit code, or the name of a signal.
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
        let shown = [0.0204, 59.9996, 61.5, 3599.9999, 7384.4, 86_399.9, 200_000.0].map(duration);
        let expected = [
            "0.020 s",
            "1 min 0.000 s",
            "1 min 1.500 s",
            "1 h 0 min 0 s",
            "2 h 3 min 4 s",
            "1 d 0 h 0 min",
            "2 d 7 h 33 min",
        ];
        assert_eq!(shown, expected);
    }
}
