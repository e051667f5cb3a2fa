//! Values of options. An error quotes the value and says what is allowed; the caller adds the option's name.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_track_collector::model::rule::Threshold;
use thiserror::Error;

/// Bytes of a limit at most. It is a little less than 2^53, above which an f64 can't hold every whole number.
pub(super) const LARGEST: f64 = 9.0e15;

/// Maximum number of limits, and of alerts, in one value of an option: more than any user needs.
pub(super) const MOST_LIMITS: usize = 64;

/// Why a value is not allowed, in a line for the user.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct ValueError(pub(super) String);

impl ValueError {
    /// Makes the error that `given` is not allowed, and what is.
    pub(super) fn new(given: &str, allowed: impl Display) -> Self {
        Self(format!("\"{given}\" is not allowed: {allowed}"))
    }

    /// Makes the error that `given` is not among the names in `allowed`.
    pub(super) fn none_of<'a>(given: &str, allowed: impl IntoIterator<Item = &'a str>) -> Self {
        let allowed: Vec<_> = allowed.into_iter().collect();
        Self::new(given, format_args!("one of {}", allowed.join(", ")))
    }
}

/// What a time is for, which decides how short and long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// Between two samples. gpu_tracker's minimum is 0.1 s; a sample takes only microseconds here.
    Interval,
    /// Between two lines of an output for people: samples are a tenth of a second apart.
    Pause,
    /// The time that a limit allows.
    Allowed,
    /// A length of time that can be 0, or a moment of a run.
    Any,
}

impl Time {
    /// The times that are allowed, in words for the user.
    fn range(self) -> &'static str {
        match self {
            Self::Interval => "from 0.001 s to a year",
            Self::Pause => "from 0.1 s to a year",
            Self::Allowed => "above 0, up to a century",
            Self::Any => "up to a century",
        }
    }

    fn allows(self, time: Duration) -> bool {
        /// A longer time between samples or lines is taken for a mistake: hardly a run lasts as long.
        const YEAR: Duration = Duration::from_secs(365 * 86_400);
        match self {
            Self::Interval => (Duration::from_millis(1)..=YEAR).contains(&time),
            Self::Pause => (Duration::from_millis(100)..=YEAR).contains(&time),
            Self::Allowed => !time.is_zero(),
            Self::Any => true,
        }
    }

    /// Parses a time: a number of seconds, numbers with units (`1h30m`), or Slurm's minutes:seconds and hours:minutes:seconds.
    ///
    /// # Errors
    /// If it has another form, or is too short or too long.
    pub(crate) fn parse(self, given: &str) -> Result<Duration, ValueError> {
        let time = clock_time(given).or_else(|| with_units(given)).filter(|time| self.allows(*time));
        time.ok_or_else(|| {
            let range = self.range();
            ValueError::new(given, format_args!("a time {range}, such as 5, 500ms, 90s, 1h30m or 01:30:00"))
        })
    }
}

/// Parses the time between two samples.
///
/// # Errors
/// As [`Time::parse`].
pub(crate) fn interval(given: &str) -> Result<Duration, ValueError> {
    Time::Interval.parse(given)
}

/// Parses a time as Slurm writes it: hours:minutes:seconds, or minutes:seconds. `None`: it has another form, or a part is too large.
/// The first part may be above 59.
fn clock_time(given: &str) -> Option<Duration> {
    const MOST_HOURS: u64 = 876_000;
    let number = |text: &str, below: u64| text.parse::<u64>().ok().filter(|number| *number < below);
    let (before, seconds) = given.rsplit_once(':')?;
    let minutes = match before.split_once(':') {
        Some((hours, minutes)) => number(hours, MOST_HOURS)? * 60 + number(minutes, 60)?,
        None => number(before, MOST_HOURS * 60)?,
    };
    Some(Duration::from_secs(minutes * 60 + number(seconds, 60)?))
}

/// Parses a number of seconds, or numbers with units. `None`: it has another form, or is longer than a century.
fn with_units(given: &str) -> Option<Duration> {
    const CENTURY_S: f64 = 100.0 * 365.0 * 86_400.0;
    let duration = |s: f64| (0.0..=CENTURY_S).contains(&s).then(|| Duration::from_secs_f64(s));
    if let Ok(seconds) = given.parse::<f64>() {
        return duration(seconds);
    }
    let (mut rest, mut seconds) = (given, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let letters = rest.get(digits..)?;
        let length = letters.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(letters.len());
        let (unit, next) = letters.split_at(length);
        let unit_s = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += rest.get(..digits)?.parse::<f64>().ok()? * unit_s;
        rest = next;
    }
    duration(seconds).filter(|_| !given.is_empty())
}

/// Parses bytes. K, M, G and T alone, or with i, are binary, as for Slurm and ulimit. With B alone they are decimal, as in reports.
///
/// # Errors
/// If `given` is no number of bytes from 1 to [`LARGEST`].
pub(super) fn bytes(given: &str) -> Result<u64, ValueError> {
    let digits = given.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(given.len());
    let (number, unit) = given.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let thousand: f64 = if unit.len() == 2 && unit.ends_with('b') { 1000.0 } else { 1024.0 };
    let power = match unit.as_str() {
        "" | "b" => Some(0),
        "k" | "ki" | "kib" | "kb" => Some(1),
        "m" | "mi" | "mib" | "mb" => Some(2),
        "g" | "gi" | "gib" | "gb" => Some(3),
        "t" | "ti" | "tib" | "tb" => Some(4),
        _ => None,
    };
    let bytes = power.and_then(|power| Some(number.parse::<f64>().ok()? * thousand.powi(power)));
    let bytes = bytes.filter(|bytes| (1.0..=LARGEST).contains(bytes)).map(|bytes| bytes as u64);
    bytes.ok_or_else(|| ValueError::new(given, "bytes, such as 8G (binary) or 500MB (decimal)"))
}

/// Parses bytes, or a percentage of what the run may use.
///
/// # Errors
/// If `given` is neither.
pub(super) fn memory(given: &str) -> Result<Threshold, ValueError> {
    let threshold = match given.strip_suffix('%') {
        Some(number) => percent(number).map(Threshold::Percent),
        None => bytes(given).ok().map(Threshold::Amount),
    };
    threshold.ok_or_else(|| {
        let allowed = "bytes, such as 8G (binary), 500MB (decimal), or a percentage up to 100%";
        ValueError::new(given, allowed)
    })
}

/// Parses the number of a percentage. `None`: it is no number above 0 and up to 100.
pub(super) fn percent(number: &str) -> Option<f64> {
    number.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0)
}

/// Parses a time above 0. Returns it as a threshold, in nanoseconds.
///
/// # Errors
/// As [`Time::parse`].
pub(super) fn allowed_time(given: &str) -> Result<Threshold, ValueError> {
    let time = Time::Allowed.parse(given)?;
    Ok(Threshold::Amount(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
}

/// Parses a number of cores.
///
/// # Errors
/// If `given` is no whole number, or 0.
pub(super) fn cores(given: &str) -> Result<u32, ValueError> {
    at_least(1, given, "a whole number of cores, at least 1")
}

/// Parses a pid.
///
/// # Errors
/// If `given` is no whole number, or 0.
pub(super) fn pid(given: &str) -> Result<u32, ValueError> {
    at_least(1, given, "the pid of a process, at least 1")
}

/// Parses the number of a descriptor that is no standard stream.
///
/// # Errors
/// If `given` is no whole number, or less than 3.
pub(super) fn descriptor(given: &str) -> Result<i32, ValueError> {
    at_least(3, given, "the number of a descriptor, at least 3")
}

/// Parses a whole number.
///
/// # Errors
/// If `given` is no whole number, or less than `least`. The error says what is `allowed`.
fn at_least<T: FromStr + PartialOrd>(least: T, given: &str, allowed: &str) -> Result<T, ValueError> {
    let number = given.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| ValueError::new(given, allowed))
}

/// The UUIDs of one value. With `Vec` in place of this name, clap would take each value for a single UUID.
pub(super) type Uuids = Vec<String>;

/// Parses a list of GPU UUIDs, and drops repetitions.
///
/// # Errors
/// If a UUID is empty.
pub(super) fn uuids(given: &str) -> Result<Uuids, ValueError> {
    let mut uuids: Uuids = Vec::new();
    for uuid in given.split(',').map(str::trim) {
        if uuid.is_empty() {
            return Err(ValueError::new(given, "UUIDs separated by commas, none of them empty"));
        }
        if !uuids.iter().any(|known| known == uuid) {
            uuids.push(uuid.to_owned());
        }
    }
    Ok(uuids)
}

/// Splits the value of an option into the name of a file and the keys after it. The name may have commas, and ends where one of `keys`
/// begins. A key without `=` ends at a comma or at the end.
pub(super) fn split_at_key<'a>(given: &'a [u8], keys: &[&str]) -> (&'a [u8], &'a [u8]) {
    let begins = |rest: &[u8], key: &str| {
        let after = rest.strip_prefix(key.as_bytes());
        after.is_some_and(|after| key.ends_with('=') || matches!(after.first(), None | Some(b',')))
    };
    let is_key = |at: &usize| keys.iter().any(|key| begins(&given[*at..], key));
    let end = (0..given.len()).find(is_key).unwrap_or(given.len());
    given.split_at(end)
}

/// Finds the value whose name is `text`.
///
/// # Errors
/// If no value has this name.
pub(crate) fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, ValueError> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| ValueError::none_of(text, all.iter().map(|value| name(*value))))
}

/// Makes a parser of a value that is one of a few names, which help, completions and errors list.
pub(crate) fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.iter().map(move |value| name(*value)));
    names.try_map(move |given| named(&given, all, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-12
    #[test]
    fn times_of_all_options_have_one_grammar() {
        for (given, ms) in [
            ("90", 90_000),
            ("0.1", 100),
            ("100ms", 100),
            ("5s", 5000),
            ("1m30s", 90_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
            ("01:30", 90_000),
            ("90:00", 5_400_000),
            ("01:30:00", 5_400_000),
        ] {
            for of in [Time::Interval, Time::Pause, Time::Allowed, Time::Any] {
                assert_eq!(of.parse(given).unwrap().as_millis(), ms, "{given}");
            }
        }
        for given in
            ["", "s", "5 s", "5w", "-1", "inf", "NaN", "1e300", "1:60", "1:2:3:4", "5sm", "99999999d"]
        {
            for of in [Time::Interval, Time::Pause, Time::Allowed, Time::Any] {
                let line = of.parse(given).unwrap_err().to_string();
                assert!(line.contains(&format!("\"{given}\"")) && line.contains(of.range()), "{line}");
            }
        }
        let shortest = [(Time::Interval, "0.9ms"), (Time::Pause, "99ms"), (Time::Allowed, "0")];
        assert!(shortest.into_iter().all(|(of, given)| of.parse(given).is_err()));
        assert!(Time::Any.parse("0").unwrap().is_zero());
        assert!(Time::Interval.parse("9000h").is_err());
    }
}
