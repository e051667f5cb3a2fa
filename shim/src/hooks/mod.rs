//! The interposed functions, one file per family. A hook has the signature and the safety contract of libc's
//! function. It calls the next definition and returns its result, errno included.

/// Fails to compile unless each hook has the signature that the libc crate declares for its name, because both are elements of one
/// array.
///
/// Not checked, because that crate does not declare them: `_Exit`, `_Fork`, `pidfd_spawn`, `pidfd_spawnp`, `quick_exit`,
/// `wait3`. Also not checked, because they are variadic and written in assembly: `execl`, `execle`, `execlp`, `prctl`, `syscall`.
macro_rules! assert_signatures_of_libc {
    ($($hook:ident)*) => {
        const _: () = { $(let _ = [$hook, libc::$hook];)* };
    };
}

mod exec;
pub(crate) mod exit;
pub(crate) mod fork;
mod nodes;
mod program;
mod sandbox;
mod spawn;
mod wait;
