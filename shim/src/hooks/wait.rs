//! REAPED: status and usage of an ended child, from the wait function that reaped it. For a child that was killed, or
//! is uninstrumented, this is the only record.
//!
//! The wait functions are cancellation points. If a hook blocked in a raw system call, `pthread_cancel` would not end the thread. So
//! the call that blocks is always libc's:
//!
//! - wait, wait3, wait4, waitpid call the next `wait4` where it is a cancellation point (glibc 2.31). Elsewhere (older
//!   glibc, musl) they call the next `waitid` with WNOWAIT, and then wait4 without blocking.
//! - waitid: libc's has no rusage argument. The next `waitid` with WNOWAIT blocks. Then the raw system call, which has that
//!   argument, reaps without blocking. If another thread reaped the child in between, the hook blocks again, as the kernel
//!   would have. (One raw call with asynchronous cancellation enabled would lose a child that is reaped at that moment.) The
//!   second call costs at most 0.5 us, and the record 2.5 us, as for waitpid.

use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use gpu_track_abi::layout::FLAG_NO_WAIT_RECORDS;
use gpu_track_abi::record::{Event, FLAG_TRACER};
use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};

use crate::{emit, next, rss, state, sys, visibility};

assert_signatures_of_libc! { wait wait4 waitid waitpid }

#[unsafe(no_mangle)]
unsafe extern "C" fn wait(status: *mut c_int) -> pid_t {
    // SAFETY: the caller keeps libc's contract.
    unsafe { reap(-1, status, 0, ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
    // SAFETY: the caller keeps libc's contract.
    unsafe { reap(pid, status, options, ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: the caller keeps libc's contract.
    unsafe { reap(-1, status, options, usage) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: the caller keeps libc's contract.
    unsafe { reap(pid, status, options, usage) }
}

/// Hooks waitid: finds a child without reaping it, then reaps it by a raw call that gives its usage. See the head of this file.
/// Only an ended child gets a REAPED record. A stop that only a tracer gets is noted for later records: [`saw_trace_stop`].
#[unsafe(no_mangle)]
unsafe extern "C" fn waitid(id_type: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int {
    // SAFETY: the caller keeps libc's contract; the other pointers are to locals.
    unsafe {
        if options & libc::WNOWAIT != 0 || !wants_records() || !state::may_call_kernel() {
            let result = next_waitid(id_type, id, info, options);
            if result == 0
                && let Some(info) = info.as_ref()
                && matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
            {
                visibility::forget_restrictions_of(info.si_pid().cast_unsigned());
            }
            return result;
        }
        loop {
            let mut seen: siginfo_t = zeroed();
            if next_waitid(id_type, id, &raw mut seen, options | libc::WNOWAIT) != 0 {
                return -1;
            }
            let mut taken: siginfo_t = zeroed();
            let mut usage: rusage = zeroed();
            // A pid of 0 means that no child has changed, and WNOHANG was given. Then the caller gets `taken` as it is, all zero.
            if seen.si_pid() != 0 {
                let options = options | libc::WNOHANG;
                let result =
                    sys::waitid(libc::P_PID, seen.si_pid() as id_t, &raw mut taken, options, &raw mut usage);
                if result < 0 && result != -(libc::ECHILD as isize) {
                    return sys::into_errno(result) as c_int;
                }
                if result < 0 || taken.si_pid() == 0 {
                    // Another thread reaped the child.
                    continue;
                }
            }
            if !info.is_null() {
                info.write(taken);
            }
            // Records have wait4's status: an exit code in its second byte, or a signal, with 0x80 added for a core dump.
            match taken.si_code {
                _ if taken.si_pid() == 0 => {}
                libc::CLD_EXITED => write_reaped(taken.si_pid(), (taken.si_status() & 0xff) << 8, &usage),
                libc::CLD_KILLED => write_reaped(taken.si_pid(), taken.si_status(), &usage),
                libc::CLD_DUMPED => write_reaped(taken.si_pid(), taken.si_status() | 0x80, &usage),
                libc::CLD_TRAPPED => saw_trace_stop(),
                _ => {}
            }
            return 0;
        }
    }
}

/// Waits as wait4 does, and writes REAPED for a child that ended. A stop that only a tracer gets is noted for later records:
/// [`saw_trace_stop`]. `status` and `usage` may be null.
unsafe fn reap(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    // SAFETY: all-zero is a valid rusage.
    let (mut own_status, mut own_usage) = (0, unsafe { zeroed() });
    let status = if status.is_null() { &raw mut own_status } else { status };
    let usage = if usage.is_null() { &raw mut own_usage } else { usage };
    // SAFETY: the pointers are the caller's or to locals. The kernel wrote both if a pid is returned.
    unsafe {
        let child = match next::WAIT4.get() {
            Some(wait4) if wait4_is_cancellable() => wait4(pid, status, options, usage),
            _ => wait4_in_two_steps(pid, status, options, usage),
        };
        if child > 0 {
            let status = status.read();
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                write_reaped(child, status, &*usage);
            } else if libc::WIFSTOPPED(status) && options & libc::WUNTRACED == 0 {
                saw_trace_stop();
            }
        }
        child
    }
}

/// Does what wait4 does, if libc's wait4 is no cancellation point: blocks in waitid, which is one in every libc.
unsafe fn wait4_in_two_steps(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let (id_type, id) = match pid {
        -1 => (libc::P_ALL, 0),
        // SAFETY: takes no arguments. (P_PGID with 0 means the caller's group only since Linux 5.4.)
        0 => (libc::P_PGID, unsafe { libc::getpgrp() } as id_t),
        1.. => (libc::P_PID, pid as id_t),
        _ => (libc::P_PGID, pid.wrapping_neg() as id_t),
    };
    // SAFETY: the pointers are the caller's or to locals.
    unsafe {
        // waitid accepts __WALL and the like only since Linux 4.7, and a seccomp filter may not allow waitid.
        if options & !(libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) != 0 || !state::may_call_kernel() {
            return sys::into_errno(sys::wait4(pid, status, options, usage)) as pid_t;
        }
        loop {
            let mut seen: siginfo_t = zeroed();
            // WUNTRACED and WSTOPPED are the same bit.
            if next_waitid(id_type, id, &raw mut seen, options | libc::WEXITED | libc::WNOWAIT) != 0 {
                return -1;
            }
            if seen.si_pid() == 0 {
                return 0;
            }
            match sys::wait4(seen.si_pid(), status, options | libc::WNOHANG, usage) {
                // Another thread reaped the child.
                0 => {}
                result if result == -(libc::ECHILD as isize) => {}
                result => return sys::into_errno(result) as pid_t,
            }
        }
    }
}

/// Calls the next waitid, or the kernel if there is none.
unsafe fn next_waitid(id_type: idtype_t, id: id_t, info: *mut siginfo_t, options: c_int) -> c_int {
    // SAFETY: the caller keeps waitid's contract.
    unsafe {
        match next::WAITID.get() {
            Some(next) => next(id_type, id, info, options),
            None => sys::into_errno(sys::waitid(id_type, id, info, options, ptr::null_mut())) as c_int,
        }
    }
}

/// Whether libc's wait4 is a cancellation point. 0: not yet known, 1: no, 2: yes.
static WAIT4_CANCELLABLE: AtomicU8 = AtomicU8::new(0);

/// Whether libc's wait4 is a cancellation point, as it is since glibc 2.31. The answer is kept.
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

/// Whether any session wants REAPED records.
fn wants_records() -> bool {
    state::sessions().any(|header| header.flags & FLAG_NO_WAIT_RECORDS == 0)
}

/// Notes that this process traces others, since only a tracer gets a stop without WUNTRACED, or CLD_TRAPPED. From now on its REAPED
/// records have FLAG_TRACER: the child may be another process's. In a vfork child nothing is noted, because the note would be the
/// parent's.
fn saw_trace_stop() {
    if state::is_active() && state::may_call_kernel() && sys::getpid() == state::PID.load(Relaxed) {
        state::IS_TRACER.store(true, Relaxed);
    }
}

/// Writes REAPED for a child that ended, with its wait status and usage. Under a seccomp filter this process can't read its own pid
/// and peak. The record then has those that were read before the filter was installed. If the pid was not read, as in a fork child,
/// no record is written.
fn write_reaped(child: pid_t, status: c_int, usage: &rusage) {
    visibility::forget_restrictions_of(child.cast_unsigned());
    if !wants_records() {
        return;
    }
    let (pid, reaper_max_rss_kib) = if state::may_call_kernel() {
        // Before Linux 6.2, ru_maxrss lacks this thread's last page faults.
        rss::flush_thread_rss();
        (sys::getpid(), sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64)
    } else {
        match state::FILTERED_PID.load(Relaxed) {
            state::UNKNOWN_PID => return,
            pid if pid == state::PID.load(Relaxed) => (pid, state::MAX_RSS_KIB.load(Relaxed)),
            // No peak was read in a raw clone child. So the peak that its child inherited is left without a bound.
            pid => (pid, u64::MAX),
        }
    };
    let mut origin = emit::origin(pid);
    if state::IS_TRACER.load(Relaxed) {
        origin.flags |= FLAG_TRACER;
    }
    let usage = emit::usage(usage);
    // `clock_ns` is 0: the wait function has reaped the child, so its clock is gone.
    let event =
        Event::Reaped { child: child.cast_unsigned(), status, reaper_max_rss_kib, usage, clock_ns: 0 };
    emit::emit(&origin, &event, FLAG_NO_WAIT_RECORDS);
}
