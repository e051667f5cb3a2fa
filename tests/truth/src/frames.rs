//! The page frames that a process has mapped: /proc/PID/pagemap, /proc/kpageflags and /proc/kpagecount. Needs root.
//!
//! The pages that count are those of the kernel's RSS, without the zero page and device memory, and hugetlb pages,
//! which RSS leaves out. The kernel gives one entry for each base page of a huge page, so a huge page needs no rule.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

/// Entries that are read at once.
const BATCH: usize = 1 << 16;
/// Bytes of an entry in all three files.
const ENTRY: usize = 8;
/// pagemap: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// pagemap: the bits of the frame's number.
const NUMBER: u64 = (1 << 55) - 1;
/// kpageflags: a frame without a `struct page`, such as device memory.
const NO_PAGE: u64 = 1 << 20;
/// kpageflags: the zero page, or the huge one.
const ZERO_PAGE: u64 = 1 << 24;

/// A page frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The frame's number in physical memory.
    pub number: u64,
    /// Whether one page table entry of the whole system refers to it.
    pub is_mapped_once: bool,
}

/// The two files that describe all frames.
#[derive(Debug)]
pub struct FrameTables {
    flags: File,
    counts: File,
}

impl FrameTables {
    /// Opens the files. The error is the reason why that is impossible here.
    pub fn open() -> Result<Self, String> {
        let open = |path: &str| File::open(path).map_err(|error| format!("{path}: {error}"));
        Ok(Self { flags: open("/proc/kpageflags")?, counts: open("/proc/kpagecount")? })
    }

    /// The frames that a process has mapped, each once, in order of their numbers. The process must be stopped.
    pub fn mapped_by(&self, pid: u32) -> Result<Vec<Frame>, String> {
        let path = format!("/proc/{pid}/smaps");
        let smaps = match std::fs::read_to_string(&path) {
            // A zombie has no memory.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Vec::new()),
            result => result.map_err(|error| format!("{path}: {error}"))?,
        };
        let path = format!("/proc/{pid}/pagemap");
        let pagemap = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        let mut numbers = Vec::new();
        for mapping in mappings(&smaps)? {
            if !mapping.has_pages || mapping.is_device {
                continue;
            }
            for entry in entries(&pagemap, mapping.first_page, mapping.pages)? {
                if entry & PRESENT != 0 {
                    numbers.push(entry & NUMBER);
                }
            }
        }
        if numbers.contains(&0) {
            return Err(format!("{path}: the kernel hides the frames (needs CAP_SYS_ADMIN)"));
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut frames = Vec::with_capacity(numbers.len());
        for run in numbers.chunk_by(|one, next| next - one == 1) {
            let flags = entries(&self.flags, run[0], run.len())?;
            let counts = entries(&self.counts, run[0], run.len())?;
            for ((number, flags), count) in run.iter().zip(flags).zip(counts) {
                if flags & (ZERO_PAGE | NO_PAGE) == 0 {
                    frames.push(Frame { number: *number, is_mapped_once: count == 1 });
                }
            }
        }
        Ok(frames)
    }
}

/// Entries `first..first + count` of one of the files. Those beyond its end are 0.
fn entries(file: &File, first: u64, count: usize) -> Result<Vec<u64>, String> {
    let mut entries = Vec::with_capacity(count);
    let mut bytes = vec![0; count.min(BATCH) * ENTRY];
    while entries.len() < count {
        let part = (count - entries.len()).min(BATCH);
        let bytes = &mut bytes[..part * ENTRY];
        match file.read_exact_at(bytes, (first + entries.len() as u64) * ENTRY as u64) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => bytes.fill(0),
            Err(error) => return Err(format!("page frames: {error}")),
        }
        entries.extend(bytes.as_chunks::<ENTRY>().0.iter().map(|word| u64::from_ne_bytes(*word)));
    }
    Ok(entries)
}

/// A mapping of a process, in base pages.
#[derive(Debug, PartialEq)]
struct Mapping {
    first_page: u64,
    pages: usize,
    /// Whether any of its pages counts in RSS or is a hugetlb page. Reserved address space of terabytes has none.
    has_pages: bool,
    /// `VM_PFNMAP`: device memory, which is not in RSS.
    is_device: bool,
}

/// The mappings in smaps.
fn mappings(smaps: &str) -> Result<Vec<Mapping>, String> {
    let page_bytes = page_bytes();
    let mut all: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let kib = || value.trim().trim_end_matches(" kB").parse::<u64>();
        match (name, all.last_mut()) {
            ("Rss" | "Shared_Hugetlb" | "Private_Hugetlb", Some(last)) => {
                last.has_pages |= kib().map_err(|error| format!("smaps: {line}: {error}"))? > 0;
            }
            ("VmFlags", Some(last)) => last.is_device = value.split(' ').any(|flag| flag == "pf"),
            _ => {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                let hex = |text| u64::from_str_radix(text, 16).ok();
                if let Some((Some(start), Some(end))) = range.map(|(start, end)| (hex(start), hex(end))) {
                    all.push(Mapping {
                        first_page: start / page_bytes,
                        pages: ((end - start) / page_bytes) as usize,
                        has_pages: false,
                        is_device: false,
                    });
                }
            }
        }
    }
    Ok(all)
}

/// The size of a base page.
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55de0000-55df0000 r--p 00000000 fe:00 42                   /a b: c-d
Size:                 64 kB
Rss:                   4 kB
Private_Hugetlb:       0 kB
VmFlags: rd mr
7f0000000000-7f0000200000 rw-s 00000000 00:11 9            /anon_hugepage (deleted)
Rss:                   0 kB
Shared_Hugetlb:     2048 kB
VmFlags: rd ht
7fd000000000-7fd000004000 r--p 00000000 00:00 0            [vvar]
Rss:                   0 kB
VmFlags: rd mr pf io
";

    #[test]
    fn mappings_are_read_from_smaps() {
        let mapping =
            |first_page, pages, has_pages, is_device| Mapping { first_page, pages, has_pages, is_device };
        let expected = [
            mapping(0x55de0, 16, true, false),
            mapping(0x7_f000_0000, 512, true, false),
            mapping(0x7_fd00_0000, 4, false, true),
        ];
        assert_eq!(mappings(SMAPS).unwrap(), expected);
    }

    #[test]
    fn entries_behind_the_end_are_0() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[1, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(entries(&file, 0, 2).unwrap(), [257, 2].map(u64::to_le));
        assert_eq!(entries(&file, 1, 1).unwrap(), [2_u64.to_le()]);
        assert_eq!(entries(&file, 7, 2).unwrap(), [0, 0]);
    }
}
