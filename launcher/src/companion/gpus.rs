//! `gpu-track gpus`: what the GPUs of this machine show now.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use gpu_track_collector::report::format;

use crate::cli::{self, GpuArgs, UsageError};
use crate::companion::gpu_list;
use crate::{console, nvml_lib};

/// The arguments of `gpu-track gpus`.
#[derive(Debug, Args)]
pub(super) struct GpusArguments {
    /// Show them again every SECONDS, until Ctrl-C
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = cli::interval)]
    every: Option<Duration>,

    /// Format. JSON is an object a line
    #[arg(short, long, value_name = "FORMAT", default_value = "text",
          value_parser = PossibleValuesParser::new(format::names_of_lists()))]
    format: String,

    #[command(flatten)]
    gpu: GpuArgs,
}

/// Shows the GPUs. The status is 1 if they can't be listed, or a driver can't be read, so that their number is unknown.
///
/// # Errors
/// None: clap has checked the arguments.
pub(super) fn serve(arguments: GpusArguments) -> Result<ExitCode, UsageError> {
    let mut warnings = Vec::new();
    let config = nvml_lib::with_environment(&arguments.gpu.into(), &mut warnings);
    warnings.iter().for_each(console::message);
    let mut status = ExitCode::FAILURE;
    let listed = gpu_list::watch(&config, arguments.every, |listing| {
        status = if listing.count.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        let text = format::render_gpus_now(&listing, &arguments.format);
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
    });
    Ok(match listed {
        // After a broken pipe, the reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => gpu_list::cannot_list(&error),
        _ => status,
    })
}
