//! What this process itself writes to stdout. A GPU driver's library may print to descriptor 1, which would be in the midst of a report.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::stdio::{dup2_stdout, stderr, stdout};

/// Stdout, once descriptor 1 is another file.
static APART: OnceLock<File> = OnceLock::new();

/// Keeps stdout under another number, and makes descriptor 1 stderr. Where stdout is closed or there is no descriptor left, nothing
/// changes. Called before there is another thread that writes to stdout.
pub fn set_apart() {
    let Ok(own) = stdout().try_clone_to_owned() else { return };
    if dup2_stdout(stderr()).is_ok() {
        let _ = APART.set(own.into());
    }
}

/// The descriptor of stdout.
pub fn descriptor() -> BorrowedFd<'static> {
    APART.get().map_or_else(stdout, File::as_fd)
}

/// What writes to stdout. It is to be flushed.
pub fn writer() -> Box<dyn Write> {
    match APART.get() {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout()),
    }
}
