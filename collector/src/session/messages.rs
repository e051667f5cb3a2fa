//! What the launcher sends to the collector: lines through a pipe, each a JSON object.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// Lines from the launcher.
pub(super) struct Messages {
    pipe: File,
    buffer: Vec<u8>,
    /// The launcher is gone.
    pub(super) is_closed: bool,
}

impl Messages {
    pub(super) fn new(pipe: OwnedFd) -> Self {
        Self { pipe: pipe.into(), buffer: Vec::new(), is_closed: false }
    }

    /// From now on, [`Self::line`] does not wait for a line.
    pub(super) fn never_wait(&self) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&self.pipe, true).map_err(io::Error::from)
    }

    /// Reads the next whole line, with its line break. Waits for it, unless [`Self::never_wait`] was called. `None`: there is no
    /// whole line yet, or the launcher is gone ([`Self::is_closed`]).
    pub(super) fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            match self.pipe.read(&mut chunk) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(None);
                }
                Ok(length) => self.buffer.extend_from_slice(chunk.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
