//! What the command of `--on-alert` writes, which is passed on to stderr.
//!
//! A thread writes it: a write to stderr blocks while its reader does not read, and the command's time is limited.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes that stderr gets at most.
pub(crate) const MOST_OUTPUT: usize = 64 * 1024;
/// At the end, stderr has this time to take what it has not taken yet.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// The output of a command.
pub(crate) struct Output {
    /// `None`: all that had the other end have ended.
    pipe: Option<PipeReader>,
    /// Bytes that stderr still gets.
    room: usize,
    /// stderr did not get all.
    is_cut: bool,
    /// `None`: stderr gets nothing more.
    writer: Option<Writer>,
}

impl Output {
    /// Makes the output that comes by a pipe.
    pub(crate) fn new(pipe: PipeReader) -> Self {
        Self { pipe: Some(pipe), room: MOST_OUTPUT, is_cut: false, writer: Writer::start().ok() }
    }

    /// Waits for output, at most for `wait`, which is shorter than a second, and passes it on. Returns whether there was any. After
    /// the end of the output, it only sleeps: the caller's loop relies on the wait.
    pub(crate) fn pass_on(&mut self, wait: Duration) -> bool {
        let Some(pipe) = &mut self.pipe else {
            thread::sleep(wait);
            return false;
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        if !matches!(poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)), Ok(1..)) {
            return false;
        }
        let mut bytes = [0; 4096];
        match pipe.read(&mut bytes) {
            Ok(length) if length > 0 => {
                self.write(bytes.get(..length).unwrap_or_default());
                true
            }
            _ => {
                self.pipe = None;
                false
            }
        }
    }

    /// Hands bytes to the thread that writes, as many as there is room for, and notes if stderr does not get all.
    fn write(&mut self, bytes: &[u8]) {
        let part = bytes.get(..self.room).unwrap_or(bytes);
        self.is_cut |= part.len() < bytes.len();
        if !part.is_empty() {
            let send = |writer: &Writer| writer.chunks.send(part.to_vec()).is_ok();
            self.is_cut |= !self.writer.as_ref().is_some_and(send);
            self.room -= part.len();
        }
    }

    /// Passes on what is left in the pipe, waits until it is written, at most for [`TAKEN_WITHIN`], and lets go of stderr. Returns
    /// whether stderr did not get all. What the command writes later is not read.
    pub(crate) fn finish(&mut self) -> bool {
        while !self.is_cut && self.pass_on(Duration::ZERO) {}
        self.is_cut |= self.writer.take().is_some_and(|writer| !writer.finish());
        self.let_go_of_stderr();
        self.is_cut
    }

    /// Closes the stderr that this process has inherited from the launcher: its reader must see its end when the launcher has
    /// ended. /dev/null takes its place, so what is written later is lost.
    pub(crate) fn let_go_of_stderr(&self) {
        if let Ok(null) = File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stderr(null);
        }
    }
}

/// The thread that writes to stderr.
struct Writer {
    chunks: Sender<Vec<u8>>,
    /// Receives whether all was written.
    result: Receiver<bool>,
}

impl Writer {
    /// # Errors
    /// If there is no room for a thread.
    fn start() -> io::Result<Self> {
        let (chunks, to_write) = channel::<Vec<u8>>();
        let (done, result) = channel();
        thread::Builder::new().spawn(move || {
            let is_written = to_write.iter().all(|chunk| io::stderr().write_all(&chunk).is_ok());
            let _ = done.send(is_written);
        })?;
        Ok(Self { chunks, result })
    }

    /// Waits until all is written, for [`TAKEN_WITHIN`] at most. Returns whether it is.
    fn finish(self) -> bool {
        drop(self.chunks);
        self.result.recv_timeout(TAKEN_WITHIN) == Ok(true)
    }
}
