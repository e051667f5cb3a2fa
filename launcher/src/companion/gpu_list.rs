//! `--gpus` and `gpu-track gpus`, and the check of `--guuids` before a command runs.
//!
//! A child process asks the drivers. A driver's library starts threads and opens devices, which the command must not
//! inherit. A library that hangs or crashes affects only the child.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ChildStdout, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::gpu::listing::Listing;
use gpu_track_collector::report::format;
use gpu_track_collector::{GpuLister, PresentGpus, own_program, own_stdout, present_gpus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cli::UsageError;
use crate::console;
use crate::process::{exit, signals};

/// The name of the child that lists the GPUs; its arguments are a [`GpuConfig`] and the time between two lists, as JSON.
pub(crate) const LISTER: &str = "gpu-track-gpus";
/// The age of the oldest figures in a listing of several.
const OLDEST: Duration = Duration::from_millis(500);
/// A driver that takes longer than this to initialise counts as unresponsive.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Prints the GPUs and the figures that each supports (`--gpus`), in this format. Fails if it is not known how many GPUs there
/// are.
pub(crate) fn print(config: &GpuConfig, format: &str) -> ExitCode {
    let listing = match list_once(config) {
        Ok(listing) => listing,
        Err(error) => return cannot_list(&error),
    };
    let printed = console::print(&format::render_gpus(&listing, format));
    // Where a driver can't be read, "no GPU" would be a guess.
    if listing.count.is_some() { printed } else { ExitCode::FAILURE }
}

/// Says on stderr why the GPUs can't be listed, and returns the exit status.
pub(super) fn cannot_list(error: &io::Error) -> ExitCode {
    console::failure(format_args!("cannot list the GPUs: {error}"))
}

/// Checks that the GPUs of `--guuids` exist, if it is given. Only the kernel's files are read: a driver's library can take seconds to
/// initialise. On a machine without GPUs it returns a warning, because gpu_tracker runs the command there, too.
///
/// # Errors
/// If the machine has GPUs, and a name is surely none of them.
pub(crate) fn check_selected(config: &GpuConfig) -> Result<Option<String>, UsageError> {
    match &config.uuids {
        Some(uuids) => check(uuids, &present_gpus(config)),
        None => Ok(None),
    }
}

/// Those names of `--guuids` that are or may be GPUs of this machine. For an agent: the others are of other nodes. `None`: the
/// option is not given.
pub(crate) fn selected_here(config: &GpuConfig) -> Option<Vec<String>> {
    let uuids = config.uuids.as_ref()?;
    let present = present_gpus(config);
    let may_be_here = |name: &&String| present.unknown(std::slice::from_ref(*name)).is_none();
    Some(uuids.iter().filter(may_be_here).cloned().collect())
}

/// Checks the names of `--guuids` against the GPUs that were found. Returns a warning if no GPU was found.
fn check(uuids: &[String], present: &PresentGpus) -> Result<Option<String>, UsageError> {
    let Some(missing) = present.unknown(uuids) else { return Ok(None) };
    if present.devices.is_empty() {
        return Ok(Some("--guuids: no GPU was found on this machine".into()));
    }
    let ids: Vec<&str> = present.devices.iter().map(|device| device.id.as_str()).collect();
    let problem = format!("\"{missing}\" is not a GPU of this machine: one of {}", ids.join(", "));
    Err(UsageError::of_option("--guuids", problem))
}

/// Lists the GPUs, as a [`Child`] does, and returns the exit status. `None`: these are not its arguments. They are a [`GpuConfig`] and
/// the time between two lists, both as JSON.
pub(crate) fn serve_lister(args: &[OsString]) -> Option<i32> {
    let [config, every] = args else { return None };
    let config = serde_json::from_slice(config.as_bytes()).ok()?;
    let every = serde_json::from_slice(every.as_bytes()).ok()?;
    // A driver that hangs must not keep it alive without its parent.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).ok();
    exit::by_library_is_a_crash();
    let _ = write_lists(&config, every);
    // The parent looks only at the lines, and at a signal that ended this process.
    Some(0)
}

/// Writes listings to stdout, each as a line of JSON, at this interval. If `every` is `None`, there is one line. Ends, with `None` as
/// its only result, when that line is written, or when the parent reads no more.
fn write_lists(config: &GpuConfig, every: Option<Duration>) -> Option<Infallible> {
    // A driver's library may write to stdout too; that goes to stderr.
    own_stdout::set_apart();
    let mut answer = File::from(own_stdout::descriptor().try_clone_to_owned().ok()?);
    let mut lister = GpuLister::start(config);
    let mut next = Instant::now();
    loop {
        let line = serde_json::to_string(&lister.list(DRIVER_TIMEOUT)).ok()? + "\n";
        // The write fails if the parent has gone, or has seen enough.
        answer.write_all(line.as_bytes()).ok()?;
        // Listings that are late are left out, and not made one after another.
        next = (next + every?).max(Instant::now());
        wait_until(next, &answer)?;
    }
}

/// Waits until `time`. Returns `None` at once if the parent, which reads from this pipe, has gone.
fn wait_until(time: Instant, answer: &File) -> Option<()> {
    loop {
        let left = Timespec::try_from(time.saturating_duration_since(Instant::now())).ok()?;
        // Without events to wait for, poll(2) reports only that the pipe has no reader.
        match poll(&mut [PollFd::new(answer, PollFlags::empty())], Some(&left)) {
            Ok(0) => return Some(()),
            Ok(_) => return None,
            Err(error) if error == Errno::INTR => {}
            Err(_) => return None,
        }
    }
}

/// Calls `show` with a listing of the GPUs, and again each time that `every` has passed, until `show` breaks, which is returned. If
/// `every` is `None`, there is one call.
///
/// # Errors
/// If the GPUs can't be listed.
pub(crate) fn watch<Seen>(
    config: &GpuConfig,
    every: Option<Duration>,
    mut show: impl FnMut(Listing) -> ControlFlow<Seen>,
) -> io::Result<ControlFlow<Seen>> {
    // The drivers are to be read as often as there are listings, and so that no figure is older than [`OLDEST`].
    let interval_ns = every.map_or(config.interval_ns, |every| every.min(OLDEST).as_nanos() as u64);
    let config = GpuConfig { interval_ns, ..config.clone() };
    if every.is_none() {
        return Ok(show(list_once(&config)?));
    }
    let (mut child, mut line) = Child::start_with_line(&config, every)?;
    loop {
        if let ControlFlow::Break(seen) = show(parse_listing(&line)?) {
            return Ok(ControlFlow::Break(seen));
        }
        line = child.line()?;
    }
}

/// Lists the GPUs once.
pub(super) fn list_once(config: &GpuConfig) -> io::Result<Listing> {
    let (_child, line) = Child::start_with_line(config, None)?;
    parse_listing(&line)
}

/// Parses the line of a child. An empty line is an error: the child has ended.
fn parse_listing(line: &str) -> io::Result<Listing> {
    serde_json::from_str(line).map_err(|_| {
        io::Error::other(
            "the process that asks the drivers ended before it answered, perhaps by a driver's library",
        )
    })
}

/// A child that asks the drivers. It is killed when it is dropped: a driver's library may keep it from ending.
struct Child {
    process: process::Child,
    stdout: BufReader<ChildStdout>,
}

impl Child {
    /// Starts a child, and returns it with its first line. If it crashes before that, a second child is started, which does not
    /// load NVIDIA's library.
    fn start_with_line(config: &GpuConfig, every: Option<Duration>) -> io::Result<(Self, String)> {
        let mut child = Self::start(config, every)?;
        let mut line = child.line()?;
        if let Some(signal) = child.crashed_by(&line) {
            child = Self::start(&GpuConfig { crashed_by: Some(signal), ..config.clone() }, every)?;
            line = child.line()?;
        }
        Ok((child, line))
    }

    /// Starts a child that writes a listing, and another one each time that `every` has passed. `None`: it writes one.
    fn start(config: &GpuConfig, every: Option<Duration>) -> io::Result<Self> {
        let mut process = own_program::command(LISTER)
            .arg(serde_json::to_string(config)?)
            .arg(serde_json::to_string(&every)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { process, stdout: BufReader::new(stdout) })
    }

    /// Waits for the next line of the child. The text is empty if the child has ended.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    /// The signal by which the child crashed before it wrote a line. `None`: `line` is not empty, or the child did not crash.
    fn crashed_by(&mut self, line: &str) -> Option<i32> {
        if !line.is_empty() {
            return None;
        }
        // If SIGCHLD is ignored, the kernel has reaped the child.
        let signal = self.process.wait().ok().and_then(|status| status.signal());
        signal.filter(|signal| signals::is_fault(*signal))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::model::gpu::Device;

    use super::*;

    // Requirement: GPU-9
    #[test]
    fn unknown_gpus_are_refused_without_a_driver() {
        let check = |uuids: &[&str], present: &PresentGpus| {
            let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
            check(&uuids, present).map_err(|error| error.to_string())
        };
        let device = |id: &str| Device { id: id.to_owned(), ..Device::default() };
        let present =
            PresentGpus { devices: vec![device("GPU-a"), device("GPU-b")], may_know_other_names: false };
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
