//! `--tconfig FILE`: gpu_tracker's JSON file of keywords.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use gpu_track_collector::{RamUnit, TimeUnit, Vendor};
use serde_json::Value;
use thiserror::Error;

use super::values::{ValueError, cores, named, seconds, uuids};

/// The keywords of gpu_tracker's `Tracker` that have a counterpart here.
const SUPPORTED: &str =
    "sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, gpu_brand, disable_logs";
/// The others. They are about gpu_tracker's own process, or about a file of samples, which is not written yet.
const WITHOUT_EFFECT: [&str; 6] =
    ["tracking_file", "overwrite", "process_id", "resource_usage_file", "n_join_attempts", "join_timeout"];

/// Why the file cannot be used.
#[derive(Debug, Error)]
pub(super) enum ConfigError {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("is not a JSON object: {{\"sleep_time\": 0.1, ...}}")]
    NotObject,
    #[error("has the key \"{0}\", which is not supported: allowed are {SUPPORTED}")]
    Key(String),
    #[error("has a wrong {0}: {1}")]
    Value(String, ValueError),
}

/// The file's options. A null is the same as a missing keyword.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Config {
    pub(super) sleep_time: Option<Duration>,
    pub(super) ram_unit: Option<RamUnit>,
    pub(super) gpu_ram_unit: Option<RamUnit>,
    pub(super) time_unit: Option<TimeUnit>,
    pub(super) expected_cores: Option<u32>,
    pub(super) gpu_uuids: Option<Vec<String>>,
    pub(super) gpu_brand: Option<Vendor>,
    pub(super) disable_logs: bool,
    /// Keywords that have no effect.
    pub(super) without_effect: Vec<String>,
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Config, ConfigError> {
    let Value::Object(keywords) = serde_json::from_slice(&fs::read(path)?)? else {
        return Err(ConfigError::NotObject);
    };
    let mut config = Config::default();
    for (key, value) in keywords {
        if WITHOUT_EFFECT.contains(&key.as_str()) {
            if !matches!(value, Value::Null | Value::Bool(false)) {
                config.without_effect.push(key);
            }
            continue;
        }
        if !SUPPORTED.split(", ").any(|supported| supported == key) {
            return Err(ConfigError::Key(key));
        }
        set(&mut config, &key, &value).map_err(|error| ConfigError::Value(key, error))?;
    }
    Ok(config)
}

/// Sets the option of a supported keyword.
fn set(config: &mut Config, key: &str, value: &Value) -> Result<(), ValueError> {
    let given = as_on_command_line(value);
    match key {
        _ if value.is_null() => {}
        "sleep_time" => config.sleep_time = Some(seconds(&given)?),
        "ram_unit" => config.ram_unit = Some(named(&given, &RamUnit::ALL, RamUnit::name)?),
        "gpu_ram_unit" => config.gpu_ram_unit = Some(named(&given, &RamUnit::ALL, RamUnit::name)?),
        "time_unit" => config.time_unit = Some(named(&given, &TimeUnit::ALL, TimeUnit::name)?),
        "n_expected_cores" => config.expected_cores = Some(cores(&given)?),
        "gpu_brand" => config.gpu_brand = Some(named(&given, &Vendor::ALL, Vendor::name)?),
        "gpu_uuids" => config.gpu_uuids = Some(uuids(&joined(value))?),
        _ => {
            let not_bool = || ValueError::NotOneOf { value: given, allowed: vec!["true", "false"] };
            config.disable_logs = value.as_bool().ok_or_else(not_bool)?;
        }
    }
    Ok(())
}

fn as_on_command_line(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// gpu_tracker's command takes the UUIDs as one string, its class as a set.
fn joined(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(as_on_command_line).collect::<Vec<_>>().join(","),
        other => as_on_command_line(other),
    }
}
