//! A limit for work that a file system may never answer: a stopped FUSE program, a dead NFS server.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};

use crate::process::signals;

/// Enough for system calls with paths. Memory for it counts for `ulimit -v`.
const STACK_BYTES: usize = 256 * 1024;

/// Whether [`in_thread`] was called.
static HAS_STARTED_THREAD: AtomicBool = AtomicBool::new(false);

/// Whether this process has started a thread for such work.
pub(crate) fn has_started_thread() -> bool {
    HAS_STARTED_THREAD.load(Ordering::Relaxed)
}

/// Does `work` in a thread of its own, and returns its result. `None`: it takes longer than `limit`, and goes on in that thread, which
/// ends with the process. Where no thread can be started, the work is done in this one, without a limit.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl Fn() -> T + Clone + Send + 'static,
) -> Option<T> {
    let (sender, result) = mpsc::sync_channel(1);
    // A copy: it is lost if no thread can be started.
    let of_thread = work.clone();
    // Sending fails if nothing waits any more.
    match in_thread(move || drop(sender.send(of_thread()))) {
        Ok(()) => result.recv_timeout(limit).ok(),
        // No thread: a limit of processes or of memory is reached.
        Err(_) => Some(unlimited(work)),
    }
}

/// Starts a thread that does this work, and does not wait for it. A thread that does not end by itself ends with the process.
///
/// The thread blocks all signals but those of faults. The kernel gives a signal to any thread that does not block it. The signal would
/// end the process although the launcher's own thread blocks it.
///
/// # Errors
/// If no thread can be started: a limit of processes or of memory.
pub(crate) fn in_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let of_thread = move || {
        signals::block(&signals::all_but_faults());
        work();
    };
    HAS_STARTED_THREAD.store(true, Ordering::Relaxed);
    thread::Builder::new().stack_size(STACK_BYTES).spawn(of_thread).map(drop)
}

/// Whether the file system of this directory is sure to answer, so that work in it needs no limit and no thread. That is so if it is on
/// a disk of this machine, and the kernel has its path in memory. False where finding out would mean waiting: RESOLVE_CACHED
/// (Linux 5.12) fails instead of waiting for a file system, and AT_STATX_DONT_SYNC takes what is known.
///
/// File systems of the network and of FUSE have no device, so their major number is 0. That of btrfs and overlayfs is 0, too: there a
/// thread is started without need. FUSE on a block device (ntfs-3g) counts as a disk.
pub(crate) fn is_on_disk(directory: &Path) -> bool {
    let at_hand = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, directory, flags, Mode::empty(), at_hand)
        .and_then(|found| {
            statx(found, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)
        })
        .is_ok_and(|found| found.stx_dev_major != 0)
}

/// Does work in this thread, without a limit of time, with SIGXFSZ blocked. A write beyond a limit of file sizes (`ulimit -f`) raises
/// that signal, which would end the launcher. The write's error says the same.
pub(crate) fn unlimited<T>(work: impl FnOnce() -> T) -> T {
    let exceeded = signals::only(libc::SIGXFSZ);
    let before = signals::block(&exceeded);
    let result = work();
    signals::discard_pending(&exceeded);
    signals::restore(&before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: FAULT-14
    #[test]
    fn work_that_does_not_end_is_left_alone() {
        let (_never, forever) = mpsc::channel::<()>();
        let forever = std::sync::Arc::new(std::sync::Mutex::new(forever));
        let stuck = move || forever.lock().map(|forever| forever.recv().is_ok()).is_ok();
        assert_eq!(within(Duration::from_millis(1), stuck), None);
        assert_eq!(within(Duration::from_secs(60), || 5), Some(5));
        assert_eq!(unlimited(|| 6), 6);
    }

    #[test]
    fn only_a_directory_on_a_disk_needs_no_limit() {
        assert!(!is_on_disk(Path::new("/proc")) && !is_on_disk(Path::new("/no/such")));
    }
}
