//! What the hooks know about their process. All of it is static and zero at load. The constructor fills it, and each fork child
//! corrects its copy.
//!
//! Only the process whose pid is in [`PID`] writes here: a vfork child would write into its parent's memory. The note of a
//! seccomp filter is an exception, which the parent takes back when it reaps the child.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use gpu_track_abi::MAX_SESSIONS;
use gpu_track_abi::layout::Header;

/// Mapped segments; the first null ends the list.
pub(crate) static SESSIONS: [AtomicPtr<Header>; MAX_SESSIONS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SESSIONS];
/// The pid of the process that owns this memory.
pub(crate) static PID: AtomicU32 = AtomicU32::new(0);
/// The pid of the process that called fork last.
pub(crate) static FORK_CALLER: AtomicU32 = AtomicU32::new(0);
/// Inode of the process's pid namespace; 0 while it is unknown.
pub(crate) static PID_NAMESPACE: AtomicU32 = AtomicU32::new(0);
/// Whether this image wrote START. False in a fork child until it execs.
pub(crate) static WROTE_START: AtomicBool = AtomicBool::new(false);
/// Whether this process wrote EXIT.
pub(crate) static WROTE_EXIT: AtomicBool = AtomicBool::new(false);
/// ru_maxrss at START or FORK. Under a seccomp filter: the value that was read just before the filter was installed.
pub(crate) static MAX_RSS_KIB: AtomicU64 = AtomicU64::new(0);
/// The argument of quick_exit, for the handler that writes EXIT.
pub(crate) static QUICK_EXIT_STATUS: AtomicI32 = AtomicI32::new(0);
/// Seccomp filters that were installed, or are just being installed.
static FILTERS: AtomicU32 = AtomicU32::new(0);
/// The pid of the process that installed the first filter, as long as [`FILTERS`] is not 0. [`UNKNOWN_PID`]: not known. A process that
/// a raw clone system call made can have another one than [`PID`], also in memory that it shares with its parent (CLONE_VM).
pub(crate) static FILTERED_PID: AtomicU32 = AtomicU32::new(0);
/// In [`FILTERED_PID`]: the process can't ask the kernel for its pid.
pub(crate) const UNKNOWN_PID: u32 = u32::MAX;
/// The process runs under valgrind, which complains about each system call that it does not know.
pub(crate) static IS_UNDER_VALGRIND: AtomicBool = AtomicBool::new(false);
/// The process traces others (ptrace).
pub(crate) static IS_TRACER: AtomicBool = AtomicBool::new(false);

/// The sessions that this process writes to.
pub(crate) fn sessions() -> impl Iterator<Item = &'static Header> {
    // SAFETY: a session is mapped and checked before it is stored here, and is never unmapped.
    SESSIONS.iter().map_while(|s| unsafe { s.load(Relaxed).as_ref() })
}

/// Whether there is a session to write to.
pub(crate) fn is_active() -> bool {
    SESSIONS.first().is_some_and(|s| !s.load(Relaxed).is_null())
}

/// Whether the shim may make system calls of its own. A seccomp filter may kill the process for them.
///
/// A process can't see its filters without a system call, so only those count whose installation the hooks saw
/// ([`crate::hooks::sandbox`]). In memory shared with another process (CLONE_VM), the other's filter counts, too: to ask which of the
/// two is running would itself be a system call.
pub(crate) fn may_call_kernel() -> bool {
    FILTERS.load(Relaxed) == 0
}

/// Notes a seccomp filter before it is installed. `pid`: the process that installs it.
pub(crate) fn note_filter(pid: u32) {
    FILTERED_PID.store(pid, Relaxed);
    FILTERS.fetch_add(1, Relaxed);
}

/// Notes one more filter where one is noted.
pub(crate) fn note_further_filter() {
    FILTERS.fetch_add(1, Relaxed);
}

/// Takes back the note of a filter that could not be installed.
pub(crate) fn forget_failed_filter() {
    FILTERS.fetch_sub(1, Relaxed);
}

/// Forgets the filter of a child that ended, if the child installed it while it ran in this process's memory. Returns whether there was
/// one. If a second filter was noted, nothing is forgotten, since that filter may be this process's own.
pub(crate) fn forget_filter_of(child: u32) -> bool {
    FILTERED_PID.load(Relaxed) == child
        && child != PID.load(Relaxed)
        && FILTERS.compare_exchange(1, 0, Relaxed, Relaxed).is_ok()
}
