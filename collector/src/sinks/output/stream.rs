//! A report to a fifo, a terminal, a device, or a file that a process has open.
//!
//! The path is opened at the run's end, when another user may have put something else there. So the file must be the one
//! that was found at the start. It is not opened before that is known: to open a device can have side effects.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;

use super::check_same;
use crate::model::style::StreamFile;

/// How long a fifo may be without a reader.
const READER_PATIENCE: Duration = Duration::from_secs(5);
/// How often the open is tried while a fifo has no reader.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a reader may take nothing. A user may have stopped the terminal with Ctrl-S.
const STALL: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// Appends a report.
///
/// # Errors
/// If the file is another one than at the start, has no reader, or can't be written.
pub(super) fn append(stream: &StreamFile, bytes: &[u8]) -> io::Result<()> {
    append_within(stream, bytes, READER_PATIENCE)
}

/// Does what [`append`] does, and waits at most `patience` for the reader of a fifo.
fn append_within(stream: &StreamFile, bytes: &[u8], patience: Duration) -> io::Result<()> {
    write_all(open_within(stream, patience)?, bytes, Some(STALL))
}

/// Opens the file to append to it. Waits at most `patience` for the reader of a fifo. The descriptor is non-blocking.
fn open_within(stream: &StreamFile, patience: Duration) -> io::Result<File> {
    let start = Instant::now();
    let found = open_path(stream)?;
    // This opens the inode that was checked, whatever has its name by now.
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    loop {
        match open(path.as_str(), flags, Mode::empty()) {
            // A fifo that no process reads (fifo(7)).
            Err(Errno::NXIO) if stream.kind == libc::S_IFIFO => {
                if start.elapsed() >= patience {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no process reads it"));
                }
                thread::sleep(LOOK_EVERY);
            }
            result => return Ok(result?.into()),
        }
    }
}

/// Opens the path with O_PATH, which does not open a device behind it. Fails if the file is not the one of the run's start.
fn open_path(stream: &StreamFile) -> io::Result<File> {
    let found = File::from(openat(CWD, &stream.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    check_same(stream, &found.metadata()?)?;
    Ok(found)
}

/// Writes all bytes. Waits whenever the file takes no more for the moment, each time for at most `patience`, or without a limit.
pub(in crate::sinks) fn write_all(
    file: impl AsFd,
    mut bytes: &[u8],
    patience: Option<Timespec>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::AGAIN) => await_space(file.as_fd(), patience)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until the file takes bytes again, or a signal comes. Fails after `patience`.
fn await_space(file: BorrowedFd, patience: Option<Timespec>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(file, PollFlags::OUT)], patience.as_ref()) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing")),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rustix::fs::{FileType, mknodat};

    use super::*;
    use crate::model::style::Output;
    use crate::sinks::output::output_at;

    fn fifo(path: &Path) -> StreamFile {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let Output::Stream(stream) = output_at(path).unwrap() else { panic!("a fifo is a stream") };
        stream
    }

    // Requirement: OUT-20
    #[test]
    fn fifo_replaced_during_the_run_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("fifo"), directory.path().join("victim"));
        fs::write(&victim, "theirs").unwrap();
        let stream = fifo(&path);
        fs::rename(&path, directory.path().join("away")).unwrap();
        let refused = || append(&stream, b"a report").unwrap_err().to_string();
        assert!(refused().contains("No such file"));
        symlink(&victim, &path).unwrap();
        assert!(refused().contains("another file than at the start"));
        fs::remove_file(&path).unwrap();
        fs::hard_link(&victim, &path).unwrap();
        assert!(refused().contains("another file than at the start"));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    }

    // Requirement: OUT-21
    #[test]
    fn fifo_without_a_reader_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let stream = fifo(&directory.path().join("fifo"));
        let error = append_within(&stream, b"x", Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "no process reads it");
    }

    #[test]
    fn slow_reader_gets_all_of_a_long_report() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let stream = fifo(&path);
        // A pipe holds 64 KiB.
        let report = "x".repeat(1 << 20);
        let reader = thread::spawn(move || fs::read_to_string(path));
        append(&stream, report.as_bytes()).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), report);
    }
}
