//! The collector's own process: its limits, and the memory that it keeps.

use rustix::process::{Resource, Rlimit};

/// Raises the soft limits of open files and of file size to the hard ones. Two files are held open per process, and the
/// state file is long, though nearly empty.
pub(super) fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = rustix::process::getrlimit(resource);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where it fails the files are opened and closed at every reading, and there is no state for another collector.
        let _ = rustix::process::setrlimit(resource, raised);
    }
}

/// Makes glibc's allocator return freed memory. A burst of records takes memory for a moment; it would keep that, in an
/// arena for each thread.
pub(super) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        /// Blocks of this many bytes are mapped each by itself. So much free memory at the heap's end is given back.
        const LARGE: libc::c_int = 512 << 10;
        for (parameter, value) in
            [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)]
        {
            // SAFETY: takes numbers. Where it has no effect, the collector is larger.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}
