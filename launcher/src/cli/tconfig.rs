//! `--tconfig FILE`: gpu_tracker's JSON file of keywords.

use std::path::Path;

use gpu_track_collector::given_file::{self, MOST_OF_OPTIONS, NotReadable};
use gpu_track_collector::model::gpu::Vendor;
use gpu_track_collector::model::style::{RamUnit, TimeUnit};
use serde_json::Value;
use thiserror::Error;

use super::args::{CommandOptions, Options};
use super::values::{ValueError, cores, interval, named, pid, uuids};

/// The keywords of gpu_tracker's `Tracker` that have a counterpart here.
const SUPPORTED: &str = "sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, gpu_brand, \
                         disable_logs, tracking_file, overwrite, process_id";
/// The keyword for the process to track. It has no effect if the command line has a command.
const PROCESS: &str = "process_id";
/// The keywords without a counterpart, which are about gpu_tracker's own process.
const WITHOUT_EFFECT: [&str; 3] = ["resource_usage_file", "n_join_attempts", "join_timeout"];

/// Why the file cannot be used.
#[derive(Debug, Error)]
pub(super) enum ConfigError {
    #[error(transparent)]
    Read(#[from] NotReadable),
    #[error("is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("is not a JSON object: {{\"sleep_time\": 0.1, ...}}")]
    NotObject,
    #[error("has the key \"{0}\", which is not supported: allowed are {SUPPORTED}")]
    Key(String),
    #[error("has a wrong {0}: {1}")]
    Value(String, ValueError),
}

/// Reads the file into the options that the command line does not give. A null is the same as a missing keyword. Returns the
/// keywords that ask for something and have no effect.
pub(super) fn read(path: &Path, options: &mut Options) -> Result<Vec<String>, ConfigError> {
    let Value::Object(keywords) = serde_json::from_slice(&given_file::read(path, MOST_OF_OPTIONS)?)? else {
        return Err(ConfigError::NotObject);
    };
    let CommandOptions { words, execute, .. } = &options.command;
    let has_command = !words.is_empty() || execute.is_some();
    let mut without_effect = Vec::new();
    for (key, value) in keywords {
        if WITHOUT_EFFECT.contains(&key.as_str()) || (has_command && key == PROCESS) {
            if !matches!(value, Value::Null | Value::Bool(false)) {
                without_effect.push(key);
            }
            continue;
        }
        if !SUPPORTED.split(", ").any(|supported| supported == key) {
            return Err(ConfigError::Key(key));
        }
        set(options, &key, &value).map_err(|error| ConfigError::Value(key, error))?;
    }
    Ok(without_effect)
}

/// Sets the option of a supported keyword, unless the command line gives the option.
///
/// # Errors
/// If the value is not allowed.
fn set(options: &mut Options, key: &str, value: &Value) -> Result<(), ValueError> {
    let given = as_on_command_line(value);
    let Options { command, report, tracking, preparations, gpu, .. } = options;
    let style = &mut report.style;
    match key {
        _ if value.is_null() => {}
        PROCESS => set_if_missing(&mut command.attach, pid(&given)?),
        "sleep_time" => set_if_missing(&mut tracking.sampling_interval, interval(&given)?),
        "ram_unit" => set_if_missing(&mut style.ram_unit, named(&given, &RamUnit::ALL, RamUnit::name)?),
        "gpu_ram_unit" => {
            set_if_missing(&mut style.gpu_ram_unit, named(&given, &RamUnit::ALL, RamUnit::name)?)
        }
        "time_unit" => set_if_missing(&mut style.time_unit, named(&given, &TimeUnit::ALL, TimeUnit::name)?),
        "n_expected_cores" => set_if_missing(&mut tracking.expected_cores, cores(&given)?),
        "gpu_brand" => set_if_missing(&mut gpu.vendor, named(&given, &Vendor::ALL, Vendor::name)?),
        "gpu_uuids" => set_if_missing(&mut gpu.uuids, uuids(&joined(value))?),
        "tracking_file" if preparations.tracking_files.is_empty() => {
            preparations.tracking_files.push(given.into());
        }
        "tracking_file" => {}
        // overwrite or disable_logs. A false does not switch off what the command line has switched on.
        _ => {
            let is_on = value.as_bool().ok_or_else(|| ValueError::none_of(&given, ["true", "false"]))?;
            let option =
                if key == "overwrite" { &mut preparations.overwrite } else { &mut tracking.disable_logs };
            *option |= is_on;
        }
    }
    Ok(())
}

/// Sets an option, unless the command line gives it.
fn set_if_missing<T>(option: &mut Option<T>, value: T) {
    option.get_or_insert(value);
}

/// A value as it would be on the command line.
fn as_on_command_line(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Joins a list by commas; another value stays. gpu_tracker's command takes the UUIDs as one string, its class as a set.
fn joined(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(as_on_command_line).collect::<Vec<_>>().join(","),
        other => as_on_command_line(other),
    }
}
