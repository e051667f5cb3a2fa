//! Asking the drivers before a command runs: `--gpus`, and the check of `--guuids`.
//!
//! For the check a child does it: a driver's library starts threads and opens devices, neither of which the command is
//! to inherit, and one that hangs can be left behind.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use gpu_track_collector::gpu::GpuConfig;
use gpu_track_collector::gpu::list::{self, Listing};
use gpu_track_collector::report::units::Format;

/// argv\[0\] of the launcher's executable when it is started to list the GPUs; the argument is a [`GpuConfig`] as JSON.
pub const LISTER_NAME: &str = "gpu-track-gpus";
/// A driver that needs longer than this to initialise is taken to hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// `--gpus`: say what there is.
pub fn print(config: &GpuConfig, format: Format) -> ! {
    let listing = list::list(config, PATIENCE);
    let text = match format {
        Format::Text => list::text(&listing),
        Format::Json => list::json(&listing),
    };
    let _ = io::stdout().write_all(text.as_bytes());
    leave(0)
}

/// The child's life: the listing in one line.
pub fn serve(config: &OsString) -> ! {
    let Some(config) = config.to_str().and_then(|text| serde_json::from_str(text).ok()) else { leave(2) };
    let listing = list::list(&config, PATIENCE);
    let _ = serde_json::to_writer(io::stdout(), &listing);
    let _ = io::stdout().write_all(b"\n");
    leave(0)
}

/// The GPUs of this machine, from a child.
///
/// # Errors
/// If there can be no child, or it said nothing.
pub fn ask(config: &GpuConfig) -> io::Result<Listing> {
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
    // It has said all that it has to say.
    let _ = child.kill();
    // Where SIGCHLD is ignored the kernel has reaped it.
    let _ = child.wait();
    Ok(serde_json::from_str(&line)?)
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
