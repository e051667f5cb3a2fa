//! Signals of the launcher. All but those of faults are blocked and taken one by one, so there are no handlers and no races with
//! them.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{
    SIGABRT, SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};

/// Number of requests to end (Ctrl-C) after which the launcher stops waiting for the report. A collector goes on writing the report.
/// A thread of the launcher that writes it ends with the launcher.
pub(crate) const MAX_END_REQUESTS: u32 = 2;

/// A set of signals, as sigprocmask(2) takes it.
pub(crate) type SignalSet = libc::sigset_t;

/// A signal that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) signal: i32,
    /// Pid and user of the process that sent it (kill, sigqueue, tgkill); `None`: the kernel (terminal, alarm, child) or
    /// this process.
    pub(crate) sender: Option<(u32, u32)>,
}

impl Received {
    /// Takes the fields of a siginfo_t. si_code is above 0 for what the kernel sent. It is 0 or below for what a process
    /// sent (SI_USER, SI_QUEUE, SI_TKILL). A SIGPIPE for a write to the ended collector has the pid of this process.
    pub(crate) fn new(signal: u32, code: i32, pid: u32, uid: u32) -> Self {
        let is_of_another = code <= 0 && pid != std::process::id();
        Self { signal: signal.cast_signed(), sender: is_of_another.then_some((pid, uid)) }
    }
}

/// The signals that users and batch systems send to end a program.
const END_REQUESTS: [i32; 4] = [SIGINT, SIGTERM, SIGQUIT, SIGHUP];

/// Whether users and batch systems send this signal to end a program.
pub(crate) fn requests_end(signal: i32) -> bool {
    END_REQUESTS.contains(&signal)
}

/// The signals that a program gets for faults of its own.
const FAULTS: [i32; 7] = [SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP];

/// Whether a program gets this signal for a fault of its own.
pub(crate) fn is_fault(signal: i32) -> bool {
    FAULTS.contains(&signal)
}

/// Whether a signal is ignored in this process.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one into ours.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid sigaction, and a successful call filled it in.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Sets a signal to be ignored, or to its default action.
pub(crate) fn set_ignored(signal: i32, ignored: bool) {
    let action = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: neither action runs code of this process.
    unsafe { libc::signal(signal, action) };
}

/// All signals except those that a fault raises. A blocked fault ends the process at once, without its handler.
pub(crate) fn all_but_faults() -> SignalSet {
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: sigfillset and sigdelset initialise and change the set that they are given.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(set.as_mut_ptr(), fault);
        }
        set.assume_init()
    }
}

/// A set as the functions here take it.
pub(crate) fn set(signals: &[i32]) -> SignalSet {
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: sigemptyset and sigaddset initialise and change the set that they are given.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        set.assume_init()
    }
}

/// The set of this signal alone.
pub(crate) fn only(signal: i32) -> SignalSet {
    set(&[signal])
}

/// Blocks these signals. Returns the mask before.
pub(crate) fn block(set: &SignalSet) -> SignalSet {
    let mut before = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: both sets are ours; zeroed is a valid empty set.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, set, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Unblocks one signal.
pub(crate) fn unblock(signal: i32) {
    // SAFETY: the set is ours; no old mask is asked for.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &only(signal), std::ptr::null_mut()) };
}

/// Sets the mask that [`block`] returned.
pub(crate) fn restore(mask: &SignalSet) {
    // SAFETY: the mask is initialised; no old mask is asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Waits for one of these blocked signals, at most for `timeout` if there is one, and takes it. `None`: none came, or the wait was
/// interrupted.
pub(crate) fn wait(set: &SignalSet, timeout: Option<Duration>) -> io::Result<Option<Received>> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: all three are ours and valid for the call. Without a timeout, Linux waits until a signal comes.
    let signal = unsafe { libc::sigtimedwait(set, info.as_mut_ptr(), timeout) };
    if signal > 0 {
        // SAFETY: the call filled it in.
        let info = unsafe { info.assume_init_ref() };
        // SAFETY: both are set for every signal that a process sent. Of others they are not used.
        let (pid, uid) = unsafe { (info.si_pid().cast_unsigned(), info.si_uid()) };
        return Ok(Some(Received::new(signal.cast_unsigned(), info.si_code, pid, uid)));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}

/// Waits until a child changes its state, at most for `timeout`. This takes the SIGCHLD, so the caller looks at its children
/// afterwards. Other signals stay pending.
pub(crate) fn wait_for_child(timeout: Duration) {
    // An error only shortens the wait.
    let _ = wait(&only(SIGCHLD), Some(timeout));
}

/// The siginfo_t of a signal that sigqueue(3) sends, as 64-bit machines have it.
#[repr(C)]
struct QueuedSignal {
    signal: i32,
    errno: i32,
    code: i32,
    gap: i32,
    pid: u32,
    uid: u32,
    rest: [u64; 13],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<libc::siginfo_t>());

/// Sends a signal to a process, in the name of this sender: its pid and user. The kernel allows that for queued signals alone.
pub(crate) fn send_as(pid: u32, signal: i32, (sender, uid): (u32, u32)) -> io::Result<()> {
    let code = libc::SI_QUEUE;
    let info = QueuedSignal { signal, errno: 0, code, gap: 0, pid: sender, uid, rest: [0; 13] };
    // SAFETY: the kernel reads a siginfo_t, which is ours.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signal, &raw const info) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Discards all pending signals of this blocked set.
pub(crate) fn discard_pending(set: &SignalSet) {
    while let Ok(Some(_)) = wait(set, Some(Duration::ZERO)) {}
}

/// Takes the pending signals that ask to end, which are blocked. All others stay pending.
pub(crate) fn take_requests() -> Vec<Received> {
    let requests = set(&END_REQUESTS);
    std::iter::from_fn(|| wait(&requests, Some(Duration::ZERO)).ok().flatten()).collect()
}

/// Whether a signal that asks to end is pending.
pub(crate) fn is_end_pending() -> bool {
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: the set is ours, and zeroed is a valid empty one; sigismember reads it.
    unsafe {
        libc::sigpending(set.as_mut_ptr());
        END_REQUESTS.iter().any(|signal| libc::sigismember(set.as_ptr(), *signal) == 1)
    }
}

/// Wakes the first thread of this process, which waits for signals, by a SIGCHLD.
pub(crate) fn wake_this_process() {
    // A process may always signal itself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::CHILD);
}

/// Raises a blocked signal with its default action. Returns only if that action does not end the process.
pub(crate) fn raise_default(signal: i32) {
    set_ignored(signal, false);
    unblock(signal);
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(signal) };
}
