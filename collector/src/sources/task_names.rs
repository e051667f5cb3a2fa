//! Reads names of tasks from files of the programs that run them, when the run is over. The report waits for it, and the files can be on
//! a file system that does not answer. So a thread reads them, for a limited time.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// For how long files are read.
const TIME_TO_READ: Duration = Duration::from_millis(750);
/// For how long the thread that reads them is waited for. What it has found by its own deadline arrives within this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names of tasks, each with the hash of its mark.
pub(crate) type Names = Vec<(u32, String)>;

/// Runs `read` in a thread, with the time at which it is to end. Returns what it has found, or nothing if it takes longer.
pub(super) fn in_time(read: impl FnOnce(Instant) -> Names + Send + 'static) -> Names {
    let deadline = Instant::now() + TIME_TO_READ;
    let (sender, found) = mpsc::sync_channel(1);
    if thread::Builder::new().spawn(move || sender.send(read(deadline))).is_err() {
        return Vec::new();
    }
    found.recv_timeout(PATIENCE).unwrap_or_default()
}

/// The directory that the command names with one of these options, in the word after it or behind `=`, from `directory` on. `None`: it
/// names none.
pub(super) fn directory_of(directory: &Path, command: &[String], options: &[&str]) -> Option<PathBuf> {
    let next = command.iter().skip(1).map(Some).chain([None]);
    let value = command.iter().zip(next).find_map(|(word, next)| {
        options.iter().find_map(|option| match word.strip_prefix(option)? {
            "" => next.map(String::as_str),
            rest => rest.strip_prefix('='),
        })
    });
    value.map(|value| directory.join(value))
}

/// The first bytes of a text, at most `most`, without a part of a character.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
