//! REAPED: what a wait function says of an ended child, which is all there is for one that was killed or is static.
//!
//! The wait functions are cancellation points: a raw system call in their place made `pthread_cancel` hang. So the
//! blocking call is always libc's own:
//!
//! - wait, wait3, wait4, waitpid: the next `wait4`, where libc makes that a cancellation point (glibc 2.31);
//!   elsewhere (older glibc, musl) the next `waitid` with WNOWAIT, then wait4 without blocking.
//! - waitid: libc's has no rusage argument. The next `waitid` with WNOWAIT blocks, and the raw call, which has one,
//!   reaps without blocking. If another thread reaped in between, it blocks again, as it would have in the kernel.
//!   Making cancellation asynchronous around the raw call instead would lose a child that was reaped just then.
//!   Reaping costs no more than before within 0.5 us; the record of it costs 2.5 us, as for waitpid.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use gpu_track_abi::layout::FLAG_NO_WAIT_RECORDS;
use gpu_track_abi::record::{Event, FLAG_TRACER};
use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};

use crate::{emit, next, rss, state, sys};

/// `wait`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait(status: *mut c_int) -> pid_t {
    // SAFETY: the same promises.
    unsafe { reap(-1, status, 0, ptr::null_mut()) }
}

/// `waitpid`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: the same promises.
    unsafe { reap(pid, status, options, ptr::null_mut()) }
}

/// `wait3`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: the same promises.
    unsafe { reap(-1, status, options, usage) }
}

/// `wait4`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: the same promises.
    unsafe { reap(pid, status, options, usage) }
}

/// `waitid`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn waitid(id_type: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int {
    // SAFETY: the same promises; the pointers of our own are to locals.
    unsafe {
        if options & libc::WNOWAIT != 0 || !records_wanted() || !state::may_call() {
            return next_waitid(id_type, id, info, options);
        }
        loop {
            let mut seen: siginfo_t = next::zeroed();
            if next_waitid(id_type, id, &raw mut seen, options | libc::WNOWAIT) != 0 {
                return -1;
            }
            let mut taken: siginfo_t = next::zeroed();
            let mut usage: rusage = next::zeroed();
            if seen.si_pid() != 0 {
                let options = options | libc::WNOHANG;
                let result =
                    sys::waitid(libc::P_PID, seen.si_pid() as id_t, &raw mut taken, options, &raw mut usage);
                if result < 0 && result != -(libc::ECHILD as isize) {
                    return sys::into_errno(result) as c_int;
                }
                if result < 0 || taken.si_pid() == 0 {
                    // Another thread was faster.
                    continue;
                }
            }
            if !info.is_null() {
                info.write(taken);
            }
            match taken.si_code {
                _ if taken.si_pid() == 0 => {}
                libc::CLD_EXITED => reaped(taken.si_pid(), (taken.si_status() & 0xff) << 8, &usage),
                libc::CLD_KILLED => reaped(taken.si_pid(), taken.si_status(), &usage),
                libc::CLD_DUMPED => reaped(taken.si_pid(), taken.si_status() | 0x80, &usage),
                libc::CLD_TRAPPED => saw_trace_stop(),
                _ => {}
            }
            return 0;
        }
    }
}

unsafe fn reap(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let (mut own_status, mut own_usage) = (0, zero_usage());
    let status = if status.is_null() { &raw mut own_status } else { status };
    let usage = if usage.is_null() { &raw mut own_usage } else { usage };
    // SAFETY: the caller's pointers, or locals; the kernel wrote both when a pid came back.
    unsafe {
        let child = match next::WAIT4.get() {
            Some(wait4) if wait4_is_cancellable() => wait4(pid, status, options, usage),
            _ => wait4_in_two_steps(pid, status, options, usage),
        };
        if child > 0 {
            let status = status.read();
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                reaped(child, status, &*usage);
            } else if libc::WIFSTOPPED(status) && options & libc::WUNTRACED == 0 {
                saw_trace_stop();
            }
        }
        child
    }
}

/// wait4 where libc's own is no cancellation point: block in waitid, which is one everywhere.
unsafe fn wait4_in_two_steps(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let (id_type, id) = match pid {
        -1 => (libc::P_ALL, 0),
        // SAFETY: takes nothing. P_PGID of 0 means the own group from Linux 5.4 on only.
        0 => (libc::P_PGID, unsafe { libc::getpgrp() } as id_t),
        1.. => (libc::P_PID, pid as id_t),
        _ => (libc::P_PGID, pid.wrapping_neg() as id_t),
    };
    // SAFETY: the caller's pointers, or locals.
    unsafe {
        // waitid takes __WALL and its like from Linux 4.7 on only, and after a filter one call must do.
        if options & !(libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) != 0 || !state::may_call() {
            return sys::into_errno(sys::wait4(pid, status, options, usage)) as pid_t;
        }
        loop {
            let mut seen: siginfo_t = next::zeroed();
            // WUNTRACED is the same bit as WSTOPPED.
            if next_waitid(id_type, id, &raw mut seen, options | libc::WEXITED | libc::WNOWAIT) != 0 {
                return -1;
            }
            if seen.si_pid() == 0 {
                return 0;
            }
            match sys::wait4(seen.si_pid(), status, options | libc::WNOHANG, usage) {
                // Another thread was faster.
                0 => {}
                result if result == -(libc::ECHILD as isize) => {}
                result => return sys::into_errno(result) as pid_t,
            }
        }
    }
}

unsafe fn next_waitid(id_type: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int {
    // SAFETY: the caller's promises to waitid.
    unsafe {
        match next::WAITID.get() {
            Some(next) => next(id_type, id, info, options),
            None => sys::into_errno(sys::waitid(id_type, id, info, options, ptr::null_mut())) as c_int,
        }
    }
}

/// Asked once: 0 is not asked yet, 1 no, 2 yes.
static WAIT4_CANCELLABLE: AtomicU8 = AtomicU8::new(0);

fn wait4_is_cancellable() -> bool {
    match WAIT4_CANCELLABLE.load(Relaxed) {
        0 => {
            let yes = next::glibc_at_least(31);
            WAIT4_CANCELLABLE.store(1 + u8::from(yes), Relaxed);
            yes
        }
        known => known == 2,
    }
}

fn records_wanted() -> bool {
    state::sessions().any(|header| header.flags & FLAG_NO_WAIT_RECORDS == 0)
}

fn zero_usage() -> rusage {
    // SAFETY: all-zero is a valid rusage.
    unsafe { next::zeroed() }
}

/// A stop that nobody asked for is a tracer's: its waits report other processes' children too.
fn saw_trace_stop() {
    if state::is_active() && state::may_call() && sys::getpid() == state::PID.load(Relaxed) {
        state::TRACER.store(true, Relaxed);
    }
}

fn reaped(child: pid_t, status: c_int, usage: &rusage) {
    if !records_wanted() {
        return;
    }
    let (pid, reaper_max_rss_kib) = if state::may_call() {
        rss::hand_in();
        (sys::getpid(), sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64)
    } else {
        (state::PID.load(Relaxed), state::MAX_RSS_KIB.load(Relaxed))
    };
    let mut origin = emit::origin(pid);
    if state::TRACER.load(Relaxed) {
        origin.flags |= FLAG_TRACER;
    }
    let usage = emit::usage(usage);
    let event = Event::Reaped { child: child.cast_unsigned(), status, reaper_max_rss_kib, usage };
    emit::emit(&origin, &event, FLAG_NO_WAIT_RECORDS);
}
