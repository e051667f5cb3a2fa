//! The state that Rust's runtime changes before `main`: it ignores SIGPIPE, and opens /dev/null in place of closed
//! standard descriptors. A constructor records both before that, so that the command can get them back.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::signals;

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

/// Gives the standard descriptors that were closed when the launcher was started.
pub(crate) fn closed_descriptors() -> impl Iterator<Item = i32> {
    (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd)
}
