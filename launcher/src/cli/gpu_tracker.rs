//! The command line of gpu_tracker 5, a Python program, for scripts that call `gpu-tracker`: a link to this program, or a copy, of
//! that name.
//!
//! [`docopt`] reads the command line. It is translated to one of gpu-track-run or gpu-track, so values are checked in one place.

mod docopt;
mod help;
pub(crate) mod pickles;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use gpu_track_collector::model::config::ReportTarget;
use gpu_track_collector::model::style::{Output, RamUnit, Style, TimeUnit};
use gpu_track_collector::report::format::{self, GPU_TRACKER};
use gpu_track_collector::report::quote;

use super::Request;
use super::args::Options;
use super::output::without_patterns;
use super::usage_error::UsageError;
use crate::process::exit::Manner;
use docopt::{Asked, Refused};

/// The version whose command line this is. `-v` prints it, because scripts compare it.
const VERSION: &str = "5.0.1";
/// Time between two samples if the user gives none (`Tracker.__init__`).
const INTERVAL: Duration = Duration::from_secs(1);

/// What a command line of gpu_tracker becomes.
pub(super) enum Translated {
    /// A command line of gpu-track-run, which is not parsed yet.
    Line(Vec<OsString>),
    /// A request other than to run a command.
    Request(Request),
}

/// Translates the command line, whose first word is the program's name.
///
/// # Errors
/// If it names a format that gpu_tracker does not have.
pub(super) fn translate(args: &[OsString]) -> Result<Translated, UsageError> {
    let [name, args @ ..] = args else { return Ok(Translated::Line(Vec::new())) };
    let options = match docopt::read(args) {
        Ok(Asked::Track(options)) => options,
        Ok(Asked::Help) => return Ok(Translated::Request(Request::Print(help_text()))),
        Ok(Asked::Version) => return Ok(Translated::Request(Request::Print(format!("{VERSION}\n")))),
        Ok(Asked::SubTrack(command, options)) => {
            let line = sub_track(command, options);
            if line.iter().any(|word| word == "--format=pickle") {
                pickles::hand_to_python(&line);
            }
            return Ok(Translated::Request(Request::Companion(line)));
        }
        Err(Refused(problem)) => {
            let problem = if problem.is_empty() { problem } else { quote::escape(&problem) + "\n" };
            return Ok(Translated::Request(Request::Refuse(format!("{problem}{}", help::USAGE))));
        }
    };
    let format = options.iter().find(|(option, _)| *option == "--format");
    if let Some(name) = format.and_then(|(_, value)| value.as_ref()?.to_str()) {
        check_format(name)?;
    }
    // Without a format, our parser would go by the file's name, and refuse some names. gpu_tracker does not look at it.
    let default = format.is_none().then(|| OsString::from("--format=text"));
    let ours = options.into_iter().map(|(option, value)| match value {
        Some(value) => [OsStr::new(option), OsStr::new("="), &literal(option, value)].into_iter().collect(),
        None => option.into(),
    });
    Ok(Translated::Line([name.clone()].into_iter().chain(default).chain(ours).collect()))
}

/// The text of `--help`, in the form of gpu_tracker's.
fn help_text() -> String {
    let program = concat!("gpu-track-run ", env!("CARGO_PKG_VERSION"));
    let head = format!("Runs a command and reports what it used, as gpu_tracker does. This is {program}.");
    format!("{head}\n\n{}\n{}", help::USAGE, help::OPTIONS)
}

/// Refuses formats of gpu-track-run that gpu_tracker does not have, since our own parser would take them. That parser refuses a name
/// that is no format at all.
fn check_format(name: &str) -> Result<(), UsageError> {
    let is_ours = format::names().any(|ours| ours == name);
    if is_ours && !format::is_of_gpu_tracker(name) {
        let problem = format_args!("\"{name}\" is no format of gpu_tracker: text or json");
        return Err(UsageError::of_option("--format", problem));
    }
    Ok(())
}

/// The command line of gpu-track for a command of gpu_tracker's `sub-track`.
fn sub_track(command: &str, options: docopt::Options) -> Vec<OsString> {
    let mut line: Vec<OsString> = ["gpu-track", "sub-track", command].map(Into::into).into();
    // Without a format, our parser would go by the file's name. gpu_tracker does not look at it.
    if command != "combine" && !options.iter().any(|(option, _)| *option == "--format") {
        line.push("--format=text".into());
    }
    for (option, value) in options {
        let value = value.unwrap_or_default();
        // A file whose name begins with a hyphen would be taken for stdout or an option.
        let is_mistakable = matches!(option, "--output" | "-p") && value.as_bytes().starts_with(b"-");
        let value = if is_mistakable { [OsStr::new("./"), &value].into_iter().collect() } else { value };
        match option.starts_with("--") {
            true => line.push([OsStr::new(option), OsStr::new("="), &value].into_iter().collect()),
            false => line.extend([option.into(), value]),
        }
    }
    line
}

/// Escapes the value of an option that names a file; others stay. gpu_tracker takes names of files as they are: `%` begins no
/// pattern, and `-` is a file.
fn literal(option: &str, value: OsString) -> OsString {
    match (option, value.as_bytes()) {
        ("--output" | "--tf", b"-") => "./-".into(),
        ("--output" | "--tf", _) => without_patterns(&value),
        _ => value,
    }
}

/// Splits `-e` as Python's `str.split` does: quotes and backslashes are part of the words.
///
/// # Errors
/// If there is no word.
pub(super) fn split(line: &str) -> Result<Vec<String>, UsageError> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Err(UsageError::new("Empty command provided.")) } else { Ok(words) }
}

/// Sets gpu_tracker's defaults: the whole report on stdout, its format, units and interval. The exit status is gpu_tracker's, too.
pub(super) fn apply_to(options: &mut Options) {
    if options.places.outputs.is_empty() {
        options.report.targets = vec![ReportTarget { output: Output::Stdout, ..ReportTarget::default() }];
    }
    for target in &mut options.report.targets {
        target.format = format!("{GPU_TRACKER}{}", options.places.format());
    }
    options.tracking.sampling_interval.get_or_insert(INTERVAL);
    options.exit_manner = Manner::GpuTracker;
    let given = options.report.style;
    options.report.style = Style {
        ram_unit: given.ram_unit.or(Some(RamUnit::Gigabytes)),
        gpu_ram_unit: given.gpu_ram_unit.or(Some(RamUnit::Gigabytes)),
        time_unit: given.time_unit.or(Some(TimeUnit::Hours)),
        full: true,
        ..given
    };
}
