//! EXIT: what a process says of itself at its end.
//!
//! `on_exit` gives the status and runs last of all, since it is registered first; a destructor knows no status and
//! runs too early, so it stands in only where there is no `on_exit` (musl). `abort`, signals and libc's internal
//! `_exit` (in daemon and posix_spawn) leave no EXIT: there the parent's REAPED says it all.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use gpu_track_abi::record::{Event, FLAG_AUTOREAP, FLAG_BORROWED_MEMORY, FLAG_IMAGE, FLAG_NO_STATUS};

use crate::proc_status::vm_hwm_kib;
use crate::{emit, next, rss, state, sys};

/// libc tells the status at exit.
static HAS_ON_EXIT: AtomicBool = AtomicBool::new(false);

/// Have libc call back at exit and quick_exit.
pub fn register() {
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
    write_exit(state::QUICK_STATUS.load(Relaxed), 0);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn destructor() {
    if !HAS_ON_EXIT.load(Relaxed) {
        write_exit(0, FLAG_NO_STATUS);
    }
}

fn write_exit(status: c_int, flags: u8) {
    // Figures need system calls, and a kill filter would turn status 0 into 159. An EXIT of zeros would say that no
    // CPU time was used: none at all says that it is not known.
    if !state::is_active() || !state::may_call() {
        return;
    }
    let pid = sys::getpid();
    let borrowed = pid != state::PID.load(Relaxed);
    if !borrowed && state::EXITED.swap(true, Relaxed) {
        return;
    }
    if !borrowed {
        rss::hand_in();
    }
    // In this order: what is done from here on is in nobody's figures.
    let own = emit::usage(&sys::getrusage(libc::RUSAGE_SELF));
    let children = emit::usage(&sys::getrusage(libc::RUSAGE_CHILDREN));
    let mut origin = emit::origin_once(pid, sys::getppid());
    origin.flags = flags;
    let mut peak_kib = 0;
    if borrowed {
        origin.flags |= FLAG_BORROWED_MEMORY;
        // A raw clone may have gone to another namespace.
        origin.pid_ns = sys::pid_namespace();
    } else if state::IMAGE.load(Relaxed) {
        origin.flags |= FLAG_IMAGE;
        if own.max_rss_kib <= state::MAX_RSS_KIB.load(Relaxed) {
            peak_kib = vm_hwm_kib();
        }
    }
    if sys::ignores_sigchld() {
        origin.flags |= FLAG_AUTOREAP;
    }
    emit::emit(&origin, &Event::Exit { status, vm_hwm_kib: peak_kib, own, children }, 0);
}

/// `_exit`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    write_exit(status, 0);
    match next::UNDERSCORE_EXIT.get() {
        // SAFETY: libc's function.
        Some(next) => unsafe { next(status) },
        None => sys::exit_group(status),
    }
}

/// `_Exit`, the same as `_exit`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same promises.
    unsafe { _exit(status) }
}

/// `quick_exit`, whose handlers are not told the status.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    if state::is_active() && state::may_call() && sys::getpid() == state::PID.load(Relaxed) {
        state::QUICK_STATUS.store(status, Relaxed);
    }
    match next::QUICK_EXIT.get() {
        // SAFETY: libc's function.
        Some(next) => unsafe { next(status) },
        // SAFETY: the same promises.
        None => unsafe { _exit(status) },
    }
}
