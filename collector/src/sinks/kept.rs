//! Each report is kept as JSON in a directory of the user's, so that it can be read again (`--last`).
//!
//! A home directory may be on a file system that does not answer, and the end of the run must not wait for it. So a thread opens
//! the directory while the command runs. A process of its own, the keeper, writes the file; nothing waits for that.

pub mod directory;

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::model::config::{Keep, ReportTarget};
use crate::model::report::Report;
use crate::model::style::Style;
use crate::report::format::{self, render};
use crate::sys::own_program;

/// The name of a keeper. Its argument is how many reports are kept. Its stdin is the report, and its stdout the directory.
pub const KEEPER: &str = "gpu-track-keeper";
/// Maximum number of bytes of a report's JSON. A longer report is not kept.
const MOST_BYTES: usize = 1_000_000;
/// How long the directory may take to open, counted from [`Kept::prepare`], which is at the start of a run. So only a run that is
/// shorter than this waits for the directory at its end. The keeper may take as long to start.
const PATIENCE: Duration = Duration::from_millis(50);

/// Keeps the report of this run.
pub(super) struct Kept {
    /// How many reports are kept.
    most: usize,
    /// Gets the directory when a thread has opened it.
    opened: Receiver<OwnedFd>,
    /// When the directory must have opened.
    deadline: Instant,
}

impl Kept {
    /// Begins to open the directory, in a thread. `None`: the thread can't be started.
    pub(super) fn prepare(keep: &Keep) -> Option<Self> {
        let (sender, opened) = mpsc::sync_channel(1);
        let (most, keep) = (keep.most, keep.clone());
        // If there is no directory, the sender is dropped, and [`Self::keep`] does not wait.
        let open = move || directory::open_or_create(&keep).map(|directory| sender.send(directory));
        thread::Builder::new().spawn(open).ok()?;
        Some(Self { most, opened, deadline: Instant::now() + PATIENCE })
    }

    /// Starts the keeper, if the directory has opened in time and the report is not too long. Returns whether the keeper has
    /// started, so that the report will be kept unless its writing fails.
    pub(super) fn keep(&self, report: &Report) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let Ok(directory) = self.opened.recv_timeout(left) else { return false };
        let target = ReportTarget { format: format::JSON_NAME.to_owned(), ..ReportTarget::default() };
        let json = render(report, &target, Style::default());
        json.len() <= MOST_BYTES && self.start_keeper(json, directory)
    }

    /// Starts the keeper in a thread, because the program's own file system may not answer either. Returns whether it
    /// started in time.
    fn start_keeper(&self, json: String, directory: OwnedFd) -> bool {
        let (sender, started) = mpsc::sync_channel(1);
        let most = self.most;
        let start = move || sender.send(spawn_keeper(&json, directory, most).is_ok());
        let is_begun = thread::Builder::new().spawn(start).is_ok();
        is_begun && started.recv_timeout(PATIENCE).unwrap_or(false)
    }
}

/// Starts the keeper, with the report as stdin and the directory as stdout. Its environment is empty: if this run is inside
/// another one, an inherited environment would load that run's shim.
fn spawn_keeper(json: &str, directory: OwnedFd, most: usize) -> io::Result<()> {
    let mut memory = File::from(memfd_create(KEEPER, MemfdFlags::CLOEXEC)?);
    memory.write_all(json.as_bytes())?;
    memory.rewind()?;
    let mut keeper = own_program::command(KEEPER);
    keeper.arg(most.to_string()).env_clear();
    keeper.stdin(memory).stdout(directory).stderr(Stdio::null()).spawn()?;
    Ok(())
}
