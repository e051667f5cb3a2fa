//! The last reading of a live process's /proc files.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::files::FileTable;
use crate::model::observation::{FileMapping, ProcessLimits, Rollup, Size, Vitals};
use crate::run::tree::ProcessId;
use crate::run::tree::tolerance::Tolerance;

/// How a process's memory was shared when that was last read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sharing {
    /// smaps_rollup at that time.
    pub rollup: Rollup,
    /// Anonymous pages that no other process had mapped, bytes, by smaps if that was read.
    pub mapped_private_anon_bytes: Option<u64>,
    /// statm right after it; if the process's memory changed meanwhile, what smaps_rollup itself has.
    pub size: Size,
    /// The shared memory of all other processes of the tree at that time, bytes. If it has grown since, more processes may share
    /// this one's pages.
    pub others_shared_bytes: u64,
    /// Minor faults at that time.
    pub minor_faults: u64,
    /// The epoch of its image group (the processes that may share pages by fork) at that time: how often that had changed.
    pub epoch: u64,
    /// The time of the sample that read it, CLOCK_MONOTONIC nanoseconds. All readings of a sample count as of one time.
    pub at_ns: u64,
    /// How much of its fork relatives' pages it had stopped sharing by that time, bytes. When a relative was last read, it may still
    /// have shared them.
    pub unshared_before_bytes: u64,
}

/// How much memory a process has touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Minor faults.
    pub minor_faults: u64,
    /// Resident anonymous pages, bytes.
    pub anonymous_bytes: u64,
}

impl Touched {
    /// How much of what it had `before` it may have copied by writing since then, bytes.
    pub(super) fn copied_since(&self, before: &Self, page_bytes: u64) -> u64 {
        let faults = self.minor_faults.saturating_sub(before.minor_faults);
        let grown = self.anonymous_bytes.saturating_sub(before.anonymous_bytes);
        // A fault is a new page, by which it grows, or a copy of one that it had.
        faults.saturating_mul(page_bytes).saturating_sub(grown).min(before.anonymous_bytes)
    }
}

/// The last reading of a live process's /proc files.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastReading {
    /// When it was last read in full, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// stat and clock.
    pub vitals: Vitals,
    /// statm.
    pub size: Size,
    /// VmHWM when it was last read, bytes.
    pub vm_hwm_bytes: Option<u64>,
    /// When VmHWM was last read, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub peak_at_ns: u64,
    /// Minor faults when VmHWM was last read.
    pub faults_at_peak: u64,
    /// Memory in huge pages of hugetlbfs, which is not in the RSS, bytes.
    pub hugetlb_bytes: u64,
    /// Swapped-out memory when that was last read, bytes.
    pub swap_bytes: u64,
    /// Its resource limits when they were last read.
    pub limits: ProcessLimits,
    /// smaps_rollup, if it was read since the image began.
    pub sharing: Option<Sharing>,
    /// Its mapped files, if they were read since the image began.
    pub files: Option<Arc<FileTable>>,
    /// What it had touched at the reading before the last.
    pub touched_before: Touched,
    /// What it had touched before it got fork relatives, if their sharing was not read since.
    pub touched_before_relatives: Option<Touched>,
    /// Since when it has relatives whose sharing was not read, CLOCK_MONOTONIC nanoseconds. `None`: it has none.
    pub unread_since_ns: Option<u64>,
    /// What it had touched when its last fork child came.
    pub touched_at_fork: Option<Touched>,
    /// Its fork is noted in its parent's `touched_at_fork`, which a later fork replaces.
    pub is_fork_noted: bool,
    /// How much the processes of its image group had copied between their forks until this process was forked, bytes. A fork child
    /// lacks the copies that were made after its own fork.
    pub copied_at_fork_bytes: u64,
    /// smaps_rollup can't be read (another user's process).
    pub is_sharing_denied: bool,
}

impl Size {
    /// Whether two sizes differ by more than the tolerance for two readings of the same pages.
    pub(super) fn differs_from(self, other: Self) -> bool {
        self.rss_bytes.abs_diff(other.rss_bytes) > Tolerance::rss(other.rss_bytes)
            || self.shared_bytes.abs_diff(other.shared_bytes) > Tolerance::rss(other.shared_bytes)
    }
}

impl Sharing {
    /// A lower bound of the anonymous pages that no other process had mapped, bytes. It is exact if smaps was read. Without
    /// smaps, all file pages can be among smaps_rollup's private pages.
    pub(super) fn private_anon_bytes(&self) -> u64 {
        let at_least = self.rollup.private_bytes.saturating_sub(self.size.shared_bytes);
        self.mapped_private_anon_bytes.unwrap_or(at_least.min(self.rollup.pss_anon_bytes))
    }

    /// An upper bound of the anonymous pages that no other process had mapped, bytes. It is exact if smaps was read.
    /// Without smaps, none of smaps_rollup's private pages need be a file's.
    pub(super) fn most_private_anon_bytes(&self) -> u64 {
        self.mapped_private_anon_bytes.unwrap_or(self.rollup.private_bytes.min(self.rollup.pss_anon_bytes))
    }

    /// The process's anonymous pages less its proportional part of them, bytes: what counts for others. When the process copies or
    /// unmaps a shared page, this falls by at least half of the page, as at least two processes had it.
    fn anon_of_others_bytes(&self) -> u64 {
        (self.size.rss_bytes - self.size.shared_bytes).saturating_sub(self.rollup.pss_anon_bytes)
    }

    /// Notes how much this process stopped sharing since its relatives (fork parent and children) were read. At that time, the
    /// kernel counted pages as shared that are this process's own by now. `before` is the reading before this one, if no relative
    /// came or went since. Without one, `copied_bytes` bounds what the process copied. The first relative was read at
    /// `oldest_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn note_unshared(&mut self, before: Option<&Self>, copied_bytes: u64, oldest_ns: u64) {
        self.unshared_before_bytes = match before {
            Some(before) => {
                let unshared = before.anon_of_others_bytes().saturating_sub(self.anon_of_others_bytes());
                // If the reading before is later than the first relative's, that relative's shows what was noted then, too.
                unshared + before.unshared_since(oldest_ns)
            }
            None => copied_bytes,
        };
    }

    /// How much a relative's reading at this time, CLOCK_MONOTONIC nanoseconds, may still show as shared with this
    /// process, bytes. The process has stopped sharing that.
    pub(super) fn unshared_since(&self, relative_read_ns: u64) -> u64 {
        if self.at_ns > relative_read_ns { self.unshared_before_bytes } else { 0 }
    }
}

impl LastReading {
    /// Takes in vitals; what could not be read stays as it was. Returns whether the process has exec'd since the vitals before,
    /// which moves the stack.
    pub(super) fn set_vitals(&mut self, vitals: Vitals) -> bool {
        let last = std::mem::replace(&mut self.vitals, vitals);
        self.vitals.cpu_ns = vitals.cpu_ns.or(last.cpu_ns);
        // 0 is a stack that could not be read.
        if vitals.start_stack == 0 {
            self.vitals.start_stack = last.start_stack;
        }
        last.start_stack != 0 && self.vitals.start_stack != last.start_stack
    }

    /// Takes in statm (`None`: it could not be read) right after smaps_rollup. Returns the size of the pages that
    /// smaps_rollup counts. If statm has changed since the sample's first pass read it, that is smaps_rollup's own size, which can lack
    /// what was mapped meanwhile.
    pub(super) fn set_size_after(&mut self, rollup: &Rollup, size: Option<Size>) -> Size {
        let before = self.size;
        self.size = size.unwrap_or(before);
        if self.size.differs_from(before) { rollup.size() } else { self.size }
    }

    /// Keeps a new reading of how its memory is shared. Completes it with what the process stopped sharing since its
    /// relatives were read, the first at `oldest_ns`. Returns whether the reading is valid; else none is kept.
    pub(super) fn set_sharing(&mut self, mut sharing: Sharing, page_bytes: u64, oldest_ns: u64) -> bool {
        // A reading before counts only if no relative came or went since.
        let last = self.sharing.filter(|last| last.epoch == sharing.epoch);
        sharing.note_unshared(last.as_ref(), self.copied_since(page_bytes), oldest_ns);
        let is_valid = self.is_of_one_program(&sharing.rollup);
        self.sharing = is_valid.then_some(sharing);
        is_valid
    }

    /// Keeps which files it had mapped at `at_ns`, CLOCK_MONOTONIC nanoseconds, by smaps. `shared_bytes`: its shared
    /// memory then. Returns the table of them.
    pub(super) fn set_files(
        &mut self,
        files: Vec<FileMapping>,
        shared_bytes: u64,
        at_ns: u64,
    ) -> &Arc<FileTable> {
        let bytes = shared_bytes + self.hugetlb_bytes;
        let table = Arc::new(FileTable::new(files, bytes, at_ns, self.files.as_deref()));
        self.files.insert(table)
    }

    /// Whether smaps_rollup and statm are of one program, since the process may have exec'd between the two readings. If one size is
    /// less than half of the other, they are taken for sizes of two programs.
    pub(super) fn is_of_one_program(&self, rollup: &Rollup) -> bool {
        let (rss, of_rollup) = (self.size.rss_bytes, rollup.rss_bytes);
        rss.abs_diff(of_rollup) <= rss.max(of_rollup) / 2 + Tolerance::rss(rss)
    }

    /// How much it may have copied by writing, and how much it unmapped, since it got relatives that were not read, bytes.
    /// Those relatives may still have the old pages. 0: it has no such relatives.
    pub(super) fn copied_since(&self, page_bytes: u64) -> u64 {
        let Some(before) = self.touched_before_relatives else { return 0 };
        let unmapped = before.anonymous_bytes.saturating_sub(self.anonymous_bytes());
        self.touched().copied_since(&before, page_bytes) + unmapped
    }

    /// What it had touched when it was last read.
    pub(super) fn touched(&self) -> Touched {
        Touched { minor_faults: self.vitals.counts.minor_faults, anonymous_bytes: self.anonymous_bytes() }
    }

    /// Its resident anonymous pages, bytes.
    pub(super) fn anonymous_bytes(&self) -> u64 {
        self.size.rss_bytes - self.size.shared_bytes
    }

    /// How much memory a walk of smaps looks at, bytes.
    pub(super) fn walked_bytes(&self) -> u64 {
        self.size.rss_bytes.saturating_add(self.swap_bytes)
    }

    /// Its resident pages of files, shared memory and hugetlbfs, bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.size.shared_bytes + self.hugetlb_bytes
    }
}

/// Finds the two largest amounts of shared memory of these processes. From both follows, for any process, the largest amount of
/// another one.
pub(super) fn largest_shared(
    readings: &FxHashMap<ProcessId, LastReading>,
    members: &[ProcessId],
) -> LargestShared {
    let mut largest = LargestShared::default();
    for id in members {
        let shared = readings.get(id).map_or(0, |reading| reading.size.shared_bytes);
        if shared > largest.first_bytes {
            largest = LargestShared { id: Some(*id), first_bytes: shared, second_bytes: largest.first_bytes };
        } else {
            largest.second_bytes = largest.second_bytes.max(shared);
        }
    }
    largest
}

/// The two largest amounts of shared memory of several processes: see [`largest_shared`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LargestShared {
    /// The process with the largest amount. `None`: none has any.
    id: Option<ProcessId>,
    /// The largest, bytes.
    first_bytes: u64,
    /// The second largest, bytes.
    second_bytes: u64,
}

/// How much of a process's growth after this reading may be pages that another process has, too, bytes: the largest shared memory
/// of another process. It is 0 if the process does not have much shared memory, or if that is not most of its memory.
pub(super) fn common_growth(reading: &LastReading, largest: LargestShared, id: ProcessId) -> u64 {
    /// From this many bytes on, shared memory is much: programs and libraries have fewer file pages.
    const MUCH_BYTES: u64 = 16 << 20;
    let Size { rss_bytes, shared_bytes } = reading.size;
    let is_mostly_shared = shared_bytes > rss_bytes / 4 * 3;
    if shared_bytes < MUCH_BYTES || !is_mostly_shared {
        return 0;
    }
    if largest.id == Some(id) { largest.second_bytes } else { largest.first_bytes }
}
