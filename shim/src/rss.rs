//! Brings ru_maxrss and VmHWM up to date on kernels that count RSS per thread.
//!
//! Before Linux 6.2 the kernel first counts the RSS changes of page faults for each thread (mm/memory.c, SPLIT_RSS_COUNTING). It does
//! so for up to 64 faults of up to 16 pages each. Until it adds them to the process's RSS, ru_maxrss and VmHWM are too low by as
//! much.
//!
//! The kernel adds them when a thread exits, execs, or unmaps memory (zap_pte_range). START and FORK need no
//! flush: exec has just done it, and fork counts the pages that it copies.

use core::ffi::c_void;
use core::ptr;

use gpu_track_abi::layout::FLAG_SPLIT_RSS;

use crate::{state, sys};

/// The largest page size of Linux on the supported machines (aarch64).
const MAX_PAGE_BYTES: usize = 64 << 10;
/// The least memory that a table of the page tables' last level covers (4 KiB pages).
const MIN_PAGE_TABLE_SPAN_BYTES: usize = 2 << 20;

/// Makes the kernel add the RSS changes of the calling thread's page faults. Those of other threads are not added.
///
/// For this it unmaps one page of a segment. The mapping is shared, so no content is lost; the next access to that page costs a page
/// fault. Without the header flag for such kernels it does nothing.
pub(crate) fn flush_thread_rss() {
    let Some(header) = state::sessions().find(|header| header.flags & FLAG_SPLIT_RSS != 0) else { return };
    let header = ptr::from_ref(header).cast_mut().cast::<c_void>();
    // The kernel flushes only where a page table exists. The header's exists, since the header was just read. So a page that is covered
    // by the same table is unmapped: one of the ring, or else the header's own.
    let is_in_same_table =
        header.addr() % MIN_PAGE_TABLE_SPAN_BYTES + MAX_PAGE_BYTES < MIN_PAGE_TABLE_SPAN_BYTES;
    let page = if is_in_same_table { header.wrapping_byte_add(MAX_PAGE_BYTES) } else { header };
    // SAFETY: the segment is a shared mapping.
    if !unsafe { sys::unmap_page(page) } {
        flush_with_new_page();
    }
}

/// Flushes by mapping and unmapping a new page, which costs a page fault. It is for locked memory (mlockall), which MADV_DONTNEED
/// refuses.
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
