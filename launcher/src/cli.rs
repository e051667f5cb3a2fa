//! The command line: what the user asks for, checked before anything is started.

mod args;
mod output;
mod refusal;
mod tconfig;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use gpu_track_collector::model::config::Layers;
use gpu_track_collector::model::gpu::{Device, GpuConfig, select};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::model::style::{Format, Style};
use gpu_track_collector::sources::gpu::list::Listing;

use crate::docs;
use args::Args;
pub use output::Place;
pub use refusal::Refusal;
use values::Layer;

/// Time between two samples if the user gives none.
const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);

/// What the user asks for.
#[derive(Debug)]
pub enum Request {
    /// Run a command.
    Run(Box<Options>),
    /// Print this to stdout and exit with 0.
    Print(String),
    /// Print the GPUs, in this form.
    Gpus(Box<GpuConfig>, Format),
    /// Make reports of runs that were killed.
    Recover(Recovery),
}

/// Where reports of killed runs go.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// `-o` as it was given: its patterns stand for another thing with each run.
    pub output: Option<PathBuf>,
    /// How they are written.
    pub style: Style,
    /// Where the sessions lie.
    pub session_dir: PathBuf,
}

/// How to run the command, and what to report.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The command and its arguments, at least one word.
    pub command: Vec<OsString>,
    /// Where the report goes.
    pub output: Output,
    /// How it is written.
    pub style: Style,
    /// Time between two samples.
    pub interval: Duration,
    /// Cores that the command is expected to use; none: all.
    pub expected_cores: Option<u32>,
    /// GPUs to track, and where to look for them.
    pub gpu: GpuConfig,
    /// No warnings on stderr.
    pub disable_logs: bool,
    /// End with the last process of the tree.
    pub wait_all: bool,
    /// A cgroup for the command.
    pub cgroup: bool,
    /// Most single processes in the report.
    pub most_heaviest: usize,
    /// Put the shim back into environments that lack it.
    pub env_repair: bool,
    /// Discovery layers that may be used.
    pub layers: Layers,
    /// Where the session lies.
    pub session_dir: PathBuf,
}

/// Reads a command line, whose first word is our own name.
///
/// # Errors
/// The line to say and the status to exit with; nothing was started then.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Request, Refusal> {
    parse_at(args, &Place::here())
}

fn parse_at(args: impl Iterator<Item = OsString>, place: &Place) -> Result<Request, Refusal> {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        // --help and --version come as errors.
        Err(error) if !error.use_stderr() => return Ok(Request::Print(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    if let Some(shell) = args.completions {
        return Ok(Request::Print(docs::completions(Args::command(), shell)));
    }
    if args.man {
        return Ok(Request::Print(docs::man(Args::command())));
    }
    let config = match &args.config {
        Some(path) => {
            tconfig::read(path).map_err(|error| Refusal::new(format_args!("--tconfig: {error}")))?
        }
        None => tconfig::Config::default(),
    };
    let output = output(args.output.as_deref(), place)?;
    let style = Style {
        format: args.format.unwrap_or_default(),
        ram_unit: args.ram_unit.or(config.ram_unit),
        gpu_ram_unit: args.gpu_ram_unit.or(config.gpu_ram_unit),
        time_unit: args.time_unit.or(config.time_unit),
    };
    if args.recover {
        let command = args.command.first().map(|word| word.display().to_string()).or(args.execute);
        return match command {
            Some(command) => Err(Refusal::new(format_args!(
                "--recover: COMMAND \"{command}\" is given too: give one of them"
            ))),
            None => {
                Ok(Request::Recover(Recovery { output: args.output, style, session_dir: args.session_dir }))
            }
        };
    }
    let gpu = GpuConfig {
        uuids: args.gpu_uuids.or(config.gpu_uuids),
        only_visible: args.visible,
        vendor: args.gpu_brand,
        nvml_lib: args.nvml_lib,
        accounting: args.gpu_accounting,
        root: args.gpu_root,
        ..GpuConfig::default()
    };
    if args.gpus {
        return Ok(Request::Gpus(Box::new(gpu), style.format));
    }
    Ok(Request::Run(Box::new(Options {
        command: command(args.command, args.execute)?,
        output,
        style,
        interval: args.sleep_time.or(config.sleep_time).unwrap_or(DEFAULT_INTERVAL),
        expected_cores: args.expected_cores.or(config.expected_cores),
        gpu,
        disable_logs: args.disable_logs || config.disable_logs,
        wait_all: args.wait_all,
        cgroup: args.cgroup,
        most_heaviest: args.heaviest,
        env_repair: !args.no_env_repair,
        layers: Layer::set(&args.layers),
        session_dir: args.session_dir,
    })))
}

/// Where the report goes that `-o` names, if it is given.
///
/// # Errors
/// The line that says why none can be written there.
pub fn output(given: Option<&Path>, place: &Place) -> Result<Output, Refusal> {
    given.map_or(Ok(Output::Stderr), |path| {
        output::output(path, place).map_err(|error| Refusal::new(format_args!("--output: {error}")))
    })
}

/// The command's words, from one of the two forms.
fn command(words: Vec<OsString>, execute: Option<String>) -> Result<Vec<OsString>, Refusal> {
    let refuse = |message: String| Err(Refusal::new(message));
    match (words.first(), execute) {
        (Some(_), None) => Ok(words),
        (None, None) => refuse("COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...".into()),
        (Some(first), Some(line)) => refuse(format!(
            "--execute: \"{line}\" and COMMAND \"{}\" are both given: give one of them",
            first.display()
        )),
        (None, Some(line)) => match shell_words::split(&line) {
            Ok(words) if words.is_empty() => {
                refuse(format!("--execute: \"{line}\" has no command in it: COMMAND [ARG]..."))
            }
            Ok(words) => Ok(words.into_iter().map(Into::into).collect()),
            Err(_) => refuse(format!(
                "--execute: \"{line}\" has a quote that is not closed: each needs its other half"
            )),
        },
    }
}

impl Options {
    /// Checks the GPUs asked for against those that are on this machine.
    ///
    /// # Errors
    /// The line that names the one that isn't there, and those that are.
    pub fn check_gpus(&self, known: &Listing) -> Result<(), Refusal> {
        let words = self.gpu.uuids.as_deref().unwrap_or_default();
        let devices: Vec<Device> = known.gpus.iter().map(|gpu| gpu.device.clone()).collect();
        let Some(missing) = select::unknown(words, &devices) else { return Ok(()) };
        let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
        let drivers = known.drivers.iter().map(|driver| format!(" ({}: {})", driver.name, driver.reason));
        let warnings = known.warnings.iter().map(|warning| format!(" ({})", warning.trim_end_matches('.')));
        let (drivers, warnings): (String, String) = (drivers.collect(), warnings.collect());
        let allowed = match ids.as_slice() {
            [] => format!("no GPU was found on this machine{drivers}"),
            ids => format!("one of {}", ids.join(", ")),
        };
        let message =
            format_args!("--guuids: \"{missing}\" is not a GPU of this machine: {allowed}{warnings}");
        Err(Refusal::new(message))
    }
}
