//! Figures as text. What is not known is `?`.

use gpu_track_collector::model::style::RamUnit;
use gpu_track_collector::report::{figures, quote};

/// Stands for what is not known.
pub(in super::super) const UNKNOWN: &str = "?";

/// Writes bytes in `unit`. `None`: in the largest unit that fits.
pub(in super::super) fn bytes(bytes: u64, unit: Option<RamUnit>) -> String {
    let unit = unit.unwrap_or_else(|| RamUnit::that_fits(bytes as f64));
    format!("{} {}", figures::short(unit.convert(bytes as f64)), unit.symbol())
}

/// Writes bytes that may be unknown.
pub(super) fn some_bytes(value: Option<u64>, unit: Option<RamUnit>) -> String {
    value.map_or(UNKNOWN.into(), |value| bytes(value, unit))
}

/// Writes a percentage that may be unknown.
pub(super) fn percent(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), |value| format!("{value:.0}%"))
}

/// Writes a percentage of one core, which may be unknown, as a number of cores.
pub(super) fn cores(percent: Option<f64>) -> String {
    percent.map_or(UNKNOWN.into(), |percent| format!("{:.2}", percent / 100.0))
}

/// Writes a count that may be unknown.
pub(super) fn count(value: Option<u64>) -> String {
    value.map_or(UNKNOWN.into(), |value| value.to_string())
}

/// A name in exactly so many columns: cut in its middle, or filled up with blanks. Its hidden characters are escaped first, because
/// the escapes take columns, too.
pub(super) fn column(name: &str, width: usize) -> String {
    let name = quote::cut_middle(&quote::escape(name), width);
    let blanks = width.saturating_sub(quote::width(&name));
    name + &" ".repeat(blanks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_a_question_mark_and_names_fill_their_column() {
        assert_eq!([percent(None), cores(None), count(None), some_bytes(None, None)], [UNKNOWN; 4]);
        assert_eq!(some_bytes(Some(1_234_000_000), Some(RamUnit::Megabytes)), "1,234 MB");
        assert_eq!(bytes(0, None), "0 B");
        assert_eq!(
            [column("ab", 4), column("a\u{1b}[2Jb", 6), column("数据数据", 7)],
            ["ab  ", "a\\...b", "数...据"]
        );
    }
}
