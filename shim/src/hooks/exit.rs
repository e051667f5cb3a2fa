//! EXIT: a process's usage and status at its end.
//!
//! An `on_exit` handler gets the status, and runs last because it is registered first. A destructor gets no status
//! and runs too early, so it is used only if libc has no `on_exit` (musl). `abort`, signals and libc's internal `_exit` (in
//! daemon and posix_spawn) cause no EXIT. Then the figures come from the parent's REAPED record.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gpu_track_abi::record::{
    Event, FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_GPU_LIBRARY, FLAG_IMAGE, FLAG_NO_STATUS,
};

use crate::{emit, gpu_library, next, proc_status, rss, state, sys};

assert_signatures_of_libc! { _exit }

/// The `on_exit` handler is registered.
static HAS_ON_EXIT: AtomicBool = AtomicBool::new(false);

/// Registers handlers for exit and quick_exit.
pub(crate) fn register() {
    // SAFETY: the handlers stay loaded (-z nodelete).
    unsafe {
        if let Some(on_exit) = next::ON_EXIT.get() {
            HAS_ON_EXIT.store(on_exit(at_exit, ptr::null_mut()) == 0, Relaxed);
        }
        if let Some(at_quick_exit) = next::AT_QUICK_EXIT.get() {
            at_quick_exit(at_quick_exit_handler, ptr::null_mut());
        }
    }
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    write_exit(status, 0);
}

extern "C" fn at_quick_exit_handler(_: *mut c_void) {
    write_exit(state::QUICK_EXIT_STATUS.load(Relaxed), 0);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn destructor() {
    if !HAS_ON_EXIT.load(Relaxed) {
        write_exit(0, FLAG_NO_STATUS);
    }
}

/// Writes EXIT, once for each process. `status` is the argument of exit, and `flags` are flags of the record (`FLAG_*`; 0: none). The
/// EXIT of a vfork child has a flag which says that it runs in its parent's memory.
fn write_exit(status: c_int, flags: u8) {
    // The usage needs system calls, for which a seccomp filter may kill the process. An EXIT with zeros would claim
    // that no CPU time was used, so no EXIT is written then.
    if !state::is_active() || !state::may_call_kernel() {
        return;
    }
    let pid = sys::getpid();
    // If the pids differ, this is a vfork child or a raw clone child, and the state is its parent's.
    let is_borrowed = pid != state::PID.load(Relaxed);
    if !is_borrowed && state::WROTE_EXIT.swap(true, Relaxed) {
        return;
    }
    if !is_borrowed {
        // Before Linux 6.2, ru_maxrss lacks this thread's last page faults.
        rss::flush_thread_rss();
    }
    // The process's usage after this point is in no record.
    let own = emit::usage(&sys::getrusage(libc::RUSAGE_SELF));
    let children = emit::usage(&sys::getrusage(libc::RUSAGE_CHILDREN));
    let mut origin = emit::origin_by_syscall(pid, sys::getppid());
    origin.flags = flags;
    let mut vm_hwm_kib = 0;
    if is_borrowed {
        origin.flags |= FLAG_BORROWED_MEMORY;
        // A raw clone child may be in another pid namespace.
        origin.pid_ns = sys::pid_namespace();
    } else if state::WROTE_START.load(Relaxed) {
        origin.flags |= FLAG_IMAGE;
        // If ru_maxrss is no larger than at START, it can be the peak of an earlier image.
        if own.max_rss_kib <= state::MAX_RSS_KIB.load(Relaxed) {
            vm_hwm_kib = proc_status::vm_hwm_kib();
        }
    }
    if sys::ignores_sigchld() {
        origin.flags |= FLAG_AUTOREAP;
    }
    // The libraries that a vfork child's memory has are its parent's.
    if !is_borrowed && gpu_library::is_loaded() == Some(true) {
        origin.flags |= FLAG_GPU_LIBRARY;
    }
    emit::emit(&origin, &Event::Exit { status, vm_hwm_kib, own, children }, emit::TO_ALL);
}

/// Hooks `_exit`, which calls no handlers: writes EXIT before it.
#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    write_exit(status, 0);
    match next::UNDERSCORE_EXIT.get() {
        // SAFETY: libc's function takes a number.
        Some(next) => unsafe { next(status) },
        None => sys::exit_group(status),
    }
}

/// Hooks `_Exit`, ISO C's name of `_exit`, by the hook of `_exit`. libc's own `_Exit` does not pass through that hook.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: `_exit` takes a number.
    unsafe { _exit(status) }
}

/// Hooks `quick_exit`: keeps the status for the EXIT record, which a handler writes. Handlers of `quick_exit` do not get it.
#[unsafe(no_mangle)]
unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    if state::is_active() && state::may_call_kernel() && sys::getpid() == state::PID.load(Relaxed) {
        state::QUICK_EXIT_STATUS.store(status, Relaxed);
    }
    match next::QUICK_EXIT.get() {
        // SAFETY: libc's function takes a number.
        Some(next) => unsafe { next(status) },
        // SAFETY: the caller keeps libc's contract.
        None => unsafe { _exit(status) },
    }
}
