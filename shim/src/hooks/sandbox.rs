//! `prctl` and `syscall`, hooked only to notice that the process restricts itself by a seccomp filter or by Landlock, and for execs
//! under a filter.
//!
//! - Once a filter is installed, the shim makes no system call in this process, because the filter may kill the process for one. A
//!   program that is exec'd then does not get the shim ([`crate::env_repair`]).
//! - Landlock only refuses files, which the dynamic linker of a program would report: [`visibility`].
//! - A vfork child that restricts itself runs in its parent's memory. What is noted holds for the parent, too, until it reaps the child
//!   ([`visibility::forget_restrictions_of`]).
//!
//! A filter that comes by a system call instruction of the program's own is not noticed. Nor is one that an earlier image installed,
//! if that was static: no memory of a process shows its filters, and START and EXIT can't afford to read /proc.
//!
//! `prctl` and `syscall` are variadic, and `syscall` may return twice or on another stack (clone, vfork). So the hooks are a few
//! instructions that jump to the next definition with all registers and the stack unchanged. Only the calls of interest go through
//! Rust. Variadic integer arguments are passed like fixed ones (System V ABI of x86-64; AAPCS64 on Linux).

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::Relaxed;

use crate::hooks::exec;
use crate::{env_repair, environment, next, rss, state, sys, visibility};

/// Jumps to the next `prctl`, or to [`watched_prctl`] if the call installs a filter or there is no next one.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    naked_asm!(
        "cmp edi, {set_seccomp}", "je {watched}",
        "mov rax, [rip + {next}]", "test rax, rax", "je {watched}",
        "jmp rax",
        set_seccomp = const libc::PR_SET_SECCOMP, watched = sym watched_prctl, next = sym next::PRCTL)
}

/// Jumps to the next `syscall`, or to [`watched_syscall`] if the call may install a filter, is one of Landlock's or an exec, or there
/// is no next one.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    naked_asm!(
        "cmp rdi, {seccomp}", "je {watched}",
        "cmp rdi, {prctl}", "je {watched}",
        "cmp rdi, {execve}", "je {watched}",
        "cmp rdi, {execveat}", "je {watched}",
        "cmp rdi, {landlock}", "je {watched}",
        "mov rax, [rip + {next}]", "test rax, rax", "je {watched}",
        "jmp rax",
        seccomp = const libc::SYS_seccomp, prctl = const libc::SYS_prctl,
        execve = const libc::SYS_execve, execveat = const libc::SYS_execveat,
        landlock = const libc::SYS_landlock_restrict_self,
        watched = sym watched_syscall, next = sym next::SYSCALL)
}

/// Jumps to the next `prctl`, or to [`watched_prctl`] if the call installs a filter or there is no next one.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    naked_asm!(
        "cmp w0, #{set_seccomp}", "b.eq 1f",
        "adrp x16, {next}", "ldr x16, [x16, :lo12:{next}]", "cbz x16, 1f",
        "br x16",
        "1: b {watched}",
        set_seccomp = const libc::PR_SET_SECCOMP, watched = sym watched_prctl, next = sym next::PRCTL)
}

/// Jumps to the next `syscall`, or to [`watched_syscall`] if the call may install a filter, is one of Landlock's or an exec, or there
/// is no next one.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    naked_asm!(
        "cmp x0, #{seccomp}", "b.eq 1f",
        "cmp x0, #{prctl}", "b.eq 1f",
        "cmp x0, #{execve}", "b.eq 1f",
        "cmp x0, #{execveat}", "b.eq 1f",
        "cmp x0, #{landlock}", "b.eq 1f",
        "adrp x16, {next}", "ldr x16, [x16, :lo12:{next}]", "cbz x16, 1f",
        "br x16",
        "1: b {watched}",
        seccomp = const libc::SYS_seccomp, prctl = const libc::SYS_prctl,
        execve = const libc::SYS_execve, execveat = const libc::SYS_execveat,
        landlock = const libc::SYS_landlock_restrict_self,
        watched = sym watched_syscall, next = sym next::SYSCALL)
}

/// Calls the next `prctl`, or the kernel, and notices a filter that it installs.
unsafe extern "C" fn watched_prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let call = || match next::PRCTL.get() {
        // SAFETY: the caller's arguments are passed on to libc's function.
        Some(next) => unsafe { next(option, a, b, c, d) },
        None => {
            // SAFETY: the caller's arguments are passed on to the kernel.
            let result = unsafe { sys::call(libc::SYS_prctl, [option as usize, a, b, c, d, 0]) };
            sys::into_errno(result) as c_int
        }
    };
    if option == libc::PR_SET_SECCOMP { install_filter(&|| call().into()) as c_int } else { call() }
}

/// Calls the next `syscall`, or the kernel, and notices a filter that it installs, by seccomp(2) or by prctl(2). An exec under a
/// filter goes to the hook of the libc function, which takes the shim out of the environment. Other execs pass unchanged. Also
/// notices that the process restricts itself by Landlock.
unsafe extern "C" fn watched_syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let call = || match next::SYSCALL.get() {
        // SAFETY: the caller's arguments are passed on to libc's function.
        Some(next) => unsafe { next(number, a, b, c, d, e, f) },
        // SAFETY: the caller's arguments are passed on to the kernel.
        None => sys::into_errno(unsafe { sys::call(number, [a, b, c, d, e, f]) }) as c_long,
    };
    if !state::may_call_kernel() {
        match number {
            // SAFETY: libc's function takes what the system call takes.
            libc::SYS_execve => return unsafe { exec::execve(a as _, b as _, c as _) }.into(),
            // SAFETY: as above.
            libc::SYS_execveat => unsafe {
                return exec::execveat(a as _, b as _, c as _, d as _, e as _).into();
            },
            _ => {}
        }
    }
    // The other operations of seccomp(2) only query.
    let installs_filter = match number {
        libc::SYS_seccomp => {
            a == libc::SECCOMP_SET_MODE_STRICT as usize || a == libc::SECCOMP_SET_MODE_FILTER as usize
        }
        libc::SYS_prctl => a as c_int == libc::PR_SET_SECCOMP,
        _ => false,
    };
    let result = if installs_filter { install_filter(&call) } else { call() };
    if number == libc::SYS_landlock_restrict_self && result == 0 {
        visibility::note_landlock();
    }
    result
}

/// Makes the call that installs a filter, and returns its result. The shim's own system calls stop before the call, and resume if it
/// fails. What would need one later is fetched before the call: memory for large environments, and the peak so far for REAPED
/// records.
#[cold]
#[inline(never)]
fn install_filter(call: &dyn Fn() -> c_long) -> c_long {
    let mut peak_before_kib = None;
    if !state::may_call_kernel() {
        state::note_further_filter();
    } else if state::is_active() {
        let pid = sys::getpid();
        env_repair::prepare_for_filter();
        // A vfork child's peak would be noted for its parent.
        if pid == state::PID.load(Relaxed) {
            // Before Linux 6.2, ru_maxrss lacks this thread's last page faults.
            rss::flush_thread_rss();
            let now_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
            peak_before_kib = Some(state::MAX_RSS_KIB.swap(now_kib, Relaxed));
        }
        state::note_filter(pid);
    } else {
        // An inert shim makes no system call, but programs that are exec'd must not have it: theirs would look for the sessions.
        state::note_filter(state::UNKNOWN_PID);
    }
    let result = call();
    if result < 0 {
        if let Some(peak_kib) = peak_before_kib {
            state::MAX_RSS_KIB.store(peak_kib, Relaxed);
        }
        state::forget_failed_filter();
    } else {
        environment::hide_shim();
    }
    result
}
