//! The exec family: repairs the environment of the new image, and writes EXEC where the old image's peak would be lost.
//!
//! Without a repair, each hook calls the next definition of its own name. With a repair, execv calls the next execve and execvp the
//! next execvpe, which take an environment. libc does the search along PATH. `visibility::ask` tells whether the new image can see the
//! shim and the segment.
//!
//! execl, execlp and execle are variadic, which stable Rust can't define. A few instructions push the register
//! arguments below those on the stack. Together they are an argv for the hooks that take one.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gpu_track_abi::record::Event;

use crate::env_repair::with_repaired;
use crate::environment::environ;
use crate::hooks::program;
use crate::proc_status::vm_hwm_kib;
use crate::{emit, next, rss, state, sys, visibility};

assert_signatures_of_libc! { execv execve execveat execvp execvpe fexecve }

type Array = *const *const c_char;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execve(path: *const c_char, argv: Array, envp: Array) -> c_int {
    save_peak();
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(path, argv) };
    // SAFETY: the caller keeps libc's contract.
    unsafe { with_repaired(argv, envp, visibility::ask, &|envp| next_execve(path, argv, envp)) }
}

/// Hooks execv. It takes no environment, so execve is called with a repaired one.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: Array) -> c_int {
    save_peak();
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(path, argv) };
    // SAFETY: the caller keeps libc's contract.
    unsafe {
        with_repaired(argv, environ, visibility::ask, &|envp| match next::EXECV.get() {
            Some(next) if envp == environ => next(path, argv),
            _ => next_execve(path, argv, envp),
        })
    }
}

/// Hooks execvp. It takes no environment, so execvpe is called with a repaired one.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: Array) -> c_int {
    save_peak();
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(ptr::null(), argv) };
    // SAFETY: the caller keeps libc's contract.
    unsafe {
        with_repaired(argv, environ, visibility::ask, &|envp| match next::EXECVP.get() {
            Some(next) if envp == environ => next(file, argv),
            _ => next_execvpe(file, argv, envp),
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: *const c_char, argv: Array, envp: Array) -> c_int {
    save_peak();
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(ptr::null(), argv) };
    // SAFETY: the caller keeps libc's contract.
    unsafe { with_repaired(argv, envp, visibility::ask, &|envp| next_execvpe(file, argv, envp)) }
}

/// Hooks fexecve. If there is no next one, calls the kernel's execveat, which can do the same.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: Array, envp: Array) -> c_int {
    save_peak();
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(ptr::null(), argv) };
    // SAFETY: the caller keeps libc's contract.
    unsafe {
        with_repaired(argv, envp, visibility::ask, &|envp| match next::FEXECVE.get() {
            Some(next) => next(fd, argv, envp),
            None => raw_execveat(fd, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH),
        })
    }
}

/// Hooks execveat. The libc crate declares its arrays with another type than those of the other functions here.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
    flags: c_int,
) -> c_int {
    save_peak();
    // The path can be relative to `dir`, where `announce` does not look for it.
    // SAFETY: the caller keeps libc's contract.
    unsafe { program::announce(ptr::null(), argv.cast()) };
    // SAFETY: the caller keeps libc's contract.
    unsafe {
        with_repaired(argv.cast(), envp.cast(), visibility::ask, &|envp| match next::EXECVEAT.get() {
            Some(next) => next(dir, path, argv, envp.cast(), flags),
            None => raw_execveat(dir, path, argv.cast(), envp, flags),
        })
    }
}

macro_rules! variadic {
    ($($name:ident => $inner:ident;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            // The return address moves down, so that rsi..r9 come right below the arguments on the stack. Six pushes
            // less one pop keep the stack aligned for the call.
            naked_asm!(
                "pop rax",
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {inner}",
                "pop rdx",
                "add rsp, 40",
                "push rdx",
                "ret",
                inner = sym $inner)
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
            // x1..x7 come right below the arguments on the stack. The frame is a multiple of 16 bytes.
            naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {inner}",
                "ldp x29, x30, [sp], #80",
                "ret",
                inner = sym $inner)
        }
    )*};
}

variadic! {
    execl => execv;
    execlp => execvp;
    execle => execle_array;
}

/// Does what execle does, with the arguments as an array. The environment follows the null that ends the arguments.
unsafe extern "C" fn execle_array(path: *const c_char, argv: Array) -> c_int {
    // SAFETY: the caller's arguments end with null, which the environment follows.
    unsafe {
        let mut end = argv;
        while !end.read().is_null() {
            end = end.add(1);
        }
        execve(path, argv, end.add(1).cast::<Array>().read())
    }
}

/// Calls the next execve, or the kernel if there is none.
unsafe fn next_execve(path: *const c_char, argv: Array, envp: Array) -> c_int {
    // SAFETY: the caller keeps execve's contract.
    unsafe {
        match next::EXECVE.get() {
            Some(next) => next(path, argv, envp),
            None => {
                let args = [path as usize, argv as usize, envp as usize, 0, 0, 0];
                sys::into_errno(sys::call(libc::SYS_execve, args)) as c_int
            }
        }
    }
}

/// Calls the next execvpe. Fails with ENOSYS if there is none.
unsafe fn next_execvpe(file: *const c_char, argv: Array, envp: Array) -> c_int {
    match next::EXECVPE.get() {
        // SAFETY: the caller keeps execvpe's contract.
        Some(next) => unsafe { next(file, argv, envp) },
        None => sys::into_errno(-(libc::ENOSYS as isize)) as c_int,
    }
}

/// Calls the kernel's execveat, for hooks whose function no other library has, as in an older libc. On an error it sets errno and
/// returns -1, as libc does.
unsafe fn raw_execveat(dir: c_int, path: *const c_char, argv: Array, envp: Array, flags: c_int) -> c_int {
    let args = [dir as usize, path as usize, argv as usize, envp as usize, flags as usize, 0];
    // SAFETY: the caller keeps execveat's contract.
    sys::into_errno(unsafe { sys::call(libc::SYS_execveat, args) }) as c_int
}

/// The VmHWM in the last EXEC record. A search along PATH may try several execs, for which one record is enough.
static SAVED_VM_HWM_KIB: AtomicU64 = AtomicU64::new(0);

/// Writes EXEC with this image's peak, if the next image's START will not show it.
///
/// That START has ru_maxrss, which exec keeps. If this image's peak is above the ru_maxrss that it inherited itself, START shows it,
/// and EXEC is not needed. A fork child, which wrote no START, and a vfork child, whose image is its parent's, write no EXEC.
fn save_peak() {
    if !state::is_active() || !state::may_call_kernel() || !state::WROTE_START.load(Relaxed) {
        return;
    }
    let pid = sys::getpid();
    if pid != state::PID.load(Relaxed) {
        return;
    }
    // Before Linux 6.2, ru_maxrss lacks this thread's last page faults.
    rss::flush_thread_rss();
    let max_rss_kib = sys::getrusage(libc::RUSAGE_SELF).ru_maxrss as u64;
    if max_rss_kib > state::MAX_RSS_KIB.load(Relaxed) {
        return;
    }
    let vm_hwm_kib = vm_hwm_kib();
    if SAVED_VM_HWM_KIB.swap(vm_hwm_kib, Relaxed) != vm_hwm_kib {
        emit::emit(&emit::origin(pid), &Event::Exec { vm_hwm_kib }, emit::TO_ALL);
    }
}
