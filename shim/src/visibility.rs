//! Whether a program that this process starts can load the shim and map the segment. In a sandbox or container with
//! another root it can't.
//!
//! Under Landlock, a file that can't be opened can still be seen: access(2) does not ask Landlock. So a process that restricts itself
//! tries to open both files from then on. A program that it starts need not: if it could load the shim, the programs that it starts
//! in turn can, too.
//!
//! The exec functions ask the kernel each time, because a process may exec right after a change of its root or mounts
//! (bubblewrap, `preexec_fn` of Python). posix_spawn starts programs in the root of the process itself. There the two
//! system calls would be 2% of its time, so the answer that both are visible is kept for 100 ms. A fork child forgets it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

use crate::environment::{self, PRELOAD, SESSION};
use crate::state::UNKNOWN_PID;
use crate::{next, state, sys};

/// What the new program can see.
#[derive(Clone, Copy)]
pub(crate) struct Visible {
    /// The shim's file. If LD_PRELOAD named a file that it can't see, the dynamic linker would print an error line.
    pub shim: bool,
    /// The segment's file.
    pub session: bool,
}

impl Visible {
    pub(crate) const BOTH: Self = Self { shim: true, session: true };
}

/// For how long posix_spawn does not ask again, nanoseconds.
const ANSWER_KEPT_NS: u64 = 100_000_000;
/// When the kernel last said for posix_spawn that both are visible, CLOCK_MONOTONIC_COARSE nanoseconds; 0: never.
static SAW_BOTH_NS: AtomicU64 = AtomicU64::new(0);

/// The pid of the process that restricted itself by Landlock in this memory; 0: none has. [`UNKNOWN_PID`]: several have, or it is not
/// known.
static LANDLOCKED_PID: AtomicU32 = AtomicU32::new(0);

/// Notes that this process has restricted itself by Landlock. If new programs can't load the shim any more, takes it out of the
/// environment that system(3) and popen(3) hand on. A vfork child does both for its parent, too, until the parent reaps it
/// ([`forget_restrictions_of`]).
pub(crate) fn note_landlock() {
    let may_ask = state::is_active() && state::may_call_kernel();
    let pid = if may_ask { sys::getpid() } else { UNKNOWN_PID };
    let is_first = LANDLOCKED_PID.compare_exchange(0, pid, Relaxed, Relaxed);
    if is_first.is_err_and(|other| other != pid) {
        LANDLOCKED_PID.store(UNKNOWN_PID, Relaxed);
    }
    forget();
    if may_ask && !ask().shim {
        environment::hide_shim();
    }
}

/// Forgets the seccomp filter and the Landlock restrictions of a child that ended, if it ran in this process's memory. Then system(3)
/// and popen(3) hand the shim on again.
pub(crate) fn forget_restrictions_of(child: u32) {
    let was_landlocked = LANDLOCKED_PID.load(Relaxed) == child && child != state::PID.load(Relaxed);
    if was_landlocked {
        LANDLOCKED_PID.store(0, Relaxed);
    }
    let was_filtered = state::forget_filter_of(child);
    if (was_landlocked || was_filtered) && state::may_call_kernel() && ask().shim {
        environment::show_shim();
    }
}

/// Asks the kernel what a new program can see. A file whose path is not known counts as visible. So do the segments of several
/// sessions, since their paths are one string here, joined by colons.
pub(crate) fn ask() -> Visible {
    let shim = PRELOAD.text().value_of(ENV_PRELOAD).unwrap_or_default();
    // F_OK, not R_OK: a segment that another user can't open is still visible.
    let paths = SESSION.text().value_of(ENV_SESSION).unwrap_or_default();
    let is_accessible = |path: &[u8], mode, flags| {
        // Each value reaches to the end of its entry of the environment, where the NUL is.
        let path = path.as_ptr().cast();
        if LANDLOCKED_PID.load(Relaxed) != 0 { sys::can_open(path, flags) } else { sys::is_there(path, mode) }
    };
    Visible {
        shim: shim.is_empty() || is_accessible(shim, libc::R_OK, libc::O_RDONLY),
        session: paths.is_empty()
            || paths.contains(&b':')
            || is_accessible(paths, libc::F_OK, libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK),
    }
}

/// Asks the kernel what a new program can see, unless both were visible less than [`ANSWER_KEPT_NS`] ago.
pub(crate) fn recall_or_ask() -> Visible {
    let now_ns = next::clock_ns(libc::CLOCK_MONOTONIC_COARSE);
    let saw_ns = SAW_BOTH_NS.load(Relaxed);
    if saw_ns != 0 && now_ns.wrapping_sub(saw_ns) < ANSWER_KEPT_NS {
        return Visible::BOTH;
    }
    let visible = ask();
    // A vfork child would write into its parent's memory.
    if visible.shim && visible.session && sys::getpid() == state::PID.load(Relaxed) {
        SAW_BOTH_NS.store(now_ns, Relaxed);
    }
    visible
}

/// Forgets the answer.
fn forget() {
    SAW_BOTH_NS.store(0, Relaxed);
}

/// Corrects what is kept here, in a fork child. The child may change its root before it starts a program, so the answer is forgotten.
/// Landlock's restrictions are the child's own, too.
pub(crate) fn correct_in_fork_child() {
    forget();
    if LANDLOCKED_PID.load(Relaxed) != 0 {
        LANDLOCKED_PID.store(UNKNOWN_PID, Relaxed);
    }
}
