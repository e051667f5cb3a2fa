//! Files and directories whose names another process may give to something else, and files with holes.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{CWD, Dir, Mode, OFlags, SeekFrom, openat, seek};
use rustix::io::Errno;
use rustix::path::Arg;

/// Bytes that are copied with one call at most.
const CHUNK: u64 = 1 << 20;

/// Opens a regular file. No link is followed, and no process at the other end of a fifo is waited for. `None`: it is no regular file.
///
/// # Errors
/// Any error of open(2).
pub(crate) fn open_regular(path: impl Arg, access: OFlags) -> io::Result<Option<(File, Metadata)>> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    let found = file.metadata()?;
    Ok(found.is_file().then_some((file, found)))
}

/// Opens a directory, by its path or by its name in the directory `at`. It must not be a link.
///
/// # Errors
/// Any error of open(2).
pub(crate) fn open_directory(at: impl AsFd, path: impl Arg) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?.into())
}

/// The names of a directory's entries. What is not UTF-8 in a name is replaced.
///
/// # Errors
/// If the directory can't be read.
pub(crate) fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let names = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !matches!(name.as_deref(), Ok("." | ".."))).collect()
}

/// Copies a range of bytes to the same place of another file. Stops after `most` bytes, or up to a chunk later. Holes stay holes.
///
/// # Errors
/// If bytes can't be read or written.
pub(crate) fn copy_range(from: &File, to: &File, range: Range<u64>, most: u64) -> io::Result<()> {
    let (mut at, mut copied) = (range.start, 0);
    while at < range.end && copied < most {
        let begin = match seek(from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(()),
            found => found?.min(range.end),
        };
        let hole = seek(from, SeekFrom::Hole(begin))?.min(range.end);
        let mut bytes = vec![0; usize::try_from((hole - begin).min(CHUNK)).unwrap_or_default()];
        let read = from.read_at(&mut bytes, begin)?;
        to.write_all_at(bytes.get(..read).unwrap_or_default(), begin)?;
        copied += read as u64;
        // If nothing is read, the file was truncated meanwhile.
        at = if read == 0 { range.end } else { begin + read as u64 };
    }
    Ok(())
}
