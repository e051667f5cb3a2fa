//! `--ready-fd`: a descriptor on which another program learns that the run has begun, with the environment variables that make
//! programs report to the run.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Map, Value, json};

/// Version of the line's form.
const VERSION: u32 = 1;

/// A pipe with room takes this much without waiting (PIPE_BUF, pipe(7)).
const ATOMIC_BYTES: usize = 4096;

/// The descriptor, which the launcher was started with.
#[derive(Debug)]
pub(crate) struct ReadyFd(File);

impl ReadyFd {
    /// Takes the descriptor, which nothing else in this process uses. Must be called before this process opens any file: otherwise
    /// `fd` could be the number of such a file.
    ///
    /// # Errors
    /// If it is not open.
    pub(crate) fn take(fd: RawFd) -> Result<Self, String> {
        // SAFETY: it only asks whether the descriptor is open.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(format!("{fd} is not an open descriptor: leave it open over exec"));
        }
        // SAFETY: it is open, and this process was started with it for this purpose.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // The collector must not keep the descriptor open. The call can't fail for an open descriptor.
        let _ = fcntl_setfd(&fd, FdFlags::CLOEXEC);
        Ok(Self(fd.into()))
    }

    /// Writes these variables as a line of JSON, and closes the descriptor. Variables whose value is not UTF-8 are left out. The line
    /// stops where a full pipe has no more room.
    pub(crate) fn tell(mut self, environment: Vec<(&str, OsString)>) {
        let text = |(name, value): (&str, OsString)| {
            Some((name.to_owned(), Value::String(value.into_string().ok()?)))
        };
        let mut named = Map::new();
        named.extend(environment.into_iter().filter_map(text));
        let line = format!("{}\n", json!({ "version": VERSION, "environment": named }));
        // A line of usual length is one part, so that a single read(2) gets all of it. Where nobody reads the line, the run goes on. A
        // full pipe must not stop the launcher, whose signals are blocked. O_NONBLOCK would hold for other users of the pipe, too.
        for part in line.as_bytes().chunks(ATOMIC_BYTES) {
            if !has_room(&self.0) || self.0.write_all(part).is_err() {
                return;
            }
        }
    }
}

/// Whether a write does not have to wait for a reader.
fn has_room(file: &File) -> bool {
    let mut fds = [PollFd::new(file, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}
