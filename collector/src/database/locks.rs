//! SQLite's locks on a database: ranges of bytes of its file (sqlite.org/lockingv3.html).
//!
//! They are locks of the open file (F_OFD_SETLK; fcntl(2)). A lock of the process would end when it closes any descriptor of the file.
//! Both kinds conflict with each other, so SQLite in other programs heeds them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::{c_int, c_short};

/// A range: its first byte and its length.
type Range = (i64, i64);

/// Held by a writer that waits until no reader is left.
const PENDING: Range = (0x4000_0000, 1);
/// Held by a writer during a transaction.
const RESERVED: Range = (PENDING.0 + 1, 1);
/// Readers share it, and a writer holds it alone while it changes the database. With a write-ahead log, each program that has the
/// database open shares it.
const SHARED: Range = (PENDING.0 + 2, 510);

/// Tries to take a reader's lock, without waiting. `false`: a writer has the database. The lock ends with the file's last descriptor.
///
/// # Errors
/// If the file system has no locks.
pub(super) fn share(file: &File) -> io::Result<bool> {
    // As SQLite does: while a writer waits, no new reader starts.
    if !set(file, libc::F_RDLCK, PENDING)? {
        return Ok(false);
    }
    let is_shared = set(file, libc::F_RDLCK, SHARED);
    set(file, libc::F_UNLCK, PENDING)?;
    is_shared
}

/// Whether a writer is in a transaction.
pub(super) fn is_reserved(file: &File) -> io::Result<bool> {
    is_locked(file, RESERVED)
}

/// Whether another program reads the database, or has it open with a write-ahead log.
pub(super) fn is_shared_by_others(file: &File) -> io::Result<bool> {
    is_locked(file, SHARED)
}

/// Whether another open file has a lock in the range.
fn is_locked(file: &File, range: Range) -> io::Result<bool> {
    let mut lock = lock(libc::F_WRLCK, range);
    // SAFETY: the kernel reads and writes one `flock`, which `lock` is.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(c_int::from(lock.l_type) != libc::F_UNLCK) }
}

/// Sets a lock of this kind (F_RDLCK, F_WRLCK), or ends one (F_UNLCK). `false`: another open file has one that conflicts.
fn set(file: &File, kind: c_int, range: Range) -> io::Result<bool> {
    let lock = lock(kind, range);
    // SAFETY: the kernel reads one `flock`, which `lock` is.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn lock(kind: c_int, (start, length): Range) -> libc::flock {
    let [kind, whence] = [kind, libc::SEEK_SET].map(|small| small as c_short);
    libc::flock { l_type: kind, l_whence: whence, l_start: start, l_len: length, l_pid: 0 }
}
