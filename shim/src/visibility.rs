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

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};

use crate::environment::{self, PRELOAD, SESSION};
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

/// This process, or the one of which it is a copy, has restricted itself by Landlock.
static IS_LANDLOCKED: AtomicBool = AtomicBool::new(false);

/// Notes that this process has restricted itself by Landlock. If new programs can't load the shim any more, takes it out of the environment
/// that system(3) and popen(3) hand on. A vfork child's note holds for its parent, too, which costs the parent
/// a few microseconds for each exec.
pub(crate) fn note_landlock() {
    IS_LANDLOCKED.store(true, Relaxed);
    forget();
    if state::is_active() && state::may_call_kernel() && !ask().shim {
        environment::hide_shim();
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
        if IS_LANDLOCKED.load(Relaxed) { sys::can_open(path, flags) } else { sys::is_there(path, mode) }
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

/// Forgets the answer. For a fork child, since it may change its root before it starts a program.
pub(crate) fn forget() {
    SAW_BOTH_NS.store(0, Relaxed);
}
