//! Reads what each live process uses now: CPU clock, memory, threads, in one pass over held files.
//!
//! | figure | source | cost |
//! |---|---|---|
//! | CPU time | the process's CPU clock (`clock_gettime`, ns; `stat`'s ticks are too coarse) | 0.3 us |
//! | RSS | `statm` by `pread` on a held fd | 0.5 us |
//! | threads, state, faults | `stat` by `pread` on a held fd | 1.5 us |
//! | sharing | `smaps_rollup` | 20 us to many ms |
//! | files | `smaps` | up to four times as long |
//! | both, of large processes | `maps` and `pagemap` | 4 us a MiB |
//! | peak so far | `status` | 10 us |
//!
//! A held file survives exec and gives ESRCH after reaping, so two processes of one pid are never mixed.

mod budget;
mod handle;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::io::ErrorKind;

use rustc_hash::FxHashMap;

use super::program;
use crate::model::ids::ProcessId;
use crate::model::observation::{
    PeakReading, Reading, ReadingState, SampleTarget, SharingReading, SharingReadings, SharingSource,
    SharingTarget, Size,
};
use crate::sys::clock;
use crate::sys::proc_fs::{AddressSpace, ProcRoot, count_pages};
pub use budget::Budget;
use handle::{Handle, OpenError};

/// Bytes in a MiB.
const MIB: u64 = 1 << 20;
/// CPU time that a MiB of pages of 4 KiB costs by pagemap, nanoseconds. Huge pages cost a quarter of that.
const PAGES_NS_PER_MIB: u64 = 4000;
/// CPU time that a MiB of addresses without pages costs, nanoseconds: pagemap has entries of those, too.
const ABSENT_NS_PER_MIB: u64 = 400;

/// Reads the live processes.
#[derive(Debug)]
pub struct Sampler {
    root: ProcRoot,
    /// Size of a page.
    page_bytes: u64,
    /// Length of a clock tick, microseconds.
    tick_us: u64,
    handles: FxHashMap<ProcessId, Handle>,
}

impl Sampler {
    /// Makes a sampler over a /proc. `page_bytes` and `tick_us` are as in the fields.
    pub fn new(root: ProcRoot, page_bytes: u64, tick_us: u64) -> Self {
        Self { root, page_bytes, tick_us, handles: FxHashMap::default() }
    }

    /// Reads clock, stat and statm of these processes, at `now_ns` (CLOCK_MONOTONIC). Also reads the arguments of live ones that
    /// ask for it. Processes whose files may not be read are left out.
    pub fn read(&mut self, targets: &[SampleTarget], now_ns: u64) -> Vec<Reading> {
        let mut readings = Vec::with_capacity(targets.len());
        for SampleTarget { target, wants_args, is_alone } in targets {
            let state = match self.handles.entry(target.id) {
                Entry::Occupied(mut entry) => entry.get_mut().read(&self.root, *is_alone, now_ns),
                Entry::Vacant(entry) => match Handle::open(&self.root, target, self.page_bytes, self.tick_us)
                {
                    Ok(handle) => entry.insert(handle).read(&self.root, *is_alone, now_ns),
                    Err(OpenError::Gone) => ReadingState::Gone(clock::monotonic_ns()),
                    Err(OpenError::Hidden) => continue,
                },
            };
            let is_alive = matches!(state, ReadingState::Alive(..) | ReadingState::Rested);
            let args = (*wants_args && is_alive).then(|| program::args(&self.root, target.pid)).flatten();
            readings.push(Reading { id: target.id, args, state });
        }
        readings
    }

    /// Forgets all processes for which `is_alive` is false.
    pub fn retain(&mut self, is_alive: impl Fn(ProcessId) -> bool) {
        self.handles.retain(|id, _| is_alive(*id));
    }

    /// Reads a process's peak so far. `None`: no sample has read the process.
    pub fn peak(&self, id: ProcessId) -> Option<PeakReading> {
        Some(self.handles.get(&id)?.peak(&self.root))
    }

    /// Reads how a process's memory is shared. `None`: no sample has read the process.
    fn sharing(&self, target: &SharingTarget) -> Option<SharingReading> {
        let with_mappings = target.source == SharingSource::Smaps;
        Some(self.handles.get(&target.id)?.sharing(&self.root, with_mappings))
    }

    /// Reads the size of a process's memory. `None`: no sample has read the process, or it has no memory any more.
    fn size(&self, id: ProcessId) -> Option<Size> {
        self.handles.get(&id)?.size(&self.root)
    }

    /// Reads how the memory of processes is shared, in this `order`, until the budget with this credit (nanoseconds) is spent.
    /// `members` are all processes whose proportional sizes depend on each other. If there are several, reads their sizes, too.
    pub fn read_sharing(
        &self,
        members: &[ProcessId],
        order: &[SharingTarget],
        budget: &mut Budget,
        credit_ns: i64,
    ) -> SharingReadings {
        // The sum is `Some` only if the pages of all targets are to be counted one by one, by pagemap.
        let bytes_by_pages = order.iter().map(|target| match target.source {
            SharingSource::Pages { bytes, .. } => Some(bytes),
            SharingSource::Rollup | SharingSource::Smaps => None,
        });
        if let Some(bytes) = bytes_by_pages.sum::<Option<u64>>().filter(|_| !order.is_empty()) {
            return self.read_by_pages(members, order, bytes, budget);
        }
        let mut read = Vec::new();
        for target in order {
            // Without the others the reading is void: sizes of some members don't add up. A sample that has credit reads again.
            if !budget.has_credit(credit_ns) {
                break;
            }
            read.extend(budget.spend(|| self.sharing(target)).map(|sharing| (target.id, sharing)));
        }
        let sizes_after = self.sizes_after(members);
        SharingReadings { members: members.to_vec(), read, sizes_after, with_files: false }
    }

    /// Reads the sizes of the members, if there are several. They were read one after another, and a size that differs now shows that
    /// a member has exec'd or ended meanwhile.
    fn sizes_after(&self, members: &[ProcessId]) -> Vec<(ProcessId, Option<Size>)> {
        let several = if members.len() < 2 { &[] } else { members };
        several.iter().map(|id| (*id, self.size(*id))).collect()
    }

    /// Reads by pagemap how fork relatives (copies of one process) share memory. They have `bytes` of pages to look at. Processes
    /// that can't be counted, or that no sample has read, are missing. If all would cost too much, reads nothing: earlier readings
    /// stay.
    fn read_by_pages(
        &self,
        members: &[ProcessId],
        order: &[SharingTarget],
        bytes: u64,
        budget: &mut Budget,
    ) -> SharingReadings {
        let nothing =
            SharingReadings { members: members.to_vec(), with_files: true, ..SharingReadings::default() };
        let cost_ns = bytes / MIB * PAGES_NS_PER_MIB;
        if !budget.permits(cost_ns) {
            return nothing;
        }
        let (mut read, mut opened, mut spaces) = (Vec::new(), Vec::new(), Vec::new());
        budget.spend(|| {
            for SharingTarget { id, source } in order {
                let with_anonymous = !matches!(source, SharingSource::Pages { with_anonymous: false, .. });
                let Some(handle) = self.handles.get(id) else { continue };
                match handle.pages(&self.root, with_anonymous) {
                    Ok(space) => {
                        opened.push((*id, handle));
                        spaces.push(space);
                    }
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                        read.push((*id, SharingReading::Denied));
                    }
                    Err(_) => {}
                }
            }
        });
        let length_bytes = spaces.iter().map(AddressSpace::length_bytes).fold(0, u64::saturating_add);
        if !budget.permits(cost_ns + length_bytes / MIB * ABSENT_NS_PER_MIB) {
            return nothing;
        }
        budget.spend(|| count_pages(&mut spaces, self.page_bytes));
        for ((id, handle), space) in opened.into_iter().zip(spaces) {
            let size = handle.size(&self.root);
            let mappings = size.and_then(|size| space.finish(size, self.page_bytes));
            read.extend(mappings.map(|mappings| {
                let rollup = mappings.rollup;
                (id, SharingReading::Read { rollup, mappings: Some(mappings), size })
            }));
        }
        SharingReadings { read, sizes_after: self.sizes_after(members), ..nothing }
    }
}
