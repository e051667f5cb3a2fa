//! What a fork child does first: it has its parent's memory, and so its parent's idea of who it is.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::Header;
use gpu_track_abi::record::Event;

use crate::{emit, env_repair, identity, next, state, sys};

/// Have libc's fork, and so daemon and forkpty, call [`before`] and [`in_child`].
pub fn register() {
    // pthread_atfork itself is no symbol of glibc's libc.so: each library has its own copy, with its own handle.
    // SAFETY: the handler stays loaded (-z nodelete); a null handle is never unregistered.
    unsafe {
        if let Some(register) = next::REGISTER_ATFORK.get() {
            register(Some(before), None, Some(in_child), ptr::null_mut());
        } else if let Some(register) = next::PTHREAD_ATFORK.get() {
            register(Some(before), None, Some(in_child));
        }
    }
}

/// Note who forks: the child of a clone system call by hand is not who its memory says, and the child can't ask, since
/// its parent may be gone by then.
pub extern "C" fn before() {
    if state::is_active() && state::may_call() {
        let pid = sys::getpid();
        // After each fork the first write to a page is a page fault.
        if state::FORKER.load(Relaxed) != pid {
            state::FORKER.store(pid, Relaxed);
        }
    }
}

/// Become a process of one's own, and write FORK.
pub extern "C" fn in_child() {
    if !state::is_active() {
        return;
    }
    if !state::may_call() {
        // Without a system call the child can't learn its pid; its parent's wait says the rest.
        state::go_inert();
        return;
    }
    state::sessions().for_each(Header::take_page);
    let parent = state::FORKER.load(Relaxed);
    // It was made by a clone system call into a pid namespace of which this memory knows nothing (see `emit`).
    let parent_has_moved = parent == 1 && state::PID.load(Relaxed) != 1;
    let mut parent_pid_ns = state::PID_NAMESPACE.load(Relaxed);
    let pid = sys::getpid();
    state::PID.store(pid, Relaxed);
    // A parent that can't be seen from here is in another pid namespace: this is the first process of a new one.
    let is_elsewhere = parent_has_moved || sys::getppid() == 0;
    if is_elsewhere {
        state::PID_NAMESPACE.store(0, Relaxed);
    }
    let pidfd_inode = identity::identify(pid, is_elsewhere);
    if parent_has_moved {
        parent_pid_ns = state::PID_NAMESPACE.load(Relaxed);
    }
    state::IMAGE.store(false, Relaxed);
    state::EXITED.store(false, Relaxed);
    state::TRACER.store(false, Relaxed);
    env_repair::forget_owner();
    let max_rss_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    state::MAX_RSS_KIB.store(max_rss_kib, Relaxed);
    let origin = emit::origin_once(pid, parent);
    let realtime_ns = sys::clock_ns(libc::CLOCK_REALTIME);
    emit::emit(&origin, &Event::Fork { realtime_ns, pidfd_inode, max_rss_kib, parent_pid_ns }, 0);
}

/// `_Fork`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    before();
    let pid = match next::UNDERSCORE_FORK.get() {
        // SAFETY: libc's function.
        Some(next) => unsafe { next() },
        // glibc before 2.34: nobody links to it there, but a weak reference would find this one.
        None => sys::into_errno(-(libc::ENOSYS as isize)) as c_int,
    };
    if pid == 0 {
        in_child();
    }
    pid
}
