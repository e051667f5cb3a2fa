//! `prctl` and `syscall`, hooked only to notice that a seccomp filter is installed. From then on the shim makes no
//! system call in this process, because the filter may kill the process for one.
//!
//! Both are variadic, and `syscall` may return twice or on another stack (clone, vfork). So the hooks are a few
//! instructions that jump to the next definition with all registers and the stack unchanged. Only calls that install
//! a filter go through Rust. Variadic integer arguments are passed like fixed ones (System V ABI of x86-64; AAPCS64
//! on Linux).

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::Relaxed;

use crate::{next, rss, state, sys};

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

/// Jumps to the next `syscall`, or to [`watched_syscall`] if the call may install a filter or there is no next one.
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
        "mov rax, [rip + {next}]", "test rax, rax", "je {watched}",
        "jmp rax",
        seccomp = const libc::SYS_seccomp, prctl = const libc::SYS_prctl,
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

/// Jumps to the next `syscall`, or to [`watched_syscall`] if the call may install a filter or there is no next one.
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
        "adrp x16, {next}", "ldr x16, [x16, :lo12:{next}]", "cbz x16, 1f",
        "br x16",
        "1: b {watched}",
        seccomp = const libc::SYS_seccomp, prctl = const libc::SYS_prctl,
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
    if option == libc::PR_SET_SECCOMP { install_filter(call) } else { call() }
}

/// Calls the next `syscall`, or the kernel, and notices a filter that it installs, by seccomp(2) or by prctl(2).
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
    // The other operations of seccomp(2) only query.
    let installs_filter = match number {
        libc::SYS_seccomp => {
            a == libc::SECCOMP_SET_MODE_STRICT as usize || a == libc::SECCOMP_SET_MODE_FILTER as usize
        }
        libc::SYS_prctl => a as c_int == libc::PR_SET_SECCOMP,
        _ => false,
    };
    if installs_filter { install_filter(call) } else { call() }
}

/// Makes the call that installs a filter, and gives its result. The shim's own system calls stop before the call, and resume if it
/// fails. The peak so far is kept for later REAPED records, since getrusage can't be called afterwards. In a vfork child nothing is
/// noted, because it would be noted for its parent.
fn install_filter<R: Copy + Into<i64>>(call: impl FnOnce() -> R) -> R {
    if !state::is_active() || !state::may_call_kernel() || sys::getpid() != state::PID.load(Relaxed) {
        return call();
    }
    rss::flush_thread_rss();
    let now = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    let before = state::MAX_RSS_KIB.swap(now, Relaxed);
    state::IS_FILTERED.store(true, Relaxed);
    let result = call();
    if result.into() < 0 {
        state::MAX_RSS_KIB.store(before, Relaxed);
        state::IS_FILTERED.store(false, Relaxed);
    }
    result
}
