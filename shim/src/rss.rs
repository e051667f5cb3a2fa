//! Brings ru_maxrss and VmHWM up to date on kernels that count RSS per thread.
//!
//! Before Linux 6.2 a thread keeps the RSS changes of its page faults to itself (mm/memory.c, SPLIT_RSS_COUNTING). It
//! does so for up to 64 faults of up to 16 pages each. Until it hands them over, ru_maxrss and VmHWM are too low by as
//! much.
//!
//! The kernel hands them over when a thread exits, execs, or unmaps memory (zap_pte_range). START and FORK need no
//! flush: exec has just done it, and fork counts the pages that it copies.

use core::ffi::c_void;
use core::ptr;

use gpu_track_abi::layout::FLAG_SPLIT_RSS;

use crate::{state, sys};

/// The largest page size of Linux on the supported machines (aarch64).
const MAX_PAGE_BYTES: usize = 64 << 10;
/// What the last level of a page table covers at least (4 KiB pages).
const MIN_PAGE_TABLE_SPAN_BYTES: usize = 2 << 20;

/// Makes the kernel count what the calling thread's page faults added. What other threads keep stays uncounted.
///
/// It unmaps one page of the ring. The mapping is shared, so no content is lost; the next record that is written to
/// that page costs a page fault.
pub(crate) fn flush_thread_rss() {
    let Some(header) = state::sessions().find(|header| header.flags & FLAG_SPLIT_RSS != 0) else { return };
    let header = ptr::from_ref(header).cast_mut().cast::<c_void>();
    // The kernel flushes only where a page table exists. The header's does: it was just read.
    let is_in_same_table =
        header.addr() % MIN_PAGE_TABLE_SPAN_BYTES + MAX_PAGE_BYTES < MIN_PAGE_TABLE_SPAN_BYTES;
    let page = if is_in_same_table { header.wrapping_byte_add(MAX_PAGE_BYTES) } else { header };
    // SAFETY: the segment is a shared mapping.
    if !unsafe { sys::unmap_page(page) } {
        flush_with_new_page();
    }
}

/// Flushes by mapping and unmapping a new page, which costs a page fault. MADV_DONTNEED refuses locked memory
/// (mlockall).
#[cold]
fn flush_with_new_page() {
    if let Some(page) = sys::mmap(1, None) {
        // SAFETY: the page is new and has no other user.
        unsafe {
            page.cast::<u8>().write_volatile(1);
            sys::munmap(page, 1);
        }
    }
}
