//! The state that Rust's runtime changes before `main`: it ignores SIGPIPE, and opens /dev/null in place of closed standard
//! descriptors. A constructor records both before that, so that the command can get them back. Other descriptors that this process
//! has inherited are checked or closed here, too.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;

use crate::process::signals;

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Notes the state of SIGPIPE and of the standard descriptors.
#[ctor::ctor(unsafe)]
fn record() {
    SIGPIPE_IGNORED.store(signals::is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: fcntl with F_GETFD has no preconditions.
        closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Whether SIGPIPE was ignored when the launcher was started.
pub(crate) fn was_sigpipe_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// The standard descriptors that were closed when the launcher was started.
pub(crate) fn closed_descriptors() -> impl Iterator<Item = i32> {
    (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd)
}

/// Whether this process has this descriptor open, and it is a file of this type. A helper checks by this what it was started with.
pub(crate) fn is_open(fd: RawFd, kind: FileType) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat writes to `found` alone. It fails if the descriptor is not open. Zeroed is a valid stat.
    let mode = unsafe {
        let result = libc::fstat(fd, found.as_mut_ptr());
        (result == 0).then(|| found.assume_init().st_mode)
    };
    mode.is_some_and(|mode| FileType::from_raw_mode(mode) == kind)
}

/// Closes what this process has inherited besides its standard streams: a reader of a pipe must see its end, however long the process
/// lives. Nothing in it may have opened a descriptor yet.
pub(crate) fn close_inherited() {
    close_inherited_but(&[]);
}

/// As [`close_inherited`], without these descriptors.
pub(crate) fn close_inherited_but(kept: &[RawFd]) {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let is_closed = |fd: &i32| *fd > libc::STDERR_FILENO && !kept.contains(fd);
    for fd in numbers.into_iter().filter(is_closed) {
        // SAFETY: nothing in this process has a descriptor of its own yet; that of the directory above is closed.
        unsafe { libc::close(fd) };
    }
}
