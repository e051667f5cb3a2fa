//! The command line: what the user asks for, checked before anything is started.

mod agent_spec;
mod args;
mod bundles;
mod docs;
pub(crate) mod gpu_query;
mod gpu_trace;
mod gpu_tracker;
mod groups;
mod man;
mod output;
mod rules;
mod targets;
mod task_variables;
mod tconfig;
#[cfg(test)]
mod tests;
mod tracking_files;
mod usage_error;
mod values;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::bundle;
use gpu_track_collector::model::config::Layer;
use gpu_track_collector::model::rule::{Quantity, Rule};
use gpu_track_collector::report::format;

pub(crate) use agent_spec::{AgentSpec, is_host, is_plain};
use args::Arguments;
pub(crate) use args::{DiagnosisOptions, Options, ReportPlaces};
pub(crate) use bundles::bundles;
use gpu_tracker::Translated;
pub(crate) use gpu_tracker::pickles;
use groups::NodesWhen;
pub(crate) use groups::{GpuArgs, ReportArgs};
pub(crate) use man::companion_page;
pub(crate) use output::{PatternValues, compact, without_patterns};
pub(crate) use targets::{locks, number_files, targets};
pub(crate) use task_variables::inherited_marks;
pub(crate) use tracking_files::{HeldTrackingFile, Naming, make_files_of_nodes, make_tracking_files};
use tracking_files::{find_events, find_gpu_log, find_tracking_files};
pub(crate) use usage_error::UsageError;
pub(crate) use values::{Time, interval, named, one_of};

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

/// The description of gpu-track-run's command line.
#[cfg(test)]
pub(crate) fn description() -> clap::Command {
    Arguments::command()
}

/// Parses a command line, whose first word is the name of this program. The options of the request are complete: they include those of
/// `--tconfig`, and what follows from others.
///
/// # Errors
/// If the command line can't be used.
pub(crate) fn parse(args: Vec<OsString>, patterns: &PatternValues) -> Result<Request, UsageError> {
    // A command line of gpu_tracker becomes one of gpu-track-run.
    let as_gpu_tracker = name::is_gpu_tracker(args.first());
    let translated = as_gpu_tracker.then(|| gpu_tracker::translate(&args)).transpose()?;
    let args = match translated {
        Some(Translated::Line(args)) => args,
        Some(Translated::Request(request)) => return Ok(request),
        None => args,
    };
    let is_verbose = args.get(1).is_some_and(|word| word == "-v") && args.len() > 2;
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        // A user who writes `-v COMMAND` wants the command to be run, and takes `-v` for the `--verbose` of other programs.
        Err(error) if error.kind() == ErrorKind::DisplayVersion && is_verbose => {
            let problem = "prints the version and runs no COMMAND: leave it out. --full writes every section of the report";
            return Err(UsageError::of_option("-v", problem));
        }
        // clap returns --help and --version as errors.
        Err(error) if !error.use_stderr() => return Ok(Request::Print(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    if let Some(text) = documentation(&arguments) {
        return Ok(Request::Print(text));
    }
    let mut options = Box::new(Options::from(arguments));
    let keywords = match options.preparations.config.clone() {
        Some(path) => tconfig::read(&path, &mut options)
            .map_err(|error| UsageError::of_file("--tconfig", &path, error))?,
        None => Vec::new(),
    };
    options.without_effect = without_effect(&keywords).filter(|_| !options.report.style.quiet);
    let is_quiet = options.report.style.quiet || options.tracking.disable_logs || as_gpu_tracker;
    options.tracking.tells_waiting = options.command.wait_all && !is_quiet;
    options.rank = patterns.rank_number;
    check_limits_of_nodes(&mut options)?;
    options.joint_job = joint_job(&options, patterns);
    // Returned before places are found: the time in their names is that of the run that is shown.
    if options.information.last {
        return Ok(Request::Last(options));
    }
    find_places(&mut options, patterns)?;
    if options.information.recover {
        return Ok(Request::Recover(options));
    }
    if options.information.gpus {
        check_list_format(options.places.format())?;
        return Ok(Request::Gpus(options));
    }
    prepare_run(&mut options, as_gpu_tracker)?;
    Ok(Request::Run(options))
}

/// The help, the completion script or the man page, if the command line asks for one.
fn documentation(arguments: &Arguments) -> Option<String> {
    let information = &arguments.information;
    if information.short_help {
        return Some(docs::short_help(Arguments::command()));
    }
    if let Some(shell) = information.completions {
        return Some(docs::completions(&Arguments::command(), shell));
    }
    information.man.then(|| man::page(Arguments::command()))
}

/// Finds the places of all outputs, and writes them into the options.
///
/// # Errors
/// If an output can't be written to its place, or two have the same one.
fn find_places(options: &mut Options, patterns: &PatternValues) -> Result<(), UsageError> {
    // Ranks that make one report name the same file. Else each name gets the rank's number.
    let rank_number = patterns.rank_number.filter(|_| options.joint_job.is_none());
    let of_report = PatternValues { rank_number, ..patterns.clone() };
    options.report.targets = targets(&options.places, &of_report)?;
    let Options { preparations, report, .. } = options;
    let naming = Naming { report, patterns };
    preparations.tracking_files = find_tracking_files(&preparations.tracking_files, naming)?;
    find_gpu_log(preparations, naming)?;
    find_events(preparations, naming)
}

/// Checks and completes the options of a run: its command, or the process to attach to. Makes the directory of `--record`.
///
/// # Errors
/// If options exclude each other, there is no command, or the directory can't be made.
fn prepare_run(options: &mut Options, as_gpu_tracker: bool) -> Result<(), UsageError> {
    if as_gpu_tracker {
        gpu_tracker::apply_to(options);
    }
    prepare_bundles(options)?;
    if options.command.attach.is_some() {
        check_attached(options)?;
        leave_out_layers(options);
        return Ok(());
    }
    if options.command.ready_fd.is_some() {
        return Err(UsageError::of_option("--ready-fd", "it is for a process to track: add --attach PID"));
    }
    let words = std::mem::take(&mut options.command.words);
    let execute = options.command.execute.as_deref();
    // An agent in a step of Slurm has no command.
    if options.diagnosis.agent.is_some() && words.is_empty() && execute.is_none() {
        return Ok(());
    }
    let split = if as_gpu_tracker { gpu_tracker::split } else { split };
    options.command.words = command(words, execute, split)?;
    Ok(())
}

/// Keeps limits of idleness and other nodes apart: the launcher's node may wait while others work. With such a limit, other nodes are
/// not tracked.
///
/// # Errors
/// If the run has such a limit, and the user has asked for other nodes.
fn check_limits_of_nodes(options: &mut Options) -> Result<(), UsageError> {
    let is_of_idleness = |limit: &&Rule| matches!(limit.quantity, Quantity::Stall | Quantity::GpuIdle);
    let Some(limit) = options.tracking.limits.list.iter().find(is_of_idleness) else { return Ok(()) };
    if options.preparations.asks_for_nodes() && options.preparations.tracks_nodes() {
        return Err(UsageError::of_option(
            rules::option_of(limit),
            format_args!("\"{}\" is not for several nodes: others may work meanwhile (--nodes)", limit.words),
        ));
    }
    options.preparations.nodes = Some(NodesWhen::Off);
    Ok(())
}

/// Makes the directory of `--record`, if it is given. The option gets the absolute path without symbolic links: the collector's working
/// directory may be another one, and it follows no link that appears later.
///
/// # Errors
/// If it can't be made or written to.
fn prepare_bundles(options: &mut Options) -> Result<(), UsageError> {
    let Some(bundles) = &mut options.tracking.bundles else { return Ok(()) };
    let made = bundle::prepare(&bundles.directory);
    bundles.directory = made.map_err(|error| UsageError::of_file("--record", &bundles.directory, error))?;
    Ok(())
}

/// The name of the job, if this is a rank of a job whose ranks are to make one report. `None` for an agent, which is a task of Slurm,
/// but no rank, and inside another run, whose report includes this one. Also `None` if a name of `-o` can differ between ranks, since
/// each rank then has its own report.
fn joint_job(options: &Options, patterns: &PatternValues) -> Option<OsString> {
    let are_apart = options.places.outputs.iter().any(|given| output::can_differ_between_ranks(given));
    let is_inside = std::env::var_os(ENV_SESSION).is_some_and(|session| !session.is_empty());
    let is_joint = options.preparations.tracks_nodes() && options.diagnosis.agent.is_none();
    patterns.job_of_ranks.clone().filter(|_| is_joint && !are_apart && !is_inside)
}

/// Checks that a run which attaches to a process has no option that is only for commands. Beside `--attach`, clap refuses these options.
/// Here they can be beside the `process_id` of `--tconfig`.
///
/// # Errors
/// If such an option is given.
fn check_attached(options: &Options) -> Result<(), UsageError> {
    let flags = [
        ("--wait-all", options.command.wait_all),
        ("--nodes", options.preparations.gives_nodes()),
        ("--cgroup", options.preparations.cgroup),
    ];
    let flag = flags.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
    match flag.or_else(|| options.tracking.limits.list.first().map(rules::option_of)) {
        Some(option) => {
            Err(UsageError::of_option(option, "it is for a COMMAND, and --tconfig names a process to track"))
        }
        None => Ok(()),
    }
}

/// Leaves out the layers (ways to find processes) that can't find anything below a process that runs already. Programs can report to
/// the run only if `--ready-fd` tells another program how.
fn leave_out_layers(options: &mut Options) {
    let has_ready_fd = options.command.ready_fd.is_some();
    options.discovery.layers.retain(|layer| match layer {
        Layer::Preload | Layer::Wait => has_ready_fd,
        Layer::Subreaper => false,
        Layer::Scan | Layer::Connector => true,
    });
}

/// Checks that a list of GPUs can be written in this format.
///
/// # Errors
/// If it can't.
fn check_list_format(format: &str) -> Result<(), UsageError> {
    let names: Vec<&str> = format::names_of_lists().collect();
    match names.contains(&format) {
        true => Ok(()),
        false => Err(UsageError::of_option(
            "--gpus",
            format_args!("it has no form \"{format}\": one of {}", names.join(", ")),
        )),
    }
}

/// A line for the user about these keywords of `--tconfig`, which have no effect. `None`: there are none.
fn without_effect(keywords: &[String]) -> Option<String> {
    (!keywords.is_empty()).then(|| format!("without effect: {}", keywords.join(", ")))
}

/// Splits a line into words, of which there is at least one.
type Split = fn(&str) -> Result<Vec<String>, UsageError>;

/// Splits a line into words as a shell does.
///
/// # Errors
/// If it has no word, or a quote that is not closed.
fn split(line: &str) -> Result<Vec<String>, UsageError> {
    let problem = match shell_words::split(line) {
        Ok(words) if words.is_empty() => "contains no command: give COMMAND [ARG]...",
        Ok(words) => return Ok(words),
        Err(_) => "has a quote that is not closed: close it, or escape it with a backslash",
    };
    Err(UsageError::of_option("--execute", format_args!("\"{line}\" {problem}")))
}

/// The command's words: those of the command line (`words`), or of `-e` (`execute`). clap refuses both together.
///
/// # Errors
/// If there is neither, or `execute` can't be split.
fn command(words: Vec<OsString>, execute: Option<&str>, split: Split) -> Result<Vec<OsString>, UsageError> {
    match execute {
        Some(line) => Ok(split(line)?.into_iter().map(Into::into).collect()),
        None if words.is_empty() => {
            Err(UsageError::new("COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]..."))
        }
        None => Ok(words),
    }
}
