//! The report of all nodes while the run goes on. A process of its own makes it now and then of the reports so far, since the launcher
//! must not be late for signals.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gpu_track_collector::model::config::ReportConfig;
use gpu_track_collector::{own_program, write_files};

use super::directory::NodeDirectory;
use super::{gather, report_note};

/// The name of the process. Its arguments are the segment, by which it is known as a helper of the run, and the directory.
pub(crate) const MERGER: &str = "gpu-track-merger";
/// Time until the first report of all nodes. Each further one takes twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// After a signal, agents write reports at once. They have this time for that.
const AFTER_SIGNAL: Duration = Duration::from_millis(300);
/// The process works for at most one part in so many of the time.
const LEAST_PAUSE: u32 = 20;

/// When the process is started, and whether it is at work.
pub(super) struct Merger {
    due: Instant,
    pause: Duration,
    /// Its pid, and since when it works.
    at_work: Option<(u32, Instant)>,
}

impl Merger {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() + FIRST, pause: FIRST, at_work: None }
    }

    /// Has the next report made soon.
    pub(super) fn hasten(&mut self) {
        self.due = self.due.min(Instant::now() + AFTER_SIGNAL);
    }

    pub(super) fn has(&self, pid: u32) -> bool {
        self.at_work.is_some_and(|(own, _)| own == pid)
    }

    /// Notes that the process has ended.
    pub(super) fn ended(&mut self) {
        if let Some((_, since)) = self.at_work.take() {
            self.due = self.due.max(Instant::now() + since.elapsed() * LEAST_PAUSE);
        }
    }

    /// Starts the process if it is due. Returns the time until it is due again; `None`: it is at work.
    pub(super) fn attend(&mut self, segment: &Path, directory: &Path) -> Option<Duration> {
        if self.at_work.is_none() && Instant::now() >= self.due {
            self.pause = (self.pause * 2).min(LONGEST);
            self.due = Instant::now() + self.pause;
            // If it can't be started now, it may be later.
            self.at_work = start(segment, directory).ok().map(|pid| (pid, Instant::now()));
        }
        self.at_work.is_none().then(|| self.due.saturating_duration_since(Instant::now()))
    }
}

fn start(segment: &Path, directory: &Path) -> io::Result<u32> {
    let mut merger = own_program::command_in_own_session(MERGER);
    merger.arg(segment).arg(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(merger.spawn()?.id())
}

/// Writes the report of all nodes, as they are now, to the files that the user named. Returns the exit status. `None`: it lacks its
/// arguments, or there is nothing to merge yet.
pub(crate) fn serve_merger(args: &[OsString]) -> Option<i32> {
    let [_segment, directory] = args else { return None };
    let directory = NodeDirectory::local(Path::new(directory)).ok()?;
    let noted = report_note::read(directory.path())?;
    let targets = noted.joint.as_ref()?.targets.clone();
    let merged = gather::report_of_all(&directory, &directory.reports().ok()?)?;
    let written = write_files(&ReportConfig { targets, ..noted }, &merged.report);
    Some(i32::from(written.is_err()))
}
