//! posix_spawn and its kind: the environment is repaired, and a child that could not exec is told of, since libc
//! reaps it without any wait function being called.

use core::ffi::{c_char, c_int, c_void};

use gpu_track_abi::record::Event;

use crate::elf32::Program;
use crate::env_repair::with_repaired;
use crate::{emit, next, state, sys};

type Array = *const *const c_char;

macro_rules! spawns {
    ($(#[doc = $doc:literal] $name:ident($out:ty, $program:path) => $next:ident;)*) => {$(
        #[doc = $doc]
        ///
        /// # Safety
        /// As for libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            child: *mut $out, path: *const c_char, actions: *const c_void, attributes: *const c_void,
            argv: Array, envp: Array,
        ) -> c_int {
            // glibc before 2.39 has no pidfd_spawn, but a weak reference would find this one.
            let Some(next) = next::$next.get() else { return libc::ENOSYS };
            // SAFETY: the same promises.
            let error = unsafe { with_repaired(envp, $program(path), &|envp| next(child, path, actions, attributes, argv, envp)) };
            if error != 0 {
                failed(error);
            }
            error
        }
    )*};
}

spawns! {
    /// `posix_spawn`.
    posix_spawn(libc::pid_t, Program::path) => POSIX_SPAWN;
    /// `posix_spawnp`.
    posix_spawnp(libc::pid_t, Program::Named) => POSIX_SPAWNP;
    /// `pidfd_spawn`.
    pidfd_spawn(c_int, Program::path) => PIDFD_SPAWN;
    /// `pidfd_spawnp`.
    pidfd_spawnp(c_int, Program::Named) => PIDFD_SPAWNP;
}

/// SPAWN_FAILED, unless it may have been the clone itself that failed (clone(2)) or, for EINVAL, the attributes.
fn failed(error: c_int) {
    let childless = matches!(error, libc::EAGAIN | libc::ENOMEM | libc::EINVAL | libc::ENOSYS);
    if !childless && state::is_active() && state::may_call() {
        emit::emit(&emit::origin(sys::getpid()), &Event::SpawnFailed { error }, 0);
    }
}
