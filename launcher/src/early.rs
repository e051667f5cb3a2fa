//! What Rust's runtime changes before `main`, recorded before it does: it ignores SIGPIPE, and opens /dev/null in the
//! place of closed standard descriptors. The command must get what we got.

use std::sync::atomic::{AtomicBool, Ordering};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

#[ctor::ctor(unsafe)]
fn record() {
    SIGPIPE_IGNORED.store(crate::signals::is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: fcntl with F_GETFD has no preconditions.
        closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1, Ordering::Relaxed);
    }
}

/// Whether SIGPIPE was ignored when we were started.
pub fn was_sigpipe_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

/// The standard descriptors that were closed when we were started.
pub fn closed_descriptors() -> impl Iterator<Item = i32> {
    (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd)
}
