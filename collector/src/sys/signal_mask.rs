//! The signal mask of a thread.

use std::mem::MaybeUninit;

/// Blocks all signals in this thread, so that the process's signals are delivered to its first thread.
pub(crate) fn block_all() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set; pthread_sigmask reads it and changes this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
