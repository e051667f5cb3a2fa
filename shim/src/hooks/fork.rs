//! `_Fork` (POSIX 2024), which runs no atfork handlers. glibc's own fork does not come through here.

use core::ffi::c_int;

use crate::{fork, next, sys};

/// `_Fork`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    fork::before();
    let pid = match next::UNDERSCORE_FORK.get() {
        // SAFETY: libc's function.
        Some(next) => unsafe { next() },
        // glibc before 2.34: nobody links to it there, but a weak reference would find this one.
        None => sys::into_errno(-(libc::ENOSYS as isize)) as c_int,
    };
    if pid == 0 {
        fork::in_child();
    }
    pid
}
