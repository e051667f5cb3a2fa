//! A stack of this program's own, where the limit of stacks is small (`ulimit -s 100`).
//!
//! The thread stays the same one, to which its signals, its parent-death signal and its children belong. The limit stays, too: the
//! command inherits it. Raising the limit would not do, since `ulimit -s` sets the hard limit as well.

use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use rustix::process::{Resource, getrlimit};

/// What this program needs at most, with room to spare. Rust's threads have as much.
const ENOUGH: usize = 2 << 20;
/// What lies below the stack. An overflow that meets it ends the process.
const GUARD: usize = 64 << 10;

/// A call on another stack.
struct Call {
    work: fn() -> ExitCode,
    /// What it returned, or its panic.
    result: Option<thread::Result<ExitCode>>,
    /// Where the caller goes on.
    outside: MaybeUninit<libc::ucontext_t>,
}

/// The call that [`enter`] makes. It is handed over here, because makecontext(3) passes only numbers of 32 bits.
static CALL: AtomicPtr<Call> = AtomicPtr::new(ptr::null_mut());

/// Does the work of this process, on a stack that is large enough. Where there is no memory for one, the work has the stack that the
/// limit leaves.
pub(crate) fn with_enough(work: fn() -> ExitCode) -> ExitCode {
    let is_small = getrlimit(Resource::Stack).current.is_some_and(|bytes| bytes < ENOUGH as u64);
    match is_small.then(map).flatten() {
        Some(stack) => on_stack(stack, work),
        None => work(),
    }
}

/// Maps a stack, and returns its lowest address. It stays as long as the process. The kernel provides memory only for the part that
/// is used.
fn map() -> Option<*mut libc::c_void> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let mapped =
        unsafe { mmap_anonymous(ptr::null_mut(), GUARD + ENOUGH, ProtFlags::READ | ProtFlags::WRITE, flags) };
    // SAFETY: the new mapping begins there, is longer than that, and nothing uses it yet.
    unsafe {
        let mapped = mapped.ok()?;
        mprotect(mapped, GUARD, MprotectFlags::empty()).ok()?;
        Some(mapped.byte_add(GUARD))
    }
}

/// Calls `work` on this stack, of [`ENOUGH`] bytes. A panic of it goes on in the caller.
fn on_stack(stack: *mut libc::c_void, work: fn() -> ExitCode) -> ExitCode {
    let mut inside = MaybeUninit::<libc::ucontext_t>::uninit();
    let mut call = Call { work, result: None, outside: MaybeUninit::uninit() };
    let call = &raw mut call;
    CALL.store(call, Ordering::Release);
    // SAFETY: `call` and both contexts live in this frame, which is left only after `enter` has returned to it. getcontext fills
    // `inside` before its fields are set. The stack is this call's alone.
    let result = unsafe {
        if libc::getcontext(inside.as_mut_ptr()) == 0 {
            let outside = (*call).outside.as_mut_ptr();
            let inside = inside.assume_init_mut();
            inside.uc_stack.ss_sp = stack;
            inside.uc_stack.ss_size = ENOUGH;
            inside.uc_link = outside;
            libc::makecontext(inside, enter, 0);
            libc::swapcontext(outside, inside);
        }
        (*call).result.take()
    };
    match result {
        Some(Ok(status)) => status,
        Some(Err(panic)) => panic::resume_unwind(panic),
        // The contexts can't be used here.
        None => work(),
    }
}

/// Makes the call of [`CALL`], on its stack.
extern "C" fn enter() {
    // SAFETY: `on_stack` has stored a call that lives until this function has returned. Nothing else uses it meanwhile.
    let call = unsafe { &mut *CALL.load(Ordering::Acquire) };
    // A panic can't unwind into the other stack.
    call.result = Some(panic::catch_unwind(AssertUnwindSafe(call.work)));
    // The caller would get its former signal mask back, and with it the signals that the work has left blocked.
    // SAFETY: swapcontext has filled `outside`. The call only writes to it.
    unsafe {
        let mask = &raw mut (*call.outside.as_mut_ptr()).uc_sigmask;
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::signals;

    /// Uses a few KiB of stack for each level.
    fn deep(levels: u32) -> u32 {
        let frame = std::hint::black_box([levels; 256]);
        if levels == 0 { 0 } else { deep(levels - 1) + frame[0].min(1) }
    }

    // Requirement: FAULT-8
    #[test]
    fn result_panic_and_signal_mask_come_back_from_the_other_stack() {
        let work = || {
            signals::block(&signals::set(&[libc::SIGUSR2]));
            ExitCode::from(u8::try_from(deep(250)).unwrap())
        };
        assert_eq!(on_stack(map().unwrap(), work), ExitCode::from(250));
        let mask = signals::block(&signals::set(&[]));
        // SAFETY: the set is valid.
        assert_eq!(unsafe { libc::sigismember(&raw const mask, libc::SIGUSR2) }, 1);
        let panicked = panic::catch_unwind(|| on_stack(map().unwrap(), || panic!("within")));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"within"));
    }
}
