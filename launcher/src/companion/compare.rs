//! `gpu-track compare`: what several runs used. Each way of doing the work is compared with the first one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use gpu_track_collector::report::compare::{self, Limit, Run};

use super::report_files;
use crate::cli::UsageError;
use crate::console::{self, message};

/// The exit status if a way uses more than `--fail-above` allows.
const ABOVE: u8 = 3;

/// The arguments of `gpu-track compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// Reports in JSON. Those of one NAME are runs of one way to do the work; a report without NAME is a way by itself
    #[arg(value_name = "[NAME=]FILE", required = true, num_args = 2.., value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// Format
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json", "markdown"])]
    format: String,

    /// Exit with 3 if a way uses more than these percent above the first one: wall, cpu, cores, ram, gpu_ram,
    /// gpu_utilization, gpu_energy, read, written, waiting_for_core, storage, network, locks. What is not known in all
    /// runs counts as above
    #[arg(long, value_name = "METRIC=N%,...", value_delimiter = ',', value_parser = limit)]
    fail_above: Vec<Limit>,
}

/// Parses a limit of `--fail-above`, such as `ram=5%`.
///
/// # Errors
/// What is wrong with `given`, as a line for the user.
fn limit(given: &str) -> Result<Limit, String> {
    let (name, percent) = given.split_once('=').unwrap_or((given, ""));
    let Some(metric) = compare::names().find(|metric| *metric == name) else {
        let names: Vec<_> = compare::names().collect();
        return Err(format!("\"{name}\" is not compared: one of {}", names.join(", ")));
    };
    match percent.strip_suffix('%').unwrap_or(percent).parse() {
        Ok(percent) if (0.0..=1e9).contains(&percent) => Ok(Limit { metric, percent }),
        _ => Err(format!("\"{given}\" has no percentage: write it as {name}=5%")),
    }
}

/// Writes the comparison to stdout, and the exceeded limits to stderr. The status is 3 if a limit is exceeded.
///
/// # Errors
/// If a report can't be read, or `--fail-above` has nothing to compare.
pub(super) fn serve(arguments: &CompareArguments) -> Result<ExitCode, UsageError> {
    let runs: Vec<Run> = arguments.files.iter().map(|given| run(given)).collect::<Result<_, _>>()?;
    let comparison = compare::compare(&runs);
    if let ([_], false) = (&comparison.ways[..], arguments.fail_above.is_empty()) {
        return Err(UsageError::new(
            "--fail-above compares ways, and all reports have one NAME: give each way its own",
        ));
    }
    let text = match arguments.format.as_str() {
        "json" => compare::json(&comparison),
        "markdown" => compare::markdown(&comparison),
        _ => compare::text(&comparison),
    };
    let printed = console::print(&text);
    let exceeded = compare::exceeded(&comparison, &arguments.fail_above);
    exceeded.iter().for_each(message);
    Ok(if exceeded.is_empty() { printed } else { ExitCode::from(ABOVE) })
}

/// Reads the report of `FILE` or `NAME=FILE`. The whole text is a file's name if there is such a file, or if the NAME has a
/// slash, as in `a/b=c.json`.
///
/// # Errors
/// If the file can't be read, or is no report.
fn run(given: &Path) -> Result<Run, UsageError> {
    let (name, path) = match given.to_str().and_then(|text| text.split_once('=')) {
        Some((name, file)) if !name.is_empty() && !name.contains('/') && !given.exists() => {
            (Some(name.to_owned()), Path::new(file))
        }
        _ => (None, given),
    };
    let read = report_files::parsed(&report_files::text(path)?, path)?;
    if let Some(note) = &read.note {
        message(format_args!("{}: {note}", path.display()));
    }
    Ok(Run { name, file: path.display().to_string(), report: read.report })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_what_is_compared() {
        assert_eq!(limit("ram=5%"), Ok(Limit { metric: "ram", percent: 5.0 }));
        assert_eq!(limit("cpu=0.5"), Ok(Limit { metric: "cpu", percent: 0.5 }));
        for (given, problem) in [
            ("rma=5%", "\"rma\" is not compared: one of wall, cpu, cores, ram, "),
            ("ram", "\"ram\" has no percentage: write it as ram=5%"),
            ("ram=-1%", "\"ram=-1%\" has no percentage"),
            ("ram=nan", "\"ram=nan\" has no percentage"),
        ] {
            let error = limit(given).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
