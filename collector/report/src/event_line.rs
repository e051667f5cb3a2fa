//! The lines of the file of `--events`: each is a JSON object with one key, which says what the line is.
//!
//! docs/FILES.md describes them for users. Only the last line of a file can be torn: it has no line break then.

use serde::{Deserialize, Serialize};

use super::quote::json_line;
use crate::model::alert::RunEvent;
use crate::model::report::Host;

/// Version of the format of these lines. It goes up when a key changes its name or meaning, or is removed.
pub const FORM_VERSION: u32 = 1;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventLine {
    /// The first line of a file: what does not change during the run.
    Run(Box<Header>),
    /// Something happened.
    Event(Box<RunEvent>),
}

/// What does not change during a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORM_VERSION`] of the program that wrote the file.
    pub form_version: u32,
    /// Version of that program.
    pub gpu_track_version: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// When the launcher began, RFC 3339.
    pub begun_at: String,
    /// The same moment, CLOCK_MONOTONIC nanoseconds.
    pub monotonic_ns: u64,
    /// The machine.
    pub host: Host,
    /// What events are concluded from.
    pub sources: Sources,
}

/// What events are concluded from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sources {
    /// How processes are found.
    pub layers: Vec<String>,
    /// Why there is no process connector; `None`: there is one.
    pub connector_absent: Option<String>,
    /// The alerts, in the user's words.
    pub alerts: Vec<String>,
    /// The limits, in the user's words.
    pub limits: Vec<String>,
}

impl EventLine {
    /// The line as text, with its line break. Control characters in strings are escaped.
    pub fn text(&self) -> String {
        json_line(self)
    }

    /// Reads a line. `None`: it is torn, or of a kind that a later version writes.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
