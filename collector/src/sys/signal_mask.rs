//! The signals of a thread.

use std::mem::MaybeUninit;

/// Blocks all signals in this thread: those of the process are for its first one.
pub(crate) fn block_all() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set; pthread_sigmask reads it and changes this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
