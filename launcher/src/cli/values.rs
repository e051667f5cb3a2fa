//! Values of options. An error quotes the value and says what is allowed; the caller adds the option's name.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use thiserror::Error;

/// gpu_tracker's minimum is 0.1 s; a sample takes only microseconds here.
const MIN_INTERVAL_S: f64 = 0.001;
/// Shortest time between two lines of an output for people: samples are a tenth of a second apart.
const MIN_DURATION_S: f64 = 0.1;
/// A year: longer than any batch system lets a job run.
const MAX_INTERVAL_S: f64 = 365.0 * 86_400.0;

/// Most limits, and most alerts, in one value of an option: more than anybody means.
pub(super) const MOST_LIMITS: usize = 64;

/// Why a value is not allowed.
#[derive(Debug, Error)]
pub(crate) enum ValueError {
    /// A sampling interval is expected.
    #[error(
        "\"{0}\" is not allowed: a number of seconds from {MIN_INTERVAL_S} to {MAX_INTERVAL_S} (one year)"
    )]
    Seconds(String),
    /// The time between two lines of an output is expected.
    #[error("\"{0}\" is not allowed: a time from 0.1 s to a year, such as 5, 5s, 500ms, 1m or 1h")]
    Duration(String),
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
    /// A time of a limit is expected.
    #[error("\"{0}\" is not allowed: a time up to a century, such as 90, 90s, 10m, 2h, 1d or 01:30:00")]
    Time(String),
    /// A number of processes is expected.
    #[error("\"{0}\" is not allowed: a whole number, at least 1")]
    Count(String),
    #[error("\"{0}\" is not allowed: the name or number of a signal, such as USR1")]
    Signal(String),
    /// The name of a signal or the rest of a time is expected.
    #[error(
        "\"{0}\" is not allowed after a colon: the name of a signal, such as USR1, or minutes and seconds up to 59"
    )]
    AfterColon(String),
    #[error("\"{0}\" is not allowed: UUIDs separated by commas, none of them empty")]
    Uuids(String),
    #[error("\"{value}\" is not allowed: one of {}", .allowed.join(", "))]
    NotOneOf { value: String, allowed: Vec<&'static str> },
}

/// Parses a sampling interval, seconds.
///
/// # Errors
/// If `given` is no number, or one below [`MIN_INTERVAL_S`] or above [`MAX_INTERVAL_S`].
pub(crate) fn seconds(given: &str) -> Result<Duration, ValueError> {
    match given.parse() {
        Ok(s) if (MIN_INTERVAL_S..=MAX_INTERVAL_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(ValueError::Seconds(given.to_owned())),
    }
}

/// Parses the time between two lines of an output: a number of seconds, or one with a unit.
///
/// # Errors
/// If `given` is no such time, or the time is too short or too long.
pub(super) fn duration(given: &str) -> Result<Duration, ValueError> {
    // ms stands first, because it ends with s, too.
    const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = UNITS.into_iter().find_map(|(unit, s)| Some((given.strip_suffix(unit)?, s)));
    let (number, unit_s) = unit.unwrap_or((given, 1.0));
    let seconds = number.parse().map(|number: f64| number * unit_s);
    match seconds {
        Ok(s) if (MIN_DURATION_S..=MAX_INTERVAL_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(ValueError::Duration(given.to_owned())),
    }
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

/// Splits the value of an option into the name of a file and the keys behind it. The name may have commas, and ends where one of `keys`
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

    #[test]
    fn duration_is_in_seconds_or_has_a_unit() {
        for (given, ms) in [
            ("5", 5000),
            ("5s", 5000),
            ("0.5", 500),
            ("500ms", 500),
            ("1m", 60_000),
            ("1.5h", 5_400_000),
            ("0.1", 100),
        ] {
            assert_eq!(duration(given).unwrap().as_millis(), ms, "{given}");
        }
        for given in ["", "s", "5 s", "5d", "-1", "0", "99ms", "inf", "NaN", "9000h"] {
            let line = duration(given).unwrap_err().to_string();
            assert!(line.contains(&format!("\"{given}\"")) && line.contains("500ms"), "{line}");
        }
    }
}
