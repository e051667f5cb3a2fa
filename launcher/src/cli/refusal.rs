//! What is said when the command line can't be used: one line that names the option, the value and what is allowed.

use std::fmt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use gpu_track_collector::report::quote;

/// A command line that can't be used. Its `Display` is the line for stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// The exit status that goes with it.
    pub const STATUS: u8 = 2;

    /// `message` names the option first.
    pub fn new(message: impl fmt::Display) -> Self {
        // What the user gave may hold anything; the line stays one line.
        Self(quote::escape(&format!("gpu-track-run: {message}")))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl From<clap::Error> for Refusal {
    /// clap says the same over several lines.
    fn from(error: clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        // "--ru <UNIT>"
        let option = text(ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
        let value = text(ContextKind::InvalidValue);
        let allowed = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(names)) if !names.is_empty() => {
                format!(": one of {}", names.join(", "))
            }
            _ => String::new(),
        };
        Self::new(match error.kind() {
            ErrorKind::InvalidValue if value.is_empty() => format!("{option}: the value is missing{allowed}"),
            ErrorKind::InvalidValue => format!("{option}: \"{value}\" is not allowed{allowed}"),
            ErrorKind::ValueValidation => {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                format!("{option}: {cause}")
            }
            ErrorKind::TooManyValues => format!("{option}: \"{value}\" is not allowed: it takes no value"),
            ErrorKind::UnknownArgument => match text(ContextKind::SuggestedArg) {
                "" => format!("unknown option {option}: --help lists those that there are"),
                similar => format!("unknown option {option}: did you mean {similar}?"),
            },
            _ => {
                let said = error.to_string();
                let first = said.lines().next().unwrap_or_default();
                first.trim_start_matches("error: ").to_owned()
            }
        })
    }
}
