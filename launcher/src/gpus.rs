//! Asking the drivers before a command runs: `--gpus`, and the check of `--guuids`.
//!
//! A child does it: a driver's library starts threads and opens devices, neither of which the command is to inherit, one
//! that hangs can be left behind, and one that crashes takes nothing along.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::style::Format;
use gpu_track_collector::sources::gpu::list::{self, Listing};

use crate::supervise::is_fault;

/// argv\[0\] of the launcher's executable when it is started to list the GPUs; the argument is a [`GpuConfig`] as JSON.
pub const LISTER_NAME: &str = "gpu-track-gpus";
/// A driver that needs longer than this to initialise is taken to hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// `--gpus`: say what there is.
pub fn print(config: &GpuConfig, format: Format) -> ExitCode {
    let listing = match ask(config) {
        Ok(listing) => listing,
        Err(error) => {
            crate::say(&format!("gpu-track-run: cannot ask the drivers: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let text = match format {
        Format::Text => list::text(&listing),
        Format::Json => list::json(&listing),
    };
    crate::print(&text)
}

/// The child's life: the listing in one line.
pub fn serve(config: &OsString) -> ! {
    let Some(config) = config.to_str().and_then(|text| serde_json::from_str(text).ok()) else { leave(2) };
    // A driver's library may print what it likes.
    let Ok(answer) = io::stdout().as_fd().try_clone_to_owned() else { leave(2) };
    if rustix::stdio::dup2_stdout(io::stderr()).is_err() {
        leave(2)
    }
    let listing = list::list(&config, PATIENCE);
    let mut answer = File::from(answer);
    let _ = serde_json::to_writer(&mut answer, &listing);
    let _ = answer.write_all(b"\n");
    drop(answer);
    leave(0)
}

/// The GPUs of this machine, from a child. If that crashes, another one leaves NVIDIA's library alone.
///
/// # Errors
/// If there can be no child, or it said nothing.
pub fn ask(config: &GpuConfig) -> io::Result<Listing> {
    let (line, signal) = ask_child(config)?;
    let line = match signal.filter(|signal| line.is_empty() && is_fault(*signal)) {
        Some(signal) => ask_child(&GpuConfig { crashed_by: Some(signal), ..config.clone() })?.0,
        None => line,
    };
    Ok(serde_json::from_str(&line)?)
}

/// What a child says, and by which signal it ended.
fn ask_child(config: &GpuConfig) -> io::Result<(String, Option<i32>)> {
    let config = serde_json::to_string(config)?;
    let mut child = Command::new("/proc/self/exe")
        .arg0(LISTER_NAME)
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // It has said all that it has to say. What it died of already stays what it died of.
    let _ = child.kill();
    // Where SIGCHLD is ignored the kernel has reaped it.
    let signal = child.wait().ok().and_then(|status| status.signal());
    Ok((line, signal))
}

/// End without the exit handlers of a driver's library, which would wait for a thread that is stuck in it.
pub fn leave(status: i32) -> ! {
    let _ = io::stdout().flush();
    // A thread that is stuck in the driver keeps this process, and what it has open: whoever reads a pipe of ours to
    // its end must not wait for that.
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: nobody uses them any more; all that was to be written is written.
        unsafe { libc::close(stream) };
    }
    // SAFETY: likewise.
    unsafe { libc::_exit(status) }
}
