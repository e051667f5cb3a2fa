//! The command line: what the user asks for, checked before anything is started.

mod agent_spec;
mod alerts;
mod args;
mod bundles;
mod docs;
mod gpu_trace;
mod gpu_tracker;
mod groups;
mod limits;
mod man;
mod output;
mod targets;
mod tconfig;
#[cfg(test)]
mod tests;
mod tracking_files;
mod usage_error;
mod values;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::{Layer, Quantity, RunLimit, bundle, format};

pub(crate) use agent_spec::{AgentSpec, is_plain};
use args::Arguments;
pub(crate) use args::{Options, ReportPlaces};
pub(crate) use bundles::bundles;
use gpu_tracker::Translated;
pub(crate) use groups::{GpuArgs, ReportArgs};
pub(crate) use man::companion_page;
pub(crate) use output::PatternValues;
pub(crate) use targets::{locks, number_files, targets};
pub(crate) use tracking_files::{HeldTrackingFile, make_files_of_nodes, make_tracking_files};
pub(crate) use usage_error::UsageError;
pub(crate) use values::seconds;

use crate::name;

/// What the user asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run a command.
    Run(Box<Options>),
    /// Print this to stdout and exit with 0.
    Print(String),
    /// Print this to stderr and exit with 1, as gpu_tracker does with a command line that has no form of its usage.
    Refuse(String),
    /// Print the GPUs.
    Gpus(Box<Options>),
    /// Write reports of runs that were killed.
    Recover(Box<Options>),
    /// Show the newest report that was kept.
    Last(Box<Options>),
    /// Do what this command line of gpu-track asks for.
    Companion(Vec<OsString>),
}

/// Parses a command line, whose first word is the name of this program. The options in the result have what a file adds
/// to them, and follow from each other.
pub(crate) fn parse(args: Vec<OsString>, patterns: &PatternValues) -> Result<Request, UsageError> {
    // gpu_tracker's command line becomes one of ours.
    let as_gpu_tracker = name::is_gpu_tracker(args.first());
    let translated = as_gpu_tracker.then(|| gpu_tracker::translate(&args)).transpose()?;
    let args = match translated {
        Some(Translated::Line(args)) => args,
        Some(Translated::Request(request)) => return Ok(request),
        None => args,
    };
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        // clap returns --help and --version as errors.
        Err(error) if !error.use_stderr() => return Ok(Request::Print(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    // What needs no other option.
    if arguments.information.short_help {
        return Ok(Request::Print(docs::short_help(Arguments::command())));
    }
    if let Some(shell) = arguments.information.completions {
        return Ok(Request::Print(docs::completions(&Arguments::command(), shell)));
    }
    if arguments.information.man {
        return Ok(Request::Print(man::page(Arguments::command())));
    }
    // What a file adds, and what follows from the options.
    let mut options = Box::new(Options::from(arguments));
    let keywords = match options.preparations.config.clone() {
        Some(path) => tconfig::read(&path, &mut options)
            .map_err(|error| UsageError::of_file("--tconfig", &path, error))?,
        None => Vec::new(),
    };
    options.without_effect = without_effect(&keywords).filter(|_| !options.report.style.quiet);
    let is_quiet = options.report.style.quiet || options.tracking.disable_logs || as_gpu_tracker;
    options.tracking.tells_waiting = options.command.wait_all && !is_quiet;
    options.rank = patterns.number;
    options.joint_job = joint_job(&options, patterns);
    // Before the places are found: in their names, the time is that of the run that is shown.
    if options.information.last {
        return Ok(Request::Last(options));
    }
    // The places of all outputs. No two may be the same.
    let is_numbered = options.joint_job.is_none();
    let of_places = PatternValues { number: patterns.number.filter(|_| is_numbered), ..patterns.clone() };
    options.report.targets = targets(&options.places, &of_places)?;
    options.preparations.tracking_files =
        tracking_files::find_tracking_files(&options.preparations.tracking_files, &options.report, patterns)?;
    tracking_files::find_gpu_log(&mut options.preparations, &options.report, patterns)?;
    tracking_files::find_events(&mut options.preparations, &options.report, patterns)?;
    if options.information.recover {
        return Ok(Request::Recover(options));
    }
    if options.information.gpus {
        check_list_format(options.places.format())?;
        return Ok(Request::Gpus(options));
    }
    if as_gpu_tracker {
        gpu_tracker::apply_to(&mut options);
    }
    let split = if as_gpu_tracker { gpu_tracker::split } else { split };
    check_limits_of_nodes(&options)?;
    prepare_bundles(&mut options)?;
    // An agent of Slurm has no command.
    let is_agent = options.diagnosis.agent.is_some();
    if options.command.attach.is_some() {
        check_attached(&options)?;
        leave_out_layers(&mut options);
        return Ok(Request::Run(options));
    }
    if options.command.ready_fd.is_some() {
        return Err(UsageError::of("--ready-fd", "it is for a process to track: add --attach PID"));
    }
    if is_agent && options.command.words.is_empty() && options.command.execute.is_none() {
        return Ok(Request::Run(options));
    }
    options.command.words =
        command(std::mem::take(&mut options.command.words), options.command.execute.as_deref(), split)?;
    Ok(Request::Run(options))
}

/// Refuses limits of idleness in a run over several nodes: the launcher's node may wait while others work.
///
/// # Errors
/// If there is one.
fn check_limits_of_nodes(options: &Options) -> Result<(), UsageError> {
    let is_of_idleness = |limit: &&RunLimit| matches!(limit.quantity, Quantity::Stall | Quantity::GpuIdle);
    let limit = options.tracking.limits.list.iter().find(is_of_idleness);
    match limit.filter(|_| options.preparations.tracks_nodes()) {
        Some(limit) => Err(UsageError::of(
            "--limit",
            format_args!("\"{}\" is not for several nodes: others may work meanwhile (--nodes)", limit.words),
        )),
        None => Ok(()),
    }
}

/// Makes the directory of `--record`. The collector's working directory may be another one.
///
/// # Errors
/// If it can't be made or written to.
fn prepare_bundles(options: &mut Options) -> Result<(), UsageError> {
    let Some(bundles) = &mut options.tracking.bundles else { return Ok(()) };
    let made = std::path::absolute(&bundles.directory).and_then(|directory| {
        bundles.directory = directory;
        bundle::prepare(&bundles.directory)
    });
    made.map_err(|error| UsageError::of_file("--record", &bundles.directory, error))
}

/// Gives what names the job, if this is a rank of it and all ranks are to make one report. An agent is a task of Slurm, and no rank.
/// A run within a run is a part of what that one reports.
fn joint_job(options: &Options, patterns: &PatternValues) -> Option<OsString> {
    let are_apart = options.places.outputs.iter().any(|given| output::can_differ_between_ranks(given));
    let is_inside = std::env::var_os(ENV_SESSION).is_some_and(|session| !session.is_empty());
    let is_joint = options.preparations.tracks_nodes() && options.diagnosis.agent.is_none();
    patterns.job_of_ranks.clone().filter(|_| is_joint && !are_apart && !is_inside)
}

/// Checks that no option is about a command where a file names a process to attach to. On the command line, clap refuses them.
///
/// # Errors
/// If one is.
fn check_attached(options: &Options) -> Result<(), UsageError> {
    let given = [
        ("--wait-all", options.command.wait_all),
        ("--nodes", options.preparations.nodes == Some(true)),
        ("--cgroup", options.preparations.cgroup),
        ("--limit", !options.tracking.limits.list.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(UsageError::of(option, "it is for a COMMAND, and --tconfig names a process to track"))
        }
        None => Ok(()),
    }
}

/// Leaves out the layers that can't find anything below a process that runs already. Programs report to the run only where another
/// program is told how.
fn leave_out_layers(options: &mut Options) {
    let is_told = options.command.ready_fd.is_some();
    options.discovery.layers.retain(|layer| match layer {
        Layer::Preload | Layer::Wait => is_told,
        Layer::Subreaper => false,
        Layer::Scan | Layer::Connector => true,
    });
}

/// Checks that a list of GPUs has the form that is asked for.
///
/// # Errors
/// If it has not.
fn check_list_format(format: &str) -> Result<(), UsageError> {
    let names: Vec<&str> = format::names_of_lists().collect();
    match names.contains(&format) {
        true => Ok(()),
        false => Err(UsageError::of(
            "--gpus",
            format_args!("it has no form \"{format}\": one of {}", names.join(", ")),
        )),
    }
}

/// Gives a line about the keywords that have no effect. `None`: there are none.
fn without_effect(keywords: &[String]) -> Option<String> {
    (!keywords.is_empty()).then(|| format!("without effect: {}", keywords.join(", ")))
}

/// How a line is split into words, at least one.
type Split = fn(&str) -> Result<Vec<String>, UsageError>;

/// Splits a line into words as a shell does it.
fn split(line: &str) -> Result<Vec<String>, UsageError> {
    let problem = match shell_words::split(line) {
        Ok(words) if words.is_empty() => "contains no command: give COMMAND [ARG]...",
        Ok(words) => return Ok(words),
        Err(_) => "has a quote that is not closed: close it, or escape it with a backslash",
    };
    Err(UsageError::of("--execute", format_args!("\"{line}\" {problem}")))
}

/// Gives the command's words, from either form. clap refuses both together.
fn command(words: Vec<OsString>, execute: Option<&str>, split: Split) -> Result<Vec<OsString>, UsageError> {
    match execute {
        Some(line) => Ok(split(line)?.into_iter().map(Into::into).collect()),
        None if words.is_empty() => {
            Err(UsageError::new("COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]..."))
        }
        None => Ok(words),
    }
}
