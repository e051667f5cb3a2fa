//! Values of options. An error quotes the value and says what is allowed; the caller adds the option's name.

use std::time::Duration;

use clap::ValueEnum;
use gpu_track_collector::Layers;
use thiserror::Error;

/// The sampling interval if the user gives none, as in gpu_tracker.
pub(super) const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
/// gpu_tracker's minimum is 0.1 s; a sample takes only microseconds here.
const MIN_INTERVAL_S: f64 = 0.001;
/// A year: longer than any batch system lets a job run.
const MAX_INTERVAL_S: f64 = 365.0 * 86_400.0;

/// Why a value is not allowed.
#[derive(Debug, Error)]
pub(super) enum ValueError {
    #[error(
        "\"{0}\" is not allowed: a number of seconds from {MIN_INTERVAL_S} to {MAX_INTERVAL_S} (one year)"
    )]
    Seconds(String),
    #[error("\"{0}\" is not allowed: a whole number of cores, at least 1")]
    Cores(String),
    #[error("\"{0}\" is not allowed: UUIDs separated by commas, none of them empty")]
    Uuids(String),
    #[error("\"{value}\" is not allowed: one of {}", .allowed.join(", "))]
    NotOneOf { value: String, allowed: Vec<&'static str> },
}

/// A sampling interval.
pub(super) fn seconds(given: &str) -> Result<Duration, ValueError> {
    match given.parse() {
        Ok(s) if (MIN_INTERVAL_S..=MAX_INTERVAL_S).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(ValueError::Seconds(given.to_owned())),
    }
}

/// A number of cores.
pub(super) fn cores(given: &str) -> Result<u32, ValueError> {
    match given.parse() {
        Ok(cores @ 1..) => Ok(cores),
        _ => Err(ValueError::Cores(given.to_owned())),
    }
}

/// A list of GPU UUIDs without repetitions.
pub(super) fn uuids(given: &str) -> Result<Vec<String>, ValueError> {
    let mut uuids: Vec<String> = Vec::new();
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

/// The value of this name.
pub(super) fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, ValueError> {
    all.iter().copied().find(|value| name(*value) == text).ok_or_else(|| ValueError::NotOneOf {
        value: text.to_owned(),
        allowed: all.iter().map(|value| name(*value)).collect(),
    })
}

/// A discovery layer, by the name that the report uses too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layer {
    Preload,
    Wait,
    Subreaper,
    Scan,
    Connector,
}

impl Layer {
    /// The set of these layers.
    pub(super) fn set(layers: &[Self]) -> Layers {
        let has = |layer| layers.contains(&layer);
        Layers {
            preload: has(Self::Preload),
            wait: has(Self::Wait),
            subreaper: has(Self::Subreaper),
            scan: has(Self::Scan),
            connector: has(Self::Connector),
        }
    }
}
