//! Counts the pages of fork relatives by /proc/PID/pagemap: which of them one process alone has, and which several share.
//!
//! smaps and smaps_rollup walk a mapping with the process's mmap lock held, and the process waits for it in mmap(2) and
//! pthread_create(3). For pagemap, the kernel takes the lock for 2 MiB at a time. It says of each page whether another process has
//! it, too, but not how many have it. Fork relatives have a page that they share at the same address, as fork(2) copies the page
//! table. So relatives are read together, one chunk of addresses after another.
//!
//! Only root sees the frame number of a page, which tells whether two processes have the same one. For other users, all shared pages
//! of relatives at one address count as one page. There can be more: of four relatives, two may share one page and two another. So
//! the sum is a lower bound. How many more pages there can be is counted, too.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::huge_pages::{Huge, find_huge};
use super::pages::{ENTRY, EXCLUSIVE, FRAME, MAX_PIECES, OF_FILE, PRESENT, add_page};
use super::parse::{Mapping, MappingKind, Pieces};
use super::{ProcRoot, read_whole};
use crate::model::observation::{Mappings, Rollup, Size};

/// Number of pages that are read at a time: those of one page table, 2 MiB with pages of 4 KiB.
const CHUNK_PAGES: usize = 512;
/// A text of maps with more bytes is not read. This many bytes are about 100,000 mappings.
const MAX_TEXT_BYTES: u64 = 8 << 20;
/// A mapping that is longer than this and [`SPARSE`] times the RSS is not read.
const SPARSE_FROM_BYTES: u64 = 1 << 30;
/// See [`SPARSE_FROM_BYTES`]. Absent pages have entries, too, at a tenth of the cost.
const SPARSE: u64 = 4;
/// One part in this many of the anonymous pages may be missing, as those of mappings that were not read.
const MISSING_PART: u64 = 16;
/// Number of bytes of anonymous pages that may be missing in addition: the process may have touched them since.
const MISSING_BYTES: u64 = 16 << 20;
/// The upper half of the addresses is the kernel's. It has the mapping `[vsyscall]`, and no pagemap.
const KERNEL: u64 = 1 << 63;
/// Parts of a byte in which proportional sizes are added up, as the kernel does (`PSS_SHIFT`).
const FRACTION_BITS: u32 = 12;

/// The pages of one process, while they are counted.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    page_map: File,
    /// Reading failed: the process has ended or exec'd.
    is_gone: bool,
    with_anonymous: bool,
    /// What is read of it, by address.
    mappings: Vec<Mapping>,
    /// The first of `mappings` that is not read to its end.
    next: usize,
    /// Resident pages of the file of that mapping, as far as it was read.
    pieces: Pieces,
    /// The chunk that was read. [`PRESENT`], [`EXCLUSIVE`] and [`FRAME`] of anonymous pages; 0 for any other page.
    chunk: Vec<u64>,
    /// How many pages of the chunk are anonymous and its own, and how many are anonymous and of others, too.
    in_chunk: Anonymous,
    /// Whether its own pages of the chunk are one huge page.
    huge: Huge,
    count: Count,
}

/// Numbers of anonymous pages.
#[derive(Debug, Clone, Copy, Default)]
struct Anonymous {
    own: usize,
    shared: usize,
}

/// What was counted of a process.
#[derive(Debug, Default)]
struct Count {
    anonymous: Anonymous,
    /// Its proportional part of the shared anonymous pages, 1 / 2^[`FRACTION_BITS`] bytes.
    shared_part: u64,
    /// How many more pages there can be at the addresses of its shared ones. Of the relatives that share an address, only one counts
    /// them.
    unseen: usize,
    /// Pages of files that it alone has, bytes.
    own_of_files: u64,
    /// Pages of files that others have, too, bytes.
    shared_of_files: u64,
    files: Mappings,
}

impl AddressSpace {
    /// Opens the pagemap of a process with this RSS. Without `with_anonymous`, only its mappings of files are read.
    ///
    /// # Errors
    /// If it may not be read, as that of another user's process, or is gone, or has too many mappings.
    pub(crate) fn open(root: &ProcRoot, pid: u32, rss_bytes: u64, with_anonymous: bool) -> io::Result<Self> {
        let page_map = root.open(pid, "pagemap")?;
        let text = read_whole(&root.open(pid, "maps")?, MAX_TEXT_BYTES)?;
        // Empty: the process has no memory any more. Of this length: the text is cut off.
        if text.is_empty() || text.len() as u64 == MAX_TEXT_BYTES {
            return Err(io::ErrorKind::NotFound.into());
        }
        let most_bytes = rss_bytes.saturating_mul(SPARSE).max(SPARSE_FROM_BYTES);
        let is_read = |mapping: &Mapping| {
            let Range { start, end } = mapping.addresses();
            let is_mapped = mapping.kind != MappingKind::Reserved && end <= KERNEL;
            is_mapped && end - start <= most_bytes && (with_anonymous || mapping.file.1 != 0)
        };
        Ok(Self {
            page_map,
            is_gone: false,
            with_anonymous,
            mappings: text.split(|byte| *byte == b'\n').filter_map(Mapping::header).filter(is_read).collect(),
            next: 0,
            pieces: Pieces::new(),
            chunk: Vec::new(),
            in_chunk: Anonymous::default(),
            huge: Huge::No,
            count: Count::default(),
        })
    }

    /// The length of all that is read of it, bytes.
    pub(crate) fn length_bytes(&self) -> u64 {
        let length = |mapping: &Mapping| mapping.addresses().end - mapping.address;
        self.mappings.iter().map(length).fold(0, u64::saturating_add)
    }

    /// Reads a chunk of addresses, and counts its pages.
    fn read_chunk(&mut self, addresses: &Range<u64>, page_bytes: u64) {
        self.chunk.clear();
        (self.in_chunk, self.huge) = (Anonymous::default(), Huge::No);
        while self.mappings.get(self.next).is_some_and(|next| next.addresses().end <= addresses.start) {
            self.close_mapping();
        }
        let has_pages = self.mappings.get(self.next).is_some_and(|next| next.address < addresses.end);
        if !has_pages || self.is_gone {
            return;
        }
        let mut buffer = [0; CHUNK_PAGES * ENTRY as usize];
        let length = (addresses.end - addresses.start) / page_bytes * ENTRY;
        let Some(bytes) = buffer.get_mut(..length as usize) else { return };
        if self.page_map.read_exact_at(bytes, addresses.start / page_bytes * ENTRY).is_err() {
            self.is_gone = true;
            return;
        }
        let entries = bytes.as_chunks().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        let mut at = addresses.start;
        for entry in entries {
            while self.mappings.get(self.next).is_some_and(|next| next.addresses().end <= at) {
                self.close_mapping();
            }
            let kept = self.count_page(at, entry, page_bytes);
            self.chunk.push(kept);
            at += page_bytes;
        }
        self.count.anonymous.own += self.in_chunk.own;
        self.count.anonymous.shared += self.in_chunk.shared;
    }

    /// Counts the page at this address by its pagemap entry. Returns the bits that are kept in `chunk`, which are 0 unless the page
    /// is anonymous.
    fn count_page(&mut self, at: u64, entry: u64, page_bytes: u64) -> u64 {
        // An address between two mappings was mapped after maps was read.
        let Some(mapping) = self.mappings.get_mut(self.next).filter(|mapping| mapping.address <= at) else {
            return 0;
        };
        if entry & PRESENT == 0 {
            return 0;
        }
        let is_own = entry & EXCLUSIVE != 0;
        if entry & OF_FILE != 0 || mapping.kind == MappingKind::AnonymousHugetlb {
            add_page(&mut self.pieces, at - mapping.address, page_bytes);
            mapping.rss += page_bytes;
            if is_own {
                mapping.pss += page_bytes;
                self.count.own_of_files += page_bytes;
            } else {
                // How many have it is unknown, so it is not in the proportional size.
                self.count.shared_of_files += page_bytes;
            }
            return 0;
        }
        if mapping.kind == MappingKind::Shared {
            // It is a device's memory, which is not in the RSS.
            return 0;
        }
        *(if is_own { &mut self.in_chunk.own } else { &mut self.in_chunk.shared }) += 1;
        entry & (PRESENT | EXCLUSIVE | FRAME)
    }

    /// Keeps what was counted of the file of the next mapping, and goes on to the mapping after that.
    fn close_mapping(&mut self) {
        let pieces = std::mem::take(&mut self.pieces);
        if let Some(mapping) = self.mappings.get(self.next) {
            let pieces = (pieces.len() <= MAX_PIECES).then_some(pieces);
            // `count_page` adds pages of the file alone to the mapping's sizes, so none of its PSS is anonymous.
            mapping.add_pages_of_file(&mut self.count.files, 0, |_| pieces.clone());
        }
        self.next += 1;
    }

    /// The figures that smaps would have. `size`: the process's size right after its pages were counted. `None`: they could
    /// not be counted.
    pub(crate) fn finish(mut self, size: Size, page_bytes: u64) -> Option<Mappings> {
        if self.is_gone {
            return None;
        }
        while self.next < self.mappings.len() {
            self.close_mapping();
        }
        let anonymous_bytes = size.rss_bytes - size.shared_bytes;
        let (private_anon_bytes, pss_anon_bytes) = self.anonymous_parts(anonymous_bytes, page_bytes)?;
        let Count { own_of_files, shared_of_files, unseen, mut files, .. } = self.count;
        files.private_anon_bytes = private_anon_bytes;
        files.rollup = Rollup {
            rss_bytes: size.rss_bytes,
            pss_bytes: pss_anon_bytes + own_of_files,
            pss_anon_bytes,
            private_bytes: private_anon_bytes + own_of_files,
            anonymous_bytes,
            uncounted_bytes: shared_of_files,
            unseen_bytes: unseen as u64 * page_bytes,
        };
        Some(files)
    }

    /// The anonymous pages that the process alone has, and its proportional part of all that it has, bytes.
    /// `anonymous_bytes`: all that it has, by statm. `None`: pages are missing, or the kernel does not say which are its own.
    fn anonymous_parts(&self, anonymous_bytes: u64, page_bytes: u64) -> Option<(u64, u64)> {
        if !self.with_anonymous {
            return Some((anonymous_bytes, anonymous_bytes));
        }
        let own_bytes = self.count.anonymous.own as u64 * page_bytes;
        let shared_bytes = self.count.anonymous.shared as u64 * page_bytes;
        let missing_bytes = anonymous_bytes.saturating_sub(own_bytes + shared_bytes);
        // Every process has at least one page for itself, of its stack. If it seems to have none, the kernel does not tell.
        if own_bytes == 0 || missing_bytes > anonymous_bytes / MISSING_PART + MISSING_BYTES {
            return None;
        }
        // The zero page counts as shared, and is not in the RSS. It stands for pages that were read and never written.
        let resident_bytes = shared_bytes.min(anonymous_bytes.saturating_sub(own_bytes));
        let part_bytes = u128::from(self.count.shared_part >> FRACTION_BITS) * u128::from(resident_bytes);
        let part_bytes = part_bytes.checked_div(u128::from(shared_bytes)).unwrap_or(0) as u64;
        Some((own_bytes, own_bytes + part_bytes))
    }

    /// Counts a page of the chunk as shared that was counted as the process's own.
    fn share(&mut self, page: usize) {
        if let Some(entry) = self.chunk.get_mut(page) {
            *entry &= !EXCLUSIVE;
            self.count.anonymous.own -= 1;
            self.count.anonymous.shared += 1;
        }
    }

    /// What is kept of the entry of a page of the chunk; 0: it is no anonymous page.
    fn kept(&self, page: usize) -> u64 {
        self.chunk.get(page).copied().unwrap_or(0)
    }
}

/// Counts the pages of fork relatives. Those that they share at one address are divided among them.
pub(crate) fn count_pages(relatives: &mut [AddressSpace], page_bytes: u64) {
    let chunk_bytes = CHUNK_PAGES as u64 * page_bytes;
    for Range { start, end } in all_addresses(relatives) {
        let mut at = start;
        while at < end {
            let chunk = at..end.min((at / chunk_bytes + 1) * chunk_bytes);
            at = chunk.end;
            for space in &mut *relatives {
                space.read_chunk(&chunk, page_bytes);
            }
            if relatives.iter().any(|space| space.in_chunk.shared > 0) {
                note_huge_pages(relatives, &chunk);
                divide_shared(relatives, page_bytes);
            }
        }
    }
}

/// The addresses that at least one of these processes has mapped, ascending. What follows without a gap is one range.
fn all_addresses(relatives: &[AddressSpace]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> =
        relatives.iter().flat_map(|space| space.mappings.iter().map(Mapping::addresses)).collect();
    all.sort_unstable_by_key(|addresses| addresses.start);
    all.dedup_by(|next, last| {
        let is_continued = next.start <= last.end;
        if is_continued {
            last.end = last.end.max(next.end);
        }
        is_continued
    });
    all
}

/// Notes which processes have one huge page in this chunk, where the entries say that it is their own.
///
/// If a huge page is mapped as a whole, all its 512 entries say whether its first page is shared (Linux before 6.11, and 6.18). If
/// relatives share pages there, they share them with this process, though they have their own copy of the first one.
fn note_huge_pages(relatives: &mut [AddressSpace], chunk: &Range<u64>) {
    for space in relatives.iter_mut().filter(|space| space.in_chunk.own == CHUNK_PAGES) {
        space.huge = find_huge(&space.page_map, chunk);
    }
}

/// Divides the shared anonymous pages of the chunk that was read: each process gets its part of a page that several have.
fn divide_shared(relatives: &mut [AddressSpace], page_bytes: u64) {
    let page = page_bytes << FRACTION_BITS;
    // The pages that are shared at an address, each as often as processes have it. Without root's rights they all look alike.
    let mut shared: Vec<u64> = Vec::with_capacity(relatives.len());
    for at in 0..CHUNK_PAGES {
        let entries = relatives.iter().map(|space| space.kept(at));
        shared.clear();
        shared.extend(entries.filter(|entry| *entry != 0 && entry & EXCLUSIVE == 0));
        let Some(first) = shared.first().copied() else { continue };
        let claims = shared.len();
        for space in relatives.iter_mut() {
            let entry = space.kept(at) & !EXCLUSIVE;
            // If only one process says that it shares the page, another process must have the page, too.
            let is_shared = space.huge == Huge::Yes || (space.huge == Huge::Unknown && claims == 1);
            if is_shared && shared.contains(&entry) {
                shared.push(entry);
                space.share(at);
            }
        }
        let is_one_page = shared.iter().all(|entry| *entry == first);
        // Each shared page has at least two processes, so there are at most half as many pages as entries.
        let mut unseen = if first & FRAME == 0 { (shared.len() / 2).saturating_sub(1) } else { 0 };
        for space in relatives.iter_mut() {
            let entry = space.kept(at);
            if entry != 0 && entry & EXCLUSIVE == 0 {
                let alike = || shared.iter().filter(|other| **other == entry).count();
                space.count.shared_part += page / if is_one_page { shared.len() } else { alike() } as u64;
                space.count.unseen += std::mem::take(&mut unseen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, write};

    use super::*;

    const PAGE: u64 = 4096;
    /// Anonymous pages.
    const SHARED: u64 = PRESENT;
    const OWN: u64 = PRESENT | EXCLUSIVE;
    /// Pages of a file.
    const FILE: u64 = PRESENT | OF_FILE;
    const OWN_FILE: u64 = FILE | EXCLUSIVE;
    /// A swapped-out page has bit 62, a written one bit 55.
    const SWAPPED: u64 = 1 << 62;
    const WRITTEN: u64 = 1 << 55;
    /// The mapping of the tests begins two pages before the end of a chunk.
    const HEAP: &str = "7fe000-1000000 rw-p 00000000 00:00 0 [heap]";
    const HEAP_PAGE: u64 = 0x7fe;
    /// How many pages [`Proc::has`] gives a process beside those of the test: its stack.
    const STACK: u64 = 1;

    /// A /proc of made-up processes.
    struct Proc(tempfile::TempDir);

    impl Proc {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        /// A process with a stack, this mapping, and these entries from a page on.
        fn has(&self, pid: u32, mapping: &str, page: u64, entries: &[u64]) {
            let directory = self.0.path().join(pid.to_string());
            create_dir(&directory).unwrap();
            let stack = "10000000-10001000 rw-p 00000000 00:00 0 [stack]";
            let vsyscall = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]";
            write(directory.join("maps"), format!("{mapping}\n{stack}\n{vsyscall}\n")).unwrap();
            let page_map = File::create(directory.join("pagemap")).unwrap();
            let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
            page_map.write_all_at(&bytes, page * ENTRY).unwrap();
            page_map.write_all_at(&OWN.to_ne_bytes(), 0x10000 * ENTRY).unwrap();
        }

        /// Counts the pages of processes with as many anonymous pages by statm, without the stack.
        fn count<const N: usize>(&self, processes: [(u32, u64); N]) -> [Option<Mappings>; N] {
            let root = ProcRoot::new(self.0.path());
            let open = |(pid, _)| AddressSpace::open(&root, pid, 1 << 20, true).unwrap();
            let mut spaces: Vec<AddressSpace> = processes.map(open).into();
            count_pages(&mut spaces, PAGE);
            let mut spaces = spaces.into_iter();
            processes.map(|(_, pages)| {
                let size = Size { rss_bytes: (pages + STACK) * PAGE, shared_bytes: 0 };
                spaces.next().unwrap().finish(size, PAGE)
            })
        }

        /// The proportional and the private part of the anonymous pages, without the stack.
        fn anonymous<const N: usize>(&self, processes: [(u32, u64); N]) -> [(f64, u64); N] {
            self.count(processes).map(|mappings| {
                let mappings = mappings.unwrap();
                let pages = |bytes: u64| bytes as f64 / PAGE as f64 - STACK as f64;
                (pages(mappings.rollup.pss_anon_bytes), pages(mappings.private_anon_bytes) as u64)
            })
        }
    }

    // Requirement: RAM-3
    #[test]
    fn page_of_several_relatives_is_divided_among_those_that_have_it() {
        let proc = Proc::new();
        proc.has(1, HEAP, HEAP_PAGE, &[SHARED | WRITTEN, OWN, SHARED, SWAPPED, OWN]);
        proc.has(2, HEAP, HEAP_PAGE, &[SHARED, SHARED, SHARED, 0]);
        proc.has(3, HEAP, HEAP_PAGE, &[SHARED, SHARED, OWN | WRITTEN, 0]);
        // Page by page: 1/3 each; one's own and 1/2 each of the others; 1/2 each and the third one's own.
        let third = 1.0 / 3.0;
        let expected = [(third + 1.0 + 0.5 + 1.0, 2), (third + 0.5 + 0.5, 0), (third + 0.5 + 1.0, 1)];
        for ((proportional, private), expected) in
            proc.anonymous([(1, 4), (2, 3), (3, 3)]).iter().zip(expected)
        {
            assert!((proportional - expected.0).abs() < 0.01 && *private == expected.1, "{proportional}");
        }
    }

    // Requirement: RAM-3
    #[test]
    fn root_sees_two_pages_at_one_address() {
        let proc = Proc::new();
        for (pid, frame) in [(1, 7), (2, 7), (3, 9), (4, 9)] {
            proc.has(pid, HEAP, HEAP_PAGE, &[SHARED | frame; 10]);
            proc.has(10 + pid, HEAP, HEAP_PAGE, &[SHARED; 10]);
        }
        assert_eq!(proc.anonymous([(1, 10), (2, 10), (3, 10), (4, 10)]), [(5.0, 0); 4]);
        assert_eq!(proc.anonymous([(11, 10), (12, 10), (13, 10), (14, 10)]), [(2.5, 0); 4]);
    }

    // Requirement: RAM-3
    #[test]
    fn zero_page_is_no_memory() {
        let proc = Proc::new();
        for pid in [1, 2] {
            proc.has(pid, HEAP, HEAP_PAGE, &[SHARED; 100]);
        }
        // By statm, only 40 of the pages are resident.
        assert_eq!(proc.anonymous([(1, 40), (2, 40)]), [(20.0, 0); 2]);
    }

    // Requirement: RAM-3, RAM-88
    #[test]
    fn pages_that_the_entries_call_own_can_be_a_huge_page_of_relatives() {
        let proc = Proc::new();
        let mapping = "800000-a00000 rw-p 00000000 00:00 0";
        let mut written = [SHARED; CHUNK_PAGES];
        written[0] = OWN;
        proc.has(1, mapping, 0x800, &[OWN; CHUNK_PAGES]);
        proc.has(2, mapping, 0x800, &written);
        // The made-up pagemap does not say whether there is a huge page.
        assert_eq!(proc.anonymous([(1, 512), (2, 512)]), [(1.0 + 255.5, 1), (1.0 + 255.5, 1)]);
        // Two relatives can as well share what the first one has copied.
        proc.has(3, mapping, 0x800, &written);
        let of_two = (1.0 + 255.5, 1);
        assert_eq!(proc.anonymous([(1, 512), (2, 512), (3, 512)]), [(512.0, 512), of_two, of_two]);
    }

    // Requirement: RAM-23
    #[test]
    fn figures_are_unknown_if_pages_are_missing_or_the_kernel_does_not_say_which_are_own() {
        let proc = Proc::new();
        proc.has(1, HEAP, HEAP_PAGE, &[SHARED; 10]);
        let [few, many] = [100, 10_000].map(|pages| proc.count([(1, pages)]));
        assert!(few[0].is_some() && many[0].is_none());
        std::fs::remove_file(proc.0.path().join("1/pagemap")).unwrap();
        let page_map = File::create(proc.0.path().join("1/pagemap")).unwrap();
        page_map.write_all_at(&SHARED.to_ne_bytes(), 0x10000 * ENTRY).unwrap();
        assert!(proc.count([(1, 0)])[0].is_none());
    }

    // Requirement: RAM-3
    #[test]
    fn pages_of_files_are_those_pieces_of_them_that_are_resident() {
        let proc = Proc::new();
        let resident = [[OWN_FILE; 300], [0; 300], [FILE; 300]].concat();
        proc.has(1, "800000-1800000 r--p 00003000 fe:00 7 /lib/a b.so", 0x800, &resident);
        // A device's memory is not in the RSS.
        proc.has(2, "800000-1800000 rw-s 00000000 00:06 9 /dev/nvidia0", 0x800, &[SHARED; 100]);
        let [file, device] = proc.count([(1, 0), (2, 0)]).map(|mappings| mappings.unwrap());
        let pieces: Vec<_> = file.files.iter().map(|piece| (piece.start / PAGE, piece.end / PAGE)).collect();
        assert_eq!(pieces, [(3, 303), (603, 903)]);
        assert_eq!(file.rollup.private_bytes, (300 + STACK) * PAGE);
        assert_eq!(file.rollup.uncounted_bytes, 300 * PAGE);
        assert_eq!((device.files.len(), device.rollup.private_bytes), (0, STACK * PAGE));
    }

    #[test]
    fn own_pages_are_counted() {
        let memory = vec![1_u8; 8 << 20];
        let root = ProcRoot::default();
        let pid = std::process::id();
        let mut spaces = [AddressSpace::open(&root, pid, 64 << 20, true).unwrap()];
        count_pages(&mut spaces, rustix::param::page_size() as u64);
        let [space] = spaces;
        let own = space.count.anonymous.own * rustix::param::page_size();
        assert!(own >= memory.len() && space.count.own_of_files + space.count.shared_of_files > 0, "{own}");
    }
}
