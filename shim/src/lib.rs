//! The library that is preloaded into every process of the tracked tree.
//!
//! It lives in other people's programs, so it never allocates, panics, prints, locks, changes errno, starts a
//! thread, keeps a file descriptor, or ends the program. Whatever goes wrong, it goes inert: the hooks then only
//! hand on to the next definition.
//!
//! - Built with `panic = "abort"` it is `no_std` and needs libc.so.6 alone. Built with unwinding (clippy, the
//!   workspace's dev profile) it is an ordinary library that nobody loads.
//! - System calls of its own go around libc ([`sys`]): no errno, no cancellation point, no other preload's hook.
//! - What a hook hands on to is found once, in the constructor ([`next`]).
//! - A vfork child runs in its parent's memory: whoever has another pid than the one in [`state`] writes nothing
//!   there.
//! - Nothing here has a destructor: a cancelled thread is unwound straight through these frames.
#![cfg_attr(panic = "abort", no_std)]

mod elf32;
mod emit;
mod env_repair;
mod environment;
mod hooks;
mod identity;
mod next;
mod overflow;
mod proc_status;
mod rss;
mod session;
mod start;
mod state;
mod sys;

/// No panic path is left in the built library (`scripts/check-shim` looks); the language asks for this all the same.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit_group(127)
}
