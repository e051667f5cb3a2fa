//! Values of options. An error quotes the value and says what is allowed; the caller adds the option's name.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpu_track_collector::model::rule::Threshold;
use thiserror::Error;

/// Bytes of a limit at most. Above 2^53, which is a little more, an f64 has not every whole number.
pub(super) const LARGEST: f64 = 9.0e15;

/// Maximum number of limits, and of alerts, in one value of an option: more than anybody means.
pub(super) const MOST_LIMITS: usize = 64;

/// Why a value is not allowed.
#[derive(Debug, Error)]
pub(crate) enum ValueError {
    #[error("\"{given}\" is not allowed: a time {}, such as 5, 500ms, 90s, 1h30m or 01:30:00", .of.range())]
    Time { given: String, of: Time },
    #[error("\"{0}\" names no file: FILE, ./-FILE or -")]
    TraceFile(String),
    #[error("\"{0}\" is not allowed after FILE: every=TIME or fields=A,B,...")]
    TraceKey(String),
    #[error("\"{0}\" is not allowed: a whole number of cores, at least 1")]
    Cores(String),
    #[error("\"{0}\" is not allowed: the pid of a process, at least 1")]
    Pid(String),
    #[error("\"{0}\" is not allowed: the number of a descriptor, at least 3")]
    Descriptor(String),
    #[error("\"{0}\" is not allowed: DIR[,keep=N][,max=BYTES][,tail=TIME]")]
    Record(String),
    #[error("\"{0}\" is not allowed: NAME=VALUE, such as ram=8G, wall=1h or processes=500")]
    Limit(String),
    #[error("\"{0}\" is not allowed: NAME>VALUE=SIGNAL, such as ram>95%=USR1")]
    SignalAt(String),
    #[error(
        "\"{0}\" is not allowed: ram>80%, gpu_ram>80%, cpu>90%, disk<10G, gpu_idle>5m, growth, or default"
    )]
    Alert(String),
    #[error("\"{0}\" is not allowed: a percentage of the cores that the run may use, such as 90%")]
    PartOfCores(String),
    #[error("more than {} in one value", MOST_LIMITS)]
    TooManyLimits,
    #[error("\"{0}\" is not allowed: bytes, such as 8G (binary) or 500MB (decimal)")]
    Bytes(String),
    /// Bytes or a percentage are expected.
    #[error(
        "\"{0}\" is not allowed: bytes, such as 8G (binary), 500MB (decimal), or a percentage up to 100%"
    )]
    Memory(String),
    /// A number of processes is expected.
    #[error("\"{0}\" is not allowed: a whole number, at least 1")]
    Count(String),
    #[error("\"{0}\" is not allowed: the name or number of a signal, such as USR1")]
    Signal(String),
    #[error("\"{0}\" is not allowed: UUIDs separated by commas, none of them empty")]
    Uuids(String),
    #[error("\"{value}\" is not allowed: one of {}", .allowed.join(", "))]
    NotOneOf { value: String, allowed: Vec<&'static str> },
}

/// What a time is for, which decides how short and long it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// Between two samples. gpu_tracker's minimum is 0.1 s; a sample takes only microseconds here.
    Interval,
    /// Between two lines of an output for people: samples are a tenth of a second apart.
    Pause,
    /// What a run is allowed.
    Allowed,
    /// A stretch that can be empty, or a moment.
    Any,
}

impl Time {
    fn range(self) -> &'static str {
        match self {
            Self::Interval => "from 0.001 s to a year",
            Self::Pause => "from 0.1 s to a year",
            Self::Allowed => "above 0, up to a century",
            Self::Any => "up to a century",
        }
    }

    fn allows(self, time: Duration) -> bool {
        /// Longer than any batch system lets a job run.
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
        time.ok_or_else(|| ValueError::Time { given: given.to_owned(), of: self })
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
    bytes.ok_or_else(|| ValueError::Bytes(given.to_owned()))
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
    threshold.ok_or_else(|| ValueError::Memory(given.to_owned()))
}

/// Parses the number of a percentage. `None`: it is no number above 0 and up to 100.
pub(super) fn percent(number: &str) -> Option<f64> {
    number.parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0)
}

/// Parses a time above 0. Gives it as a threshold, in nanoseconds.
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
/// If `given` is none.
pub(super) fn cores(given: &str) -> Result<u32, ValueError> {
    match given.parse() {
        Ok(cores @ 1..) => Ok(cores),
        _ => Err(ValueError::Cores(given.to_owned())),
    }
}

/// Parses a pid.
///
/// # Errors
/// If `given` is none.
pub(super) fn pid(given: &str) -> Result<u32, ValueError> {
    match given.parse() {
        Ok(pid @ 1..) => Ok(pid),
        _ => Err(ValueError::Pid(given.to_owned())),
    }
}

/// Parses the number of a descriptor that is no standard stream.
///
/// # Errors
/// If `given` is none.
pub(super) fn descriptor(given: &str) -> Result<i32, ValueError> {
    match given.parse() {
        Ok(fd @ 3..) => Ok(fd),
        _ => Err(ValueError::Descriptor(given.to_owned())),
    }
}

/// The UUIDs of one value. With `Vec` in place of this name, clap would take each value for a single UUID.
pub(super) type Uuids = Vec<String>;

/// Parses a list of GPU UUIDs, and drops repetitions.
///
/// # Errors
/// If `given` is none.
pub(super) fn uuids(given: &str) -> Result<Uuids, ValueError> {
    let mut uuids: Uuids = Vec::new();
    for uuid in given.split(',').map(str::trim) {
        if uuid.is_empty() {
            return Err(ValueError::Uuids(given.to_owned()));
        }
        if !uuids.iter().any(|known| known == uuid) {
            uuids.push(uuid.to_owned());
        }
    }
    Ok(uuids)
}

/// Splits the value of an option into the name of a file and the keys after it. The name may have commas, and ends where one of `keys`
/// begins.
pub(super) fn split_at_key<'a>(given: &'a [u8], keys: &[&str]) -> (&'a [u8], &'a [u8]) {
    let is_key = |at: &usize| keys.iter().any(|key| given[*at..].starts_with(key.as_bytes()));
    let end = (0..given.len()).find(is_key).unwrap_or(given.len());
    given.split_at(end)
}

/// Finds the value whose name is `text`.
///
/// # Errors
/// If no value has this name.
pub(super) fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, ValueError> {
    all.iter().copied().find(|value| name(*value) == text).ok_or_else(|| ValueError::NotOneOf {
        value: text.to_owned(),
        allowed: all.iter().map(|value| name(*value)).collect(),
    })
}

/// Makes a parser of a value that is one of a few names, which help, completions and errors list.
pub(super) fn one_of<T>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
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
