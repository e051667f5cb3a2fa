//! Joins the sessions that the environment names: opens, checks and maps each segment, and closes its descriptor.

use core::ffi::{CStr, c_int};
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::{Header, MAGIC, TRACKED_SIZE};
use gpu_track_abi::{MAX_PATH, MAX_SESSIONS};

use crate::{next, state, sys};

/// Maps the segments of a colon-separated list. Skips those that can't be used.
pub(crate) fn map_all(list: &[u8]) {
    let user = next::effective_user();
    let mut free_slots = state::SESSIONS.iter();
    for path in list.split(|b| *b == b':').take(MAX_SESSIONS) {
        if let Some(header) = map(path, user)
            && let Some(slot) = free_slots.next()
        {
            slot.store(core::ptr::from_ref(header).cast_mut(), Relaxed);
        }
    }
}

/// Opens the segment at this path for reading and writing. Returns its descriptor and what fstat says of it. `flags`: more flags for
/// open(2). `user`: the process's effective user. `None`: the path is too long, or names no file that may be opened.
///
/// The file must be a regular file, of this user or [mounted by itself](is_given). Root's environment can name another user's file
/// (`su -m`, `sudo -E`). That user could read the records, or truncate the file, so that access to the mapping is a SIGBUS. Other kinds
/// of files are not opened, because opening a device can have side effects.
pub(crate) fn open(path: &[u8], flags: c_int, user: u32) -> Option<(usize, libc::stat)> {
    let mut buffer = [0u8; MAX_PATH + 1];
    buffer
        .get_mut(..path.len().min(MAX_PATH + 1))?
        .copy_from_slice(path.get(..path.len().min(MAX_PATH + 1))?);
    // Fails if the path is too long for its NUL to fit.
    let path = CStr::from_bytes_until_nul(&buffer).ok()?;
    let found = sys::stat_at(libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW);
    let is_regular = |found: &libc::stat| found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let may_open = is_regular(&found)
        && (found.st_uid == user
            || sys::is_mount_root(libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_NOFOLLOW));
    if !may_open {
        return None;
    }
    let fd = sys::open(path, flags | libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK)?;
    // The path can stand for another file by now.
    match sys::fstat(fd).filter(|found| is_regular(found) && (found.st_uid == user || is_given(fd))) {
        Some(opened) => Some((fd, opened)),
        None => {
            sys::close(fd);
            None
        }
    }
}

/// Whether an open file of another user was mounted by itself, as a container gets the session of `--containers`. Who can do that
/// may mount here, and has power over this process anyway. In shared memory: fusermount(1) lets any user mount a file, but of FUSE.
#[cold]
fn is_given(fd: usize) -> bool {
    sys::is_mount_root(fd as c_int, c"".as_ptr(), libc::AT_EMPTY_PATH) && sys::is_on_tmpfs(fd)
}

/// Maps the segment at this path, for good, and keeps it out of core dumps. If this process is in the launcher's pid namespace,
/// stores that namespace's inode in [`state::PID_NAMESPACE`]. `None`: the file can't be opened, is no segment of this version, or
/// its session is closed.
fn map(path: &[u8], user: u32) -> Option<&'static Header> {
    let (fd, found) = open(path, 0, user)?;
    // The size is checked because an access beyond the file's end is a SIGBUS. The magic is read before mapping, because
    // `fault_in_for_writing` would change the times of a file that is no segment.
    let is_segment = found.st_size >= TRACKED_SIZE as libc::off_t
        && sys::read_number(fd, offset_of!(Header, magic)) == Some(MAGIC);
    let address = if is_segment { sys::mmap(TRACKED_SIZE, Some(fd)) } else { None };
    let lock_holder = sys::lock_holder(fd);
    sys::close(fd);
    let address = address?;
    // SAFETY: the mapping is page-aligned and larger than a Header, for which any bytes are valid.
    let header = unsafe { &*address.cast::<Header>() };
    // If the first access were a read, the kernel would map up to 15 more pages.
    header.fault_in_for_writing();
    if header.is_compatible() && header.is_open() {
        sys::dont_dump(address, TRACKED_SIZE);
        // The launcher holds a record lock. Only in its own pid namespace is its pid the one in the header.
        if lock_holder != 0 && lock_holder == header.launcher_pid {
            state::PID_NAMESPACE.store(header.launcher_pid_ns, Relaxed);
        }
        return Some(header);
    }
    // SAFETY: the reference is not used again.
    unsafe { sys::munmap(address, TRACKED_SIZE) };
    None
}
