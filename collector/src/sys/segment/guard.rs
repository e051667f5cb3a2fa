//! Survives truncation of the segment's file.
//!
//! Any process of the user can truncate the file; the next access to a missing page raises SIGBUS. The signal handler
//! replaces the mapping by zero pages and records the loss.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

/// Guard this mapping from now on, instead of an earlier one: a process uses one session's segment.
pub(super) fn protect(base: usize, length: usize) {
    BASE.store(base, Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
    LOST.store(false, Ordering::Relaxed);
    INSTALL.call_once(|| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeroed is a valid sigaction; the handler does only what is async-signal-safe.
        unsafe {
            (*action.as_mut_ptr()).sa_sigaction = on_bus_error as *const () as usize;
            (*action.as_mut_ptr()).sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, action.as_ptr(), std::ptr::null_mut());
        }
    });
}

/// Whether the guarded mapping was replaced because its file was truncated.
pub(super) fn is_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    let (base, length) = (BASE.load(Ordering::Relaxed), LENGTH.load(Ordering::Relaxed));
    // SAFETY: the kernel gives a valid siginfo with the address of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_ours = address.checked_sub(base).is_some_and(|offset| offset < length);
    // SAFETY: replacing our own mapping by zero pages keeps every reference into it valid. mmap and signal are
    // async-signal-safe (plain system calls on Linux). Any other fault is raised again, with the default action.
    unsafe {
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let zeros =
            |at: usize| libc::mmap(at as *mut _, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if is_ours && zeros(base) != libc::MAP_FAILED {
            LOST.store(true, Ordering::Relaxed);
        } else {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
}
