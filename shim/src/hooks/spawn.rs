//! The posix_spawn family: repairs the environment, waits before a program that reaches other nodes, and writes SPAWN_FAILED for a
//! child that could not exec. libc reaps that child without calling a wait function.

use core::ffi::{c_char, c_int};

use gpu_track_abi::record::Event;

use crate::env_repair::with_repaired;
use crate::hooks::program;
use crate::{emit, next, state, sys, visibility};

assert_signatures_of_libc! { posix_spawn posix_spawnp }

macro_rules! spawns {
    ($($name:ident($out:ty) => $next:ident $(, $announce:expr)?;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            child: *mut $out, path: *const c_char, actions: *const libc::posix_spawn_file_actions_t,
            attributes: *const libc::posix_spawnattr_t, argv: *const *mut c_char, envp: *const *mut c_char,
        ) -> c_int {
            // glibc before 2.39 has no pidfd_spawn. A program that looks for it by a weak reference finds this hook all the same.
            let Some(next) = next::$next.get() else { return libc::ENOSYS };
            // SAFETY: the caller keeps libc's contract.
            unsafe { program::prepare_spawn(argv.cast()) };
            // SAFETY: the caller keeps libc's contract.
            let error = unsafe {
                with_repaired(argv.cast(), envp.cast(), visibility::recall_or_ask, &|envp| {
                    next(child, path, actions, attributes, argv, envp.cast())
                })
            };
            if error != 0 {
                write_spawn_failed(error);
            }
            // SAFETY: the caller keeps libc's contract.
            $(unsafe { $announce(error, child, argv.cast()) };)?
            error
        }
    )*};
}

spawns! {
    posix_spawn(libc::pid_t) => POSIX_SPAWN, announce;
    posix_spawnp(libc::pid_t) => POSIX_SPAWNP, announce;
    pidfd_spawn(c_int) => PIDFD_SPAWN;
    pidfd_spawnp(c_int) => PIDFD_SPAWNP;
}

/// Writes PROGRAM for a child that was spawned with these arguments, unless an error kept it from being made. A child of pidfd_spawn
/// gets no record, since its pid is not known here.
///
/// # Safety
/// `child` must be null or what posix_spawn has written the child's pid to, and `argv` be null or a null-terminated array of strings.
unsafe fn announce(error: c_int, child: *const libc::pid_t, argv: *const *const c_char) {
    if error == 0 && !child.is_null() {
        // SAFETY: promised by the caller.
        unsafe { program::announce_spawned(child.read().cast_unsigned(), argv) };
    }
}

/// Writes SPAWN_FAILED, unless the error may mean that no child was made. Such errors come from clone(2); EINVAL also comes from
/// wrong attributes.
fn write_spawn_failed(error: c_int) {
    let may_be_childless = matches!(error, libc::EAGAIN | libc::ENOMEM | libc::EINVAL | libc::ENOSYS);
    if !may_be_childless && state::is_active() && state::may_call_kernel() {
        emit::emit(&emit::origin(sys::getpid()), &Event::SpawnFailed { error }, emit::TO_ALL);
    }
}
