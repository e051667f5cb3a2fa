//! Waits, in a thread, for the end of what a run lasts as long as and that is no child of the launcher.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Signal, getpid, kill_process};

/// Starts a thread that waits, by a call that returns at the end. The result becomes true then, and a SIGCHLD wakes this process.
///
/// # Errors
/// If there is no room for a thread: nothing would tell of the end.
pub(crate) fn start(wait: impl FnOnce() + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let to_end = Arc::clone(&has_ended);
    let wait = move || {
        wait();
        to_end.store(true, Ordering::Release);
        // It can't fail: this process is its own.
        let _ = kill_process(getpid(), Signal::CHILD);
    };
    thread::Builder::new().spawn(wait).map(|_| has_ended)
}
