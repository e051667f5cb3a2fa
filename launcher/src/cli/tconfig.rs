//! `--tconfig FILE`: gpu_tracker's JSON file of keywords.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gpu_track_collector::model::style::{RamUnit, TimeUnit};
use serde_json::{Map, Value};

use super::values::{cores, seconds, uuids};

/// Keywords of gpu_tracker's `Tracker` that have no counterpart here.
const NOT_SUPPORTED: [&str; 7] = [
    "process_id",
    "resource_usage_file",
    "n_join_attempts",
    "join_timeout",
    "gpu_brand",
    "tracking_file",
    "overwrite",
];

const SUPPORTED: &str =
    "sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, disable_logs";

/// What the file says; null is as good as not there.
#[derive(Debug, Default, PartialEq)]
pub struct Config {
    pub sleep_time: Option<Duration>,
    pub ram_unit: Option<RamUnit>,
    pub gpu_ram_unit: Option<RamUnit>,
    pub time_unit: Option<TimeUnit>,
    pub expected_cores: Option<u32>,
    pub gpu_uuids: Option<Vec<String>>,
    pub disable_logs: bool,
}

/// Reads the file. An error is what stands after `--tconfig: `.
pub fn read(path: &Path) -> Result<Config, String> {
    let name = path.display();
    let bytes = fs::read(path).map_err(|error| format!("\"{name}\" can't be read: {error}"))?;
    let keywords: Map<String, Value> = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(keywords)) => keywords,
        Ok(_) => return Err(format!("\"{name}\" is not a JSON object: {{\"sleep_time\": 0.1, ...}}")),
        Err(error) => return Err(format!("\"{name}\" is not JSON: {error}")),
    };
    let mut config = Config::default();
    for (key, value) in &keywords {
        set(&mut config, key, value).map_err(|error| format!("\"{name}\": {error}"))?;
    }
    Ok(config)
}

fn set(config: &mut Config, key: &str, value: &Value) -> Result<(), String> {
    if NOT_SUPPORTED.contains(&key) {
        return Err(format!("{key} of gpu_tracker is not supported: allowed are {SUPPORTED}"));
    }
    let of_key = |error: String| format!("{key}: {error}");
    match (key, value) {
        (
            "sleep_time" | "ram_unit" | "gpu_ram_unit" | "time_unit" | "n_expected_cores" | "gpu_uuids"
            | "disable_logs",
            Value::Null,
        ) => {}
        ("sleep_time", value) => config.sleep_time = Some(seconds(&plain(value)).map_err(of_key)?),
        ("ram_unit", value) => {
            config.ram_unit = Some(unit(value, &RamUnit::ALL, RamUnit::name).map_err(of_key)?)
        }
        ("gpu_ram_unit", value) => {
            config.gpu_ram_unit = Some(unit(value, &RamUnit::ALL, RamUnit::name).map_err(of_key)?);
        }
        ("time_unit", value) => {
            config.time_unit = Some(unit(value, &TimeUnit::ALL, TimeUnit::name).map_err(of_key)?);
        }
        ("n_expected_cores", value) => config.expected_cores = Some(cores(&plain(value)).map_err(of_key)?),
        ("gpu_uuids", value) => config.gpu_uuids = Some(uuids(&listed(value)).map_err(of_key)?),
        ("disable_logs", Value::Bool(value)) => config.disable_logs = *value,
        ("disable_logs", value) => return Err(format!("{key}: {value} is not allowed: one of true, false")),
        _ => return Err(format!("unknown key \"{key}\": allowed are {SUPPORTED}")),
    }
    Ok(())
}

/// A value as it would be written on the command line.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// gpu_tracker's command wants the UUIDs in one string, its class in a set.
fn listed(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => plain(other),
    }
}

fn unit<T: Copy>(value: &Value, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|unit| value.as_str() == Some(name(*unit))).ok_or_else(|| {
        let allowed: Vec<_> = all.iter().map(|unit| name(*unit)).collect();
        format!("\"{}\" is not allowed: one of {}", plain(value), allowed.join(", "))
    })
}
