//! Survives truncation of the segment's file, and of the live file.
//!
//! Any process of the user can truncate them. The next access to a missing page raises SIGBUS. The signal handler then replaces
//! the mapping by zero pages, and notes that the file is lost.

use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A mapping that is guarded. A process has at most one of each kind, because it maps the files of one session.
#[derive(Debug)]
pub(super) struct Guard {
    base: AtomicUsize,
    length: AtomicUsize,
    is_lost: AtomicBool,
}

/// The guard of the segment.
pub(super) static SEGMENT: Guard = Guard::new();
/// The guard of the live file.
pub(super) static LIVE: Guard = Guard::new();
static INSTALL: Once = Once::new();

impl Guard {
    const fn new() -> Self {
        Self { base: AtomicUsize::new(0), length: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
    }

    /// Guards this mapping from now on, in place of an earlier one. `base` is its address, `length` is in bytes.
    pub(super) fn protect(&self, base: usize, length: usize) {
        self.base.store(base, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
        install();
    }

    /// Whether the mapping was replaced because its file was truncated.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Replaces the mapping by zero pages if `address` is in it. Returns whether it did. Async-signal-safe.
    fn replace_if_at(&self, address: usize) -> bool {
        let (base, length) = (self.base.load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        if address.checked_sub(base).is_none_or(|offset| offset >= length) {
            return false;
        }
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: replacing our own mapping by zero pages keeps every reference into it valid. mmap is async-signal-safe (a
        // plain system call on Linux).
        let zeros =
            unsafe { libc::mmap(base as *mut _, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        self.is_lost.store(zeros != libc::MAP_FAILED, Ordering::Relaxed);
        zeros != libc::MAP_FAILED
    }
}

/// Installs the handler of SIGBUS, once.
fn install() {
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

/// Handles SIGBUS: replaces the guarded mapping that has the address of the fault. A fault at another address gets the default
/// action, which ends the process.
extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo with the address of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    if !SEGMENT.replace_if_at(address) && !LIVE.replace_if_at(address) {
        // SAFETY: signal is async-signal-safe. The access is repeated, and faults again with the default action.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}
