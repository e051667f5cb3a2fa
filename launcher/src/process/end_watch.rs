//! Waits in a thread for the end of a run that does not end with a child of the launcher. Such a run ends with the launcher's
//! input, or with the process that it attached to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::signals;

/// Starts a thread that calls `wait`, which returns at the end. Returns a flag that becomes true then; a SIGCHLD wakes this process,
/// which looks at it.
///
/// # Errors
/// If there is no room for a thread.
pub(crate) fn start(wait: impl FnOnce() + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let to_end = Arc::clone(&has_ended);
    let wait = move || {
        wait();
        to_end.store(true, Ordering::Release);
        signals::wake_this_process();
    };
    thread::Builder::new().spawn(wait).map(|_| has_ended)
}
