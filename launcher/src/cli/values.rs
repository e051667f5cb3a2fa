//! Values of options and what is allowed. An error quotes the value and says so; the caller puts the option before it.

use std::time::Duration;

use gpu_track_collector::model::config::Layers;

/// A year: longer than any batch system lets a job run.
const LONGEST_S: f64 = 365.0 * 86_400.0;

/// gpu_tracker's interval is 0.1 s at least; a sample costs a few microseconds here.
const SHORTEST_S: f64 = 0.001;

/// A sampling interval.
pub fn seconds(given: &str) -> Result<Duration, String> {
    match given.parse::<f64>() {
        Ok(s) if s < SHORTEST_S => {
            Err(format!("{given} is below the minimum: at least {SHORTEST_S} seconds"))
        }
        Ok(s) if s > LONGEST_S => {
            Err(format!("{given} is above the maximum: at most {LONGEST_S} seconds, which is a year"))
        }
        Ok(s) if s.is_finite() => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!("\"{given}\" is not a number: at least {SHORTEST_S} seconds")),
    }
}

/// A number of cores.
pub fn cores(given: &str) -> Result<u32, String> {
    match given.parse() {
        Ok(0) => Err("0 is below the minimum: at least 1 core".into()),
        Ok(cores) => Ok(cores),
        Err(_) => Err(format!("\"{given}\" is not a number of cores: a whole number, at least 1")),
    }
}

/// A list of GPU UUIDs, each once.
pub fn uuids(given: &str) -> Result<Vec<String>, String> {
    let mut uuids: Vec<String> = Vec::new();
    for uuid in given.split(',').map(str::trim) {
        if uuid.is_empty() {
            return Err(format!("\"{given}\" has an empty UUID in it: UUIDs with commas between them"));
        }
        if !uuids.iter().any(|known| known == uuid) {
            uuids.push(uuid.to_owned());
        }
    }
    Ok(uuids)
}

/// A discovery layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Preload,
    Wait,
    Subreaper,
    Scan,
    Connector,
}

impl Layer {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Preload, Self::Wait, Self::Subreaper, Self::Scan, Self::Connector];

    /// What the user and the report call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preload => "preload",
            Self::Wait => "wait",
            Self::Subreaper => "subreaper",
            Self::Scan => "scan",
            Self::Connector => "connector",
        }
    }

    /// The set that holds these.
    pub fn set(layers: &[Self]) -> Layers {
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
