//! What the process knows of itself: static, zero at load, filled by the constructor and by fork children.
//!
//! Nobody but the process whose pid is in [`PID`] writes here: a vfork child would write into its parent.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use gpu_track_abi::MAX_SESSIONS;
use gpu_track_abi::layout::Header;

/// Segments that are mapped; the first null ends the list.
pub static SESSIONS: [AtomicPtr<Header>; MAX_SESSIONS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SESSIONS];
/// The pid that owns this memory.
pub static PID: AtomicU32 = AtomicU32::new(0);
/// The pid that called fork last.
pub static FORKER: AtomicU32 = AtomicU32::new(0);
/// Inode of its pid namespace; 0 if that is not known yet.
pub static PID_NAMESPACE: AtomicU32 = AtomicU32::new(0);
/// This process's own image wrote a START; a fork child's did not.
pub static IMAGE: AtomicBool = AtomicBool::new(false);
/// ru_maxrss at START, or when a seccomp filter came: the last value that may be known.
pub static MAX_RSS_KIB: AtomicU64 = AtomicU64::new(0);
/// EXIT is written.
pub static EXITED: AtomicBool = AtomicBool::new(false);
/// The argument of quick_exit, for its handler.
pub static QUICK_STATUS: AtomicI32 = AtomicI32::new(0);
/// A seccomp filter is on: no system call of ours any more.
pub static FILTERED: AtomicBool = AtomicBool::new(false);
/// Runs on valgrind's processor, which complains about each system call that it doesn't know.
pub static UNDER_VALGRIND: AtomicBool = AtomicBool::new(false);
/// The process traces others.
pub static TRACER: AtomicBool = AtomicBool::new(false);

/// The sessions that this process writes to.
pub fn sessions() -> impl Iterator<Item = &'static Header> {
    // SAFETY: a session is mapped and checked before it is published here, and is never unmapped.
    SESSIONS.iter().map_while(|s| unsafe { s.load(Relaxed).as_ref() })
}

/// Whether there is any session to write to.
pub fn is_active() -> bool {
    SESSIONS.first().is_some_and(|s| !s.load(Relaxed).is_null())
}

/// Forget the sessions: from now on the hooks only hand on.
pub fn go_inert() {
    for session in &SESSIONS {
        session.store(ptr::null_mut(), Relaxed);
    }
}

/// Whether system calls of ours are safe.
pub fn may_call() -> bool {
    !FILTERED.load(Relaxed)
}
