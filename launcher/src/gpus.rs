//! `--gpus`, and the check of `--guuids` before a command runs.
//!
//! A child process asks the drivers. A driver's library starts threads and opens devices, which the command must not
//! inherit. A library that hangs or crashes affects only the child.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use gpu_track_collector::{GpuConfig, Listing, PresentGpus, format, list_gpus, present_gpus};

use crate::cli::UsageError;
use crate::{console, exit, signals};

/// argv\[0\] of the child that lists the GPUs; its argument is a [`GpuConfig`] as JSON.
const LISTER_NAME: &str = "gpu-track-gpus";
/// A driver that takes longer than this to initialise counts as unresponsive.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Prints the GPUs and the figures that each supports (`--gpus`). Fails if it is not known how many there are.
pub(crate) fn print(config: &GpuConfig, format: &str) -> ExitCode {
    let listing = match ask(config) {
        Ok(listing) => listing,
        Err(error) => {
            console::message(format_args!("cannot list the GPUs: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let printed = console::print(&format::render_gpus(&listing, format));
    // Where a driver can't be read, "no GPU" would be a guess.
    if listing.count.is_some() { printed } else { ExitCode::FAILURE }
}

/// Checks that the GPUs of `--guuids` exist, as far as the kernel's files tell: a driver's library can take seconds to
/// initialise. What they do not tell is in the report. Where no GPU is, it gives a line for the user: gpu_tracker runs the
/// command there, too.
pub(crate) fn check_selected(config: &GpuConfig) -> Result<Option<String>, UsageError> {
    match &config.uuids {
        Some(uuids) => check(uuids, &present_gpus(config)),
        None => Ok(None),
    }
}

/// Checks the names of `--guuids`. Gives a warning if no GPU was found at all.
fn check(uuids: &[String], present: &PresentGpus) -> Result<Option<String>, UsageError> {
    let Some(missing) = present.unknown(uuids) else { return Ok(None) };
    if present.devices.is_empty() {
        return Ok(Some("--guuids: no GPU was found on this machine".into()));
    }
    let ids: Vec<&str> = present.devices.iter().map(|device| device.id.as_str()).collect();
    let problem = format!("\"{missing}\" is not a GPU of this machine: one of {}", ids.join(", "));
    Err(UsageError::of("--guuids", problem))
}

/// Lists the GPUs and ends, if these are the arguments of the child that does it.
pub(crate) fn serve_if_started_as_lister(args: &[OsString]) {
    if let [name, config] = args
        && name == LISTER_NAME
    {
        exit::without_handlers(if serve(config).is_some() { 0 } else { 2 })
    }
}

/// Writes the listing to stdout, in one line.
fn serve(config: &OsString) -> Option<()> {
    let config = serde_json::from_str(config.to_str()?).ok()?;
    // A driver's library may write to stdout too; that goes to stderr.
    let mut answer = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?);
    rustix::stdio::dup2_stdout(io::stderr()).ok()?;
    let _ = serde_json::to_writer(&mut answer, &list_gpus(&config, DRIVER_TIMEOUT));
    let _ = answer.write_all(b"\n");
    Some(())
}

/// Asks a child for the GPUs. If it crashes, a second one does not load NVIDIA's library.
fn ask(config: &GpuConfig) -> io::Result<Listing> {
    let (line, signal) = ask_child(config)?;
    let line = match signal.filter(|signal| line.is_empty() && signals::is_fault(*signal)) {
        Some(signal) => ask_child(&GpuConfig { crashed_by: Some(signal), ..config.clone() })?.0,
        None => line,
    };
    serde_json::from_str(&line).map_err(|_| {
        io::Error::other(
            "the process that asks the drivers ended before it answered, perhaps by a driver's library",
        )
    })
}

/// Asks a child. Gives the line that it writes, and the signal that ended it.
fn ask_child(config: &GpuConfig) -> io::Result<(String, Option<i32>)> {
    let mut child = Command::new("/proc/self/exe")
        .arg0(LISTER_NAME)
        .arg(serde_json::to_string(config)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // The answer is complete. A child that has crashed keeps the signal that ended it.
    let _ = child.kill();
    // If SIGCHLD is ignored, the kernel has reaped the child.
    let signal = child.wait().ok().and_then(|status| status.signal());
    Ok((line, signal))
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::Device;

    use super::*;

    // Requirement: GPU-9
    #[test]
    fn unknown_gpus_are_refused_without_a_driver() {
        let check = |uuids: &[&str], present: &PresentGpus| {
            let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
            check(&uuids, present).map_err(|error| error.to_string())
        };
        let device = |id: &str| Device { id: id.to_owned(), ..Device::default() };
        let present = PresentGpus { devices: vec![device("GPU-a"), device("GPU-b")], may_have_others: false };
        assert_eq!(
            check(&["GPU-a", "GPU-x"], &present).unwrap_err(),
            "--guuids: \"GPU-x\" is not a GPU of this machine: one of GPU-a, GPU-b"
        );
        assert_eq!(check(&["gpu-B"], &present), Ok(None));
        let none = "--guuids: no GPU was found on this machine";
        assert_eq!(check(&["GPU-a"], &PresentGpus::default()), Ok(Some(none.into())));
        assert_eq!(check(&[], &PresentGpus::default()), Ok(None));
    }
}
