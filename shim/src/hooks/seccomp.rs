//! `prctl` and `syscall`, only to see a seccomp filter arrive: from then on no system call of ours in this process.
//!
//! Both are variadic, and `syscall` may return twice or on another stack (clone, vfork). So they are a few
//! instructions that jump on to the next definition, with every register and the stack as they came; only the calls
//! that bring a filter go through Rust. Variadic integer arguments lie where fixed ones would (System V ABI of
//! x86-64; AAPCS64 on Linux).

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::sync::atomic::Ordering::Relaxed;

use crate::{next, rss, state, sys};

/// `prctl`.
///
/// # Safety
/// As for libc's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    naked_asm!(
        "cmp edi, {set_seccomp}", "je {watched}",
        "mov rax, [rip + {next}]", "test rax, rax", "je {watched}",
        "jmp rax",
        set_seccomp = const libc::PR_SET_SECCOMP, watched = sym watched_prctl, next = sym next::PRCTL)
}

/// `syscall`.
///
/// # Safety
/// As for libc's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
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

/// `prctl`.
///
/// # Safety
/// As for libc's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    naked_asm!(
        "cmp w0, #{set_seccomp}", "b.eq 1f",
        "adrp x16, {next}", "ldr x16, [x16, :lo12:{next}]", "cbz x16, 1f",
        "br x16",
        "1: b {watched}",
        set_seccomp = const libc::PR_SET_SECCOMP, watched = sym watched_prctl, next = sym next::PRCTL)
}

/// `syscall`.
///
/// # Safety
/// As for libc's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
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

unsafe extern "C" fn watched_prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let call = || match next::PRCTL.get() {
        // SAFETY: the caller's arguments, to libc's function.
        Some(next) => unsafe { next(option, a, b, c, d) },
        None => {
            // SAFETY: the caller's arguments.
            let result = unsafe { sys::call(libc::SYS_prctl, [option as usize, a, b, c, d, 0]) };
            sys::into_errno(result) as c_int
        }
    };
    if option == libc::PR_SET_SECCOMP { filtered(call) } else { call() }
}

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
        // SAFETY: the caller's arguments, to libc's function.
        Some(next) => unsafe { next(number, a, b, c, d, e, f) },
        // SAFETY: the caller's arguments.
        None => sys::into_errno(unsafe { sys::call(number, [a, b, c, d, e, f]) }) as c_long,
    };
    // The other operations of seccomp(2) only ask.
    let sets = match number {
        libc::SYS_seccomp => {
            a == libc::SECCOMP_SET_MODE_STRICT as usize || a == libc::SECCOMP_SET_MODE_FILTER as usize
        }
        libc::SYS_prctl => a as c_int == libc::PR_SET_SECCOMP,
        _ => false,
    };
    if sets { filtered(call) } else { call() }
}

/// Around the call that brings a filter: it is on for us before it is for the kernel.
fn filtered<R: Copy + Into<i64>>(call: impl FnOnce() -> R) -> R {
    if !state::is_active() || !state::may_call() || sys::getpid() != state::PID.load(Relaxed) {
        return call();
    }
    rss::hand_in();
    let now = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    let before = state::MAX_RSS_KIB.swap(now, Relaxed);
    state::FILTERED.store(true, Relaxed);
    let result = call();
    if result.into() < 0 {
        state::MAX_RSS_KIB.store(before, Relaxed);
        state::FILTERED.store(false, Relaxed);
    }
    result
}
