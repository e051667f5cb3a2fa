//! Finds out whether a process has some addresses as one transparent huge page, by the ioctl PAGEMAP_SCAN (Linux 6.7).

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Whether some addresses are mapped as one huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Huge {
    No,
    Yes,
    /// The kernel does not tell.
    Unknown,
}

/// `_IOWR('f', 16, struct pm_scan_arg)` of linux/fs.h.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// The category of huge pages that one entry maps as a whole, in place of a page table.
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Whether a part of these addresses of the process with this pagemap is a huge page.
pub(super) fn find_huge(page_map: &File, addresses: &Range<u64>) -> Huge {
    let mut region = Region::default();
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        start: addresses.start,
        end: addresses.end,
        regions: (&raw mut region).expose_provenance() as u64,
        regions_length: 1,
        max_pages: 1,
        category_mask: PAGE_IS_HUGE,
        return_mask: PAGE_IS_HUGE,
        ..ScanArguments::default()
    };
    // SAFETY: both structures have the kernel's layout and live through the call, which writes to them alone.
    match unsafe { libc::ioctl(page_map.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) } {
        0 => Huge::No,
        1.. => Huge::Yes,
        _ => Huge::Unknown,
    }
}
