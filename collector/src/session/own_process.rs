//! Settings of the collector's own process: the memory that its allocator keeps.

/// Makes glibc's allocator return freed memory to the kernel. A burst of records needs memory for a moment. The allocator would
/// keep it, in an arena for each thread.
pub(super) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        /// A block of at least this many bytes gets a mapping of its own. This many free bytes at the end of the heap are returned to
        /// the kernel.
        const LARGE: libc::c_int = 512 << 10;
        for (parameter, value) in
            [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)]
        {
            // SAFETY: takes numbers only. If it fails, the collector needs more memory.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}
