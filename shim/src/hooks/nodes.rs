//! Programs that reach other nodes wait until the launcher has prepared for them: it starts agents there. Only the first one of a run
//! waits, and only for a limited time.

use core::ffi::c_char;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use gpu_track_abi::client::reaches_nodes;
use gpu_track_abi::layout::{
    Header, NODES_ASKED, NODES_BY_LAUNCHER, NODES_BY_SRUN, NODES_BY_SSH, NODES_GIVEN_UP, NODES_NONE,
};

use crate::environment::Text;
use crate::readable::strings;
use crate::{next, state, sys};

/// How long a program waits at most. Agents are ready in some 0.15 s.
const PATIENCE_NS: u64 = 500_000_000;

/// Whether the launcher of a session is to be told of programs that reach other nodes, or was just told.
pub(super) fn is_told() -> bool {
    state::sessions().any(|header| header.nodes.load(Acquire) != NODES_NONE)
}

/// Tells the launcher that a program is about to start with these arguments, if that reaches other nodes, and waits until it is
/// prepared. Does nothing if there is no file at `path`; a null `path`: it is not known. The caller has checked that system calls are
/// allowed.
///
/// # Safety
/// `argv` must be as for [`strings`].
pub(super) unsafe fn prepare(path: *const c_char, argv: *const *const c_char) {
    for header in state::sessions() {
        let by = header.nodes.load(Acquire);
        if !matches!(by, NODES_NONE | NODES_GIVEN_UP) && header.is_open() {
            // SAFETY: promised by the caller.
            unsafe { prepare_for(header, by, path, argv) };
        }
    }
}

/// As [`prepare`], for one session, whose launcher is to be told of programs that reach nodes `by` this way, or was told.
///
/// # Safety
/// As [`prepare`].
#[cold]
unsafe fn prepare_for(header: &Header, by: u32, path: *const c_char, argv: *const *const c_char) {
    // SAFETY: promised by the caller.
    let arguments = || unsafe { strings(argv) }.map_while(|word| word.map(Text::bytes));
    // While another program waits, it is not known by which way.
    let reaches = |by| reaches_nodes(by, arguments());
    let is_asked = by == NODES_ASKED;
    let is_one = reaches(by)
        || (is_asked && (reaches(NODES_BY_SRUN) || reaches(NODES_BY_SSH) || reaches(NODES_BY_LAUNCHER)));
    // For a null path the kernel returns EFAULT, which counts as a file that is there.
    if is_one && sys::is_there(path, libc::F_OK) {
        ask(header, by);
    }
}

/// Tells the launcher of one session, if no other program has, and waits.
fn ask(header: &Header, by: u32) {
    let word = &header.nodes;
    let deadline_ns = next::clock_ns(libc::CLOCK_MONOTONIC) + PATIENCE_NS;
    match word.compare_exchange(by, NODES_ASKED, AcqRel, Acquire) {
        Ok(_) => {
            // The launcher looks at the word after each signal. One that it can't get leaves the word for other programs.
            let is_here = state::PID_NAMESPACE.load(Acquire) == header.launcher_pid_ns;
            // Any process of the tree can write the header: 0 and negative numbers are groups of processes for kill(2).
            let is_process = (2..=i32::MAX as u32).contains(&header.launcher_pid);
            if !is_here || !is_process || !sys::kill(header.launcher_pid, libc::SIGCHLD) {
                let _ = word.compare_exchange(NODES_ASKED, by, AcqRel, Acquire);
                return;
            }
        }
        Err(NODES_ASKED) => {}
        Err(_) => return,
    }
    while word.load(Acquire) == NODES_ASKED
        && next::clock_ns(libc::CLOCK_MONOTONIC) < deadline_ns
        && sys::futex_wait(word, NODES_ASKED, deadline_ns)
    {}
    // So that no other program waits.
    let _ = word.compare_exchange(NODES_ASKED, NODES_GIVEN_UP, AcqRel, Acquire);
}
