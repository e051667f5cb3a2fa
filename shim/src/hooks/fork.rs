//! FORK: a fork child runs in a copy of its parent's memory, so it first corrects what the shim's state there says about the process.
//!
//! libc's fork, daemon and forkpty run atfork handlers. `_Fork` (POSIX 2024) runs none and is hooked.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::Header;
use gpu_track_abi::record::Event;

use crate::{emit, env_repair, identity, next, state, sys, visibility};

/// Registers the atfork handlers [`before`] and [`in_child`].
pub(crate) fn register() {
    // glibc's libc.so exports no pthread_atfork: each library links its own copy of it, with its own handle.
    // SAFETY: the handlers stay loaded (-z nodelete); a null handle is never unregistered.
    unsafe {
        if let Some(register) = next::REGISTER_ATFORK.get() {
            register(Some(before), None, Some(in_child), ptr::null_mut());
        } else if let Some(register) = next::PTHREAD_ATFORK.get() {
            register(Some(before), None, Some(in_child));
        }
    }
}

/// Notes the pid of the process that forks, for the FORK record of its child. The child can't use getppid, since the parent may have
/// ended by then. It can't use [`state::PID`], which is wrong in a parent that a raw clone system call made.
extern "C" fn before() {
    if state::is_active() && state::may_call_kernel() {
        let pid = sys::getpid();
        // The same pid is not stored again, because after each fork the first write to a page is a page fault.
        if state::FORK_CALLER.load(Relaxed) != pid {
            state::FORK_CALLER.store(pid, Relaxed);
        }
    }
}

/// Runs in a fork child. Corrects the shim's state, which is a copy of the parent's, and writes FORK.
///
/// The child's pid namespace is unknown in two cases. Either the child is the first process of a new one, or the parent is, and no
/// hook has noticed that. Such a parent's pid is 1. In both cases 0 is stored, and `identify` finds the namespace.
extern "C" fn in_child() {
    if !state::is_active() {
        return;
    }
    env_repair::forget_owner();
    if !state::may_call_kernel() {
        // Without a system call the child can't learn its pid. Its parent's REAPED record has its figures.
        state::FILTERED_PID.store(state::UNKNOWN_PID, Relaxed);
        return;
    }
    // If the first access were a read, the kernel would map up to 15 more pages.
    state::sessions().for_each(Header::fault_in_for_writing);
    let parent = state::FORK_CALLER.load(Relaxed);
    // If this is true, a raw clone system call has made the parent. The state does not have its namespace (see
    // `pid_namespace_of` in `emit`).
    let parent_is_first_in_namespace = parent == 1 && state::PID.load(Relaxed) != 1;
    let mut parent_pid_ns = state::PID_NAMESPACE.load(Relaxed);
    let pid = sys::getpid();
    state::PID.store(pid, Relaxed);
    // getppid is 0 if the parent is in another pid namespace: the child is the first process of a new one.
    let is_in_unknown_namespace = parent_is_first_in_namespace || sys::getppid() == 0;
    if is_in_unknown_namespace {
        state::PID_NAMESPACE.store(0, Relaxed);
    }
    let pidfd_inode = identity::identify(pid, is_in_unknown_namespace);
    // `identify` has stored this process's pid namespace. Here it is the parent's, too.
    if parent_is_first_in_namespace {
        parent_pid_ns = state::PID_NAMESPACE.load(Relaxed);
    }
    state::WROTE_START.store(false, Relaxed);
    state::WROTE_EXIT.store(false, Relaxed);
    state::IS_TRACER.store(false, Relaxed);
    visibility::correct_in_fork_child();
    let max_rss_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    state::MAX_RSS_KIB.store(max_rss_kib, Relaxed);
    let origin = emit::origin_by_syscall(pid, parent);
    let realtime_ns = sys::clock_ns(libc::CLOCK_REALTIME);
    emit::emit(&origin, &Event::Fork { realtime_ns, pidfd_inode, max_rss_kib, parent_pid_ns }, emit::TO_ALL);
}

/// Hooks `_Fork`, which runs no atfork handlers: calls them around the next one.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> c_int {
    before();
    let pid = match next::UNDERSCORE_FORK.get() {
        // SAFETY: libc's function takes no arguments.
        Some(next) => unsafe { next() },
        // glibc before 2.34 has no _Fork. A program that looks for it by a weak reference finds this hook all the same.
        None => sys::into_errno(-(libc::ENOSYS as isize)) as c_int,
    };
    if pid == 0 {
        in_child();
    }
    pid
}
