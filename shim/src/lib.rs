//! The library that is preloaded into every process of the tracked tree.
//!
//! It runs inside other people's programs. So it never allocates, panics, prints or locks, and it starts no thread. It
//! changes no errno, keeps no file descriptor open, and never ends the program. If anything goes wrong, it goes inert: from then on
//! the hooks only call the next definitions.
//!
//! - Built with `panic = "abort"` it is `no_std` and needs only libc.so.6. Built with unwinding (clippy, the
//!   workspace's dev profile) it is an ordinary library that is never preloaded.
//! - Its own system calls bypass libc ([`sys`]): no errno, no cancellation point, no other preloaded library's hook.
//! - The constructor finds the next definition of each hooked function once ([`next`]).
//! - A vfork child runs in its parent's memory. So a process whose pid is not the one in [`state`] writes nothing there. The exception
//!   is that it restricts itself ([`hooks::sandbox`]), which the parent forgets when it reaps the child.
//! - Nothing here has a destructor, because a cancelled thread is unwound straight through these frames.
//!
//! Imports go one way:
//!
//! 1. [`start`]
//! 2. [`hooks`]
//! 3. environment repair ([`env_repair`], [`visibility`], [`environment`]) and records ([`emit`], [`overflow`],
//!    [`segments`], [`identity`], [`rss`], [`proc_status`], [`gpu_library`])
//! 4. [`next`], [`state`], [`sys`]
#![cfg_attr(panic = "abort", no_std)]
#![deny(unreachable_pub)]

mod emit;
mod env_repair;
mod environment;
mod gpu_library;
mod hooks;
mod identity;
mod next;
mod overflow;
mod proc_status;
mod readable;
mod rss;
mod segments;
mod start;
mod state;
mod sys;
mod visibility;

/// The language requires a handler. The built library has no panic path (`scripts/check-shim` checks that).
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit_group(127)
}
