//! The collector's own process: the memory that it keeps.

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
