//! A command line that cannot be used: one line that names the option, the value, and what is allowed.

use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use gpu_track_collector::report::{format, quote};
use thiserror::Error;

/// A command line that cannot be used. Its `Display` is the message for the user, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

impl UsageError {
    /// The exit status that goes with a usage error. gpu_tracker has the same one for all its errors.
    pub(crate) const fn status(is_gpu_tracker: bool) -> u8 {
        if is_gpu_tracker { 1 } else { 2 }
    }

    /// Makes an error of a message, whose line breaks are escaped.
    pub(crate) fn new(message: impl Display) -> Self {
        // The user's values can contain line breaks.
        Self(quote::escape(&message.to_string()))
    }

    /// Makes the error about the value of `option`.
    pub(crate) fn of_option(option: &str, problem: impl Display) -> Self {
        Self::new(format_args!("{option}: {problem}"))
    }

    /// Makes the error about the file that `option` names.
    pub(crate) fn of_file(option: &str, path: &Path, problem: impl Display) -> Self {
        Self::of_option(option, format_args!("\"{}\" {problem}", path.display()))
    }

    /// Makes the error about a file that an argument names.
    pub(crate) fn of_path(path: &Path, problem: impl Display) -> Self {
        Self::new(format_args!("\"{}\" {problem}", path.display()))
    }
}

impl From<clap::Error> for UsageError {
    /// Makes a usage error, which has one line, of an error of clap, whose message has several.
    fn from(error: clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        // The argument is named as in "--ru <UNIT>".
        let option = text(ContextKind::InvalidArg).split(' ').next().unwrap_or_default();
        let value = text(ContextKind::InvalidValue);
        let allowed = match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(names)) if !names.is_empty() => {
                format!(": one of {}", names.join(", "))
            }
            _ => String::new(),
        };
        let problem = match error.kind() {
            ErrorKind::InvalidValue if value.is_empty() => format!("the value is missing{allowed}"),
            ErrorKind::InvalidValue if option == "--format" && value == "pickle" => {
                "\"pickle\" holds classes of Python, so only Python can write it: use -f json, or python3 -m gpu_track".to_owned()
            }
            ErrorKind::InvalidValue => format!("\"{value}\" is not allowed{allowed}"),
            ErrorKind::ValueValidation => error.source().map(ToString::to_string).unwrap_or_default(),
            ErrorKind::TooManyValues => format!("\"{value}\" is not allowed: it takes no value"),
            ErrorKind::InvalidSubcommand => {
                let word = text(ContextKind::InvalidSubcommand);
                let similar = match error.get(ContextKind::SuggestedSubcommand) {
                    Some(ContextValue::Strings(names)) => names.last().map(String::as_str),
                    Some(ContextValue::String(name)) => Some(name.as_str()),
                    _ => None,
                };
                let cure = similar.map_or("--help lists all".to_owned(), |name| format!("did you mean {name}?"));
                return Self::new(format_args!("\"{word}\" is no subcommand: {cure}"));
            }
            ErrorKind::UnknownArgument => match text(ContextKind::SuggestedArg) {
                _ if option.strip_prefix("--").is_some_and(|name| format::names().any(|known| known == name)) => {
                    format!("unknown option: did you mean -f {}?", &option[2..])
                }
                // Options for developers are in no help.
                "" | "--journal" | "--sampling" => "unknown option: --help lists all options".to_owned(),
                similar => format!("unknown option: did you mean {similar}?"),
            },
            ErrorKind::MissingRequiredArgument => {
                let missing = match error.get(ContextKind::InvalidArg) {
                    Some(ContextValue::Strings(missing)) => missing.join(", "),
                    _ => String::new(),
                };
                return Self::new(format_args!("{missing} is missing: --help says more"));
            }
            _ => {
                let message = error.to_string();
                let line = message.lines().next().unwrap_or_default();
                return Self::new(line.trim_start_matches("error: "));
            }
        };
        Self::of_option(option, problem)
    }
}
