//! PROGRAM: what a program that is about to be exec'd may not report itself. Clients of daemons and of other hosts are often static, or
//! end before a sample sees their arguments. A program of another user may not open the segment.

use core::ffi::c_char;
use core::ptr;

use gpu_track_abi::client::is_client;
use gpu_track_abi::path::file_name;
use gpu_track_abi::record::{ARGUMENT_BYTES, Event, SAME_USER};

use crate::environment::Text;
use crate::hooks::nodes;
use crate::readable::strings;
use crate::{emit, next, state, sys};

type Array = *const *const c_char;

/// Writes PROGRAM before an exec with these arguments, if the program is a client. Also writes it if the program runs as another user
/// than the one with which this image was started. Nothing is written if there is no file at `path`: shells and Python search PATH by
/// one exec after another. A null `path`: it is not known. Before a program that reaches other nodes, waits until the launcher is
/// prepared.
///
/// # Safety
/// `argv` must be as for [`strings`].
pub(super) unsafe fn announce(path: *const c_char, argv: Array) {
    if !state::is_active() || !state::may_call_kernel() {
        return;
    }
    let user = sys::geteuid();
    let is_same = user == next::effective_user();
    // SAFETY: promised by the caller.
    unsafe { write(0, if is_same { SAME_USER } else { user }, path, argv) };
    if nodes::is_told() {
        // SAFETY: promised by the caller.
        unsafe { nodes::prepare(path, argv) };
    }
}

/// Writes PROGRAM of a child of posix_spawn that was started with these arguments, if its program is a client.
///
/// # Safety
/// As [`announce`].
pub(super) unsafe fn announce_spawned(child: u32, argv: Array) {
    if state::is_active() && state::may_call_kernel() {
        // SAFETY: promised by the caller.
        unsafe { write(child, SAME_USER, ptr::null(), argv) };
    }
}

/// Writes PROGRAM if the program is a client or `user` is not [`SAME_USER`], and there is a file at `path`.
///
/// # Safety
/// As [`announce`].
unsafe fn write(child: u32, user: u32, path: *const c_char, argv: Array) {
    // SAFETY: promised by the caller.
    let arguments = unsafe { client_arguments(argv) };
    // For a null path the kernel returns EFAULT, which counts as a file that is there.
    if (arguments.is_some() || user != SAME_USER) && sys::is_there(path, libc::F_OK) {
        let arguments = arguments.unwrap_or([0; ARGUMENT_BYTES]);
        let event = Event::Program { child, user, arguments };
        emit::emit(&emit::origin(sys::getpid()), &event, emit::TO_ALL);
    }
}

/// Waits until the launcher is prepared for the child of posix_spawn that is about to be started with these arguments, if it reaches other
/// nodes.
///
/// # Safety
/// As [`announce`].
pub(super) unsafe fn prepare_spawn(argv: Array) {
    if nodes::is_told() && state::may_call_kernel() {
        // SAFETY: promised by the caller.
        unsafe { nodes::prepare(ptr::null(), argv) };
    }
}

/// The arguments of a client, as in PROGRAM. `None`: the program is no client, or there are no arguments.
///
/// # Safety
/// As [`announce`].
unsafe fn client_arguments(argv: Array) -> Option<[u8; ARGUMENT_BYTES]> {
    // SAFETY: promised by the caller.
    let mut words = unsafe { strings(argv) }.map_while(|word| word.map(Text::bytes));
    let name = words.next().filter(|program| is_client(program)).map(file_name)?;
    let mut arguments = [0; ARGUMENT_BYTES];
    let mut free = arguments.iter_mut();
    let mut next = Some(name);
    while let Some(text) = next {
        for (from, to) in text.iter().chain(&[0]).zip(free.by_ref()) {
            *to = *from;
        }
        next = if free.len() > 0 { words.next() } else { None };
    }
    Some(arguments)
}
