//! Before Linux 6.2 a thread keeps to itself what its page faults do to the RSS: for up to 64 faults of up to 16 pages
//! each (mm/memory.c, SPLIT_RSS_COUNTING). ru_maxrss and VmHWM are too low by as much until it is handed in.
//!
//! The kernel does so for who ends or execs, and for who gives memory back (zap_pte_range). Neither START nor FORK wants
//! it: what exec inherited was handed in by that, and a fork counts what it copies.

use core::ffi::c_void;
use core::ptr;

use gpu_track_abi::layout::FLAG_SPLIT_RSS;

use crate::{state, sys};

/// No kernel's pages are larger.
const LARGEST_PAGE: usize = 64 << 10;
/// No page table's last level covers less.
const SMALLEST_TABLE: usize = 2 << 20;

/// Have the calling thread's part counted, where the kernel does not by itself. What other threads keep, they keep.
///
/// It gives back a page of the ring: what is in it stays, since the mapping is shared, and there is no page fault but of
/// who writes a record there next.
pub fn hand_in() {
    let Some(header) = state::sessions().find(|header| header.flags & FLAG_SPLIT_RSS != 0) else { return };
    let header = ptr::from_ref(header).cast_mut().cast::<c_void>();
    // The kernel looks only where there is a page table, and that of the header was needed just now to read it.
    let is_in_its_table = header.addr() % SMALLEST_TABLE + LARGEST_PAGE < SMALLEST_TABLE;
    let page = if is_in_its_table { header.wrapping_byte_add(LARGEST_PAGE) } else { header };
    // SAFETY: a shared mapping, of which nothing is lost.
    if !unsafe { sys::give_back(page) } {
        hand_in_by_a_new_page();
    }
}

/// Locked memory (mlockall) can't be given back. This costs a page fault.
#[cold]
fn hand_in_by_a_new_page() {
    if let Some(page) = sys::mmap(1, None) {
        // SAFETY: nobody else knows the new page.
        unsafe {
            page.cast::<u8>().write_volatile(1);
            sys::munmap(page, 1);
        }
    }
}
