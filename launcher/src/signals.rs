//! Signals: all are blocked in the launcher and taken one by one, so there is no handler and no race. The command
//! starts with the mask and dispositions that the launcher was started with.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A set of signals.
pub type SignalSet = libc::sigset_t;

/// A signal that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// Sent by another process (kill, sigqueue, tgkill), not by the kernel (terminal, alarm, child) or ourselves.
    pub by_other: bool,
}

/// Whether a signal is ignored in this process.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one into ours.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and a successful call filled it in.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Set a signal to its default action, or to be ignored.
pub fn set_ignored(signal: i32, ignored: bool) {
    let action = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action runs code of ours.
    unsafe { libc::signal(signal, action) };
}

/// All signals but those that a fault of our own raises: blocked, they would kill without a word.
pub fn all() -> SignalSet {
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: sigfillset and sigdelset initialise and change the set that they are given.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(set.as_mut_ptr(), fault);
        }
        set.assume_init()
    }
}

/// Block these; gives the mask before.
pub fn block(set: &SignalSet) -> SignalSet {
    let mut before = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: both sets are ours; zeroed is a valid empty set.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Put back a mask.
pub fn restore(mask: &SignalSet) {
    // SAFETY: a mask that `block` gave.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Wait for one of these blocked signals.
pub fn wait(set: &SignalSet) -> io::Result<Arrived> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: both are ours and valid for the call.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: the call filled it in.
            return Ok(arrived(signal, unsafe { info.assume_init_ref() }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Wait for one of these blocked signals, at most for so long; `None`: none came.
pub fn wait_for(set: &SignalSet, timeout: Duration) -> io::Result<Option<Arrived>> {
    let timeout = timespec(timeout);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: all three are ours and valid for the call.
    let signal = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), &raw const timeout) };
    if signal > 0 {
        // SAFETY: the call filled it in.
        return Ok(Some(arrived(signal, unsafe { info.assume_init_ref() })));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}

/// Who sent it.
fn arrived(signal: i32, info: &libc::siginfo_t) -> Arrived {
    // SI_USER, SI_QUEUE, SI_TKILL ... are 0 and below; what the kernel sends by itself is above. Our own SIGPIPE (the
    // collector is gone) looks as if we had sent it.
    // SAFETY: si_pid is there for every signal that a process sent.
    let is_own = unsafe { info.si_pid() }.cast_unsigned() == std::process::id();
    Arrived { signal, by_other: info.si_code <= 0 && !is_own }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Wait for a child to change, at most for so long; other signals stay pending.
pub fn wait_for_child(timeout: Duration) {
    let timeout = timespec(timeout);
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: the set is initialised by sigemptyset before use; no information is asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &raw const timeout);
    }
}

/// Forget what is pending of these blocked signals.
pub fn discard_pending(set: &SignalSet) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time are ours; no information is asked for.
    while unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &raw const now) } > 0 {}
}

/// Die by a signal, as the command did, without a core of our own.
pub fn die_by(signal: i32) -> ! {
    rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    )
    .ok();
    // Where core_pattern is a pipe, the limit does not count.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).ok();
    set_ignored(signal, false);
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: the set is initialised by sigemptyset before use; unblocking and raising a signal have no
    // preconditions.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
    // A signal that does not kill by default can't have ended the command.
    std::process::exit(128 + signal)
}
