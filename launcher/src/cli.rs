//! The command line: what the user asks for, checked before anything is started.

mod args;
mod docs;
mod gpu_tracker;
mod output;
mod tconfig;
#[cfg(test)]
mod tests;
mod usage_error;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use gpu_track_collector::{Console, Detail, Format, GpuConfig, InUse, Layers, Output, OutputLock, Style};

use args::{Args, ReportArgs, TrackingArgs};
pub(crate) use output::PatternValues;
pub(crate) use usage_error::UsageError;
use values::{DEFAULT_INTERVAL, Layer};

/// What the user asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Run a command.
    Run(Box<Options>),
    /// Print this to stdout and exit with 0.
    Print(String),
    /// Print the GPUs in this format.
    Gpus(Box<GpuConfig>, Format),
    /// Write reports of runs that were killed.
    Recover(Recovery),
}

/// Where and how to write reports of killed runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recovery {
    /// `-o` as it was given: its patterns have other values for each run.
    pub(crate) output: Option<PathBuf>,
    pub(crate) style: Style,
    /// The directory of the sessions' files.
    pub(crate) session_dir: PathBuf,
}

/// How to run the command, and what to report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// The command and its arguments, at least one word.
    pub(crate) command: Vec<OsString>,
    /// Where the report goes.
    pub(crate) output: Output,
    pub(crate) style: Style,
    /// Time between two samples.
    pub(crate) interval: Duration,
    /// Cores that the command is expected to use; `None`: all.
    pub(crate) expected_cores: Option<u32>,
    /// Which GPUs to track, and where to look for them.
    pub(crate) gpu: GpuConfig,
    /// No warnings on stderr.
    pub(crate) disable_logs: bool,
    /// End with the last process of the tree.
    pub(crate) wait_all: bool,
    /// Create a cgroup for the command.
    pub(crate) cgroup: bool,
    /// Maximum number of single processes in each list of the report.
    pub(crate) most_heaviest: usize,
    /// Put the shim back into environments that lack it.
    pub(crate) env_repair: bool,
    /// Discovery layers to use.
    pub(crate) layers: Layers,
    /// The directory of the session's files.
    pub(crate) session_dir: PathBuf,
    /// What was given and has no effect, in a line for the user.
    pub(crate) without_effect: Option<String>,
}

/// Parses a command line, whose first word is the name of this program.
pub(crate) fn parse(args: Vec<OsString>, patterns: &PatternValues) -> Result<Request, UsageError> {
    let as_gpu_tracker = gpu_tracker::is_called(&args);
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        // clap returns --help and --version as errors.
        Err(error) if !error.use_stderr() => return Ok(Request::Print(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    if args.information.short_help {
        return Ok(Request::Print(docs::short_help(Args::command())));
    }
    if let Some(shell) = args.information.completions {
        return Ok(Request::Print(docs::completions(&Args::command(), shell)));
    }
    if args.information.man {
        return Ok(Request::Print(docs::man(Args::command())));
    }
    let config = match &args.tracking.config {
        Some(path) => tconfig::read(path).map_err(|error| UsageError::of_file("--tconfig", path, error))?,
        None => tconfig::Config::default(),
    };
    let output = output(args.report.output.as_deref(), patterns)?;
    let style = Style {
        format: args.report.format.unwrap_or_default(),
        ram_unit: args.report.ram_unit.or(config.ram_unit),
        gpu_ram_unit: args.report.gpu_ram_unit.or(config.gpu_ram_unit),
        time_unit: args.report.time_unit.or(config.time_unit),
        as_gpu_tracker: false,
        detail: detail(&args.report, &output),
        shows_hints: args.report.hints,
        console: Console::default(),
    };
    let session_dir = args.diagnosis.session_dir;
    if args.information.recover {
        return Ok(Request::Recover(Recovery { output: args.report.output, style, session_dir }));
    }
    let gpu = GpuConfig {
        uuids: args.gpu.gpu_uuids.or(config.gpu_uuids),
        only_visible: args.gpu.visible,
        vendor: args.gpu.gpu_brand.or(config.gpu_brand),
        nvml_lib: args.gpu.nvml_lib,
        accounting: args.gpu.gpu_accounting,
        root: args.gpu.gpu_root,
        ..GpuConfig::default()
    };
    if args.information.gpus {
        return Ok(Request::Gpus(Box::new(gpu), style.format));
    }
    let (style, output, interval, split): (_, _, _, Split) = match as_gpu_tracker {
        false => (style, output, DEFAULT_INTERVAL, split),
        true => {
            gpu_tracker::check(&args.command.command)?;
            let output = if args.report.output.is_none() { Output::Stdout } else { output };
            (gpu_tracker::style(&style), output, gpu_tracker::INTERVAL, gpu_tracker::split)
        }
    };
    Ok(Request::Run(Box::new(Options {
        command: command(args.command.command, args.command.execute, split)?,
        output,
        style,
        interval: args.tracking.sleep_time.or(config.sleep_time).unwrap_or(interval),
        expected_cores: args.tracking.expected_cores.or(config.expected_cores),
        gpu,
        disable_logs: args.tracking.disable_logs || config.disable_logs,
        wait_all: args.command.wait_all,
        cgroup: args.tracking.cgroup,
        most_heaviest: args.report.heaviest,
        env_repair: !args.diagnosis.no_env_repair,
        layers: Layer::set(&args.diagnosis.layers),
        session_dir,
        without_effect: without_effect(&args.tracking, config.without_effect).filter(|_| !args.report.quiet),
    })))
}

/// Takes the lock of the report file.
///
/// # Errors
/// If another run that still lives writes to it.
pub(crate) fn lock(output: &Output) -> Result<Option<OutputLock>, UsageError> {
    let Output::File(path) = output else { return Ok(None) };
    OutputLock::take(path).map_err(|InUse| {
        let problem = "is the report of another run that has not ended: give each run a name of its own, with %p (the \
                       pid), %r (the rank), %h (the host) or %j (the job)";
        UsageError::of_file("--output", path, problem)
    })
}

/// A summary is for the terminal. What is written to a file is read later, when nothing can be asked again.
fn detail(asked: &ReportArgs, output: &Output) -> Detail {
    match output {
        Output::Stderr if asked.quiet => Detail::Quiet,
        Output::Stderr if !asked.full => Detail::Summary,
        _ => Detail::Full,
    }
}

/// One line about what was given and has no effect.
fn without_effect(tracking: &TrackingArgs, keywords: Vec<String>) -> Option<String> {
    let options = [("--tf", tracking.tracking_file.is_some()), ("--overwrite", tracking.overwrite)];
    let options = options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name.to_owned());
    let given: Vec<_> = options.chain(keywords).collect();
    let file = ["--tf", "tracking_file"].iter().any(|name| given.iter().any(|given| given == name));
    let why = if file { " (samples are not written to a file yet)" } else { "" };
    (!given.is_empty()).then(|| format!("without effect: {}{why}", given.join(", ")))
}

/// Where the report goes: to the output that `-o` names, or to stderr.
pub(crate) fn output(given: Option<&Path>, patterns: &PatternValues) -> Result<Output, UsageError> {
    given.map_or(Ok(Output::Stderr), |path| {
        output::output(path, patterns).map_err(|error| UsageError::of_file("--output", path, error))
    })
}

/// How a line is split into words; `None` if it has a quote that is not closed.
type Split = fn(&str) -> Option<Vec<String>>;

/// As a shell does it.
fn split(line: &str) -> Option<Vec<String>> {
    shell_words::split(line).ok()
}

/// The command's words, from either form. clap refuses both together.
fn command(words: Vec<OsString>, execute: Option<String>, split: Split) -> Result<Vec<OsString>, UsageError> {
    let Some(line) = execute else {
        let missing = UsageError::new("COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...");
        return if words.is_empty() { Err(missing) } else { Ok(words) };
    };
    let problem = match split(&line) {
        Some(words) if words.is_empty() => "contains no command: give COMMAND [ARG]...",
        Some(words) => return Ok(words.into_iter().map(Into::into).collect()),
        None => "has a quote that is not closed: close it, or escape it with a backslash",
    };
    Err(UsageError::of("--execute", format_args!("\"{line}\" {problem}")))
}
