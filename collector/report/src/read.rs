//! Reads a report back that was written as JSON. It is equal to the one that was written. So each form that is made of it is the same
//! as the run would have written it.
//!
//! Unknown keys are ignored. A missing key is null: an unknown figure. A key that is never null must be there.

mod older;
#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde::de::Error as _;
use thiserror::Error;

use super::json::SCHEMA_VERSION;
use super::quote;
use crate::model::report::Report;

/// A report that was read.
#[derive(Debug)]
pub struct ReadReport {
    /// The report.
    pub report: Report,
    /// What it lacks because an older version wrote it.
    pub note: Option<String>,
}

/// Why a text can't be read as a report. Each message is a line in which "it" is the text.
#[derive(Debug, Error)]
pub enum NotRead {
    /// No JSON, or not all of it.
    #[error("it is no JSON: {0}")]
    NotJson(serde_json::Error),
    /// JSON of something else.
    #[error(
        "it has no schema_version: gpu-track-run did not write it, or wrote it in the form of gpu_tracker"
    )]
    Foreign,
    /// A later version wrote it.
    #[error(
        "its schema_version is {0}, and this gpu-track reads up to {SCHEMA_VERSION}: use a newer gpu-track"
    )]
    Newer(u64),
    /// An older version wrote it, and such a report is never so large. Converting a large one would take much memory.
    #[error("its schema_version is {0}, and it is larger than 4 MiB, which no such report is")]
    OlderTooLarge(u64),
    /// A key that is never null is missing, or a value is none that the key can have.
    #[error("its report is damaged: {}", quote::cut(&quote::escape(&.0.to_string()), MOST_DETAIL))]
    Damaged(serde_json::Error),
}

/// Maximum number of columns of an error's detail, which can quote the text.
const MOST_DETAIL: usize = 300;
/// Maximum number of bytes of a report of an older schema, which has no series.
const MOST_OLDER_BYTES: usize = 4 << 20;

/// The one key that is read first, since it tells how the rest is to be read.
#[derive(Deserialize)]
struct SchemaHead {
    schema_version: Option<u64>,
}

/// Reads the text of a JSON report.
///
/// # Errors
/// If the text is no report, or it is damaged, of a later schema, or larger than any report of its older schema.
pub fn read(json: &str) -> Result<ReadReport, NotRead> {
    let head: SchemaHead = serde_json::from_str(json).map_err(|error| match error.is_data() {
        true => NotRead::Foreign,
        false => NotRead::NotJson(error),
    })?;
    match head.schema_version {
        None | Some(0) => Err(NotRead::Foreign),
        Some(SCHEMA_VERSION) => {
            let report = serde_json::from_str(json).map_err(NotRead::Damaged)?;
            Ok(ReadReport { report, note: None })
        }
        Some(older @ ..SCHEMA_VERSION) if json.len() > MOST_OLDER_BYTES => Err(NotRead::OlderTooLarge(older)),
        Some(older @ ..SCHEMA_VERSION) => {
            let document = serde_json::from_str(json).map_err(NotRead::NotJson)?;
            let (document, note) = older::upgraded(document, older);
            // By way of text, because reading a report from a `Value` would compile a second deserializer of each of its types.
            let converted = document.to_string();
            let report = serde_json::from_str(&converted)
                .map_err(|error| NotRead::Damaged(without_position(&error)))?;
            Ok(ReadReport { report, note: Some(note) })
        }
        Some(newer) => Err(NotRead::Newer(newer)),
    }
}

/// An error without its line and column, which are of a text that the user does not have.
fn without_position(error: &serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    let what = text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column()));
    serde_json::Error::custom(what.unwrap_or(&text))
}
