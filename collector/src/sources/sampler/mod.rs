//! What each live process uses now: CPU clock, memory, threads, read in one pass over held files.
//!
//! | figure | source | cost |
//! |---|---|---|
//! | CPU time | the process's CPU clock (`clock_gettime`, ns; `stat`'s ticks are too coarse) | 0.3 us |
//! | RSS | `statm` by `pread` on a held fd | 0.5 us |
//! | threads, state, faults | `stat` by `pread` on a held fd | 1.5 us |
//! | sharing | `smaps_rollup`, see [`memory`] | 20 us to many ms |
//! | peak so far | `status`, at a process's first sample, then on the same budget | 10 us |
//!
//! Who has used no CPU time since the last sample, and has its memory alone, is not read again for a second.
//!
//! A held file survives exec and gives ESRCH after reaping, so two processes of one pid are never mixed.

pub mod handle;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::run::memory::{self, Estimate, Sums};
use handle::{Handle, Seen};

use crate::run::tree::process::{Observed, Process};
use crate::run::tree::{Image, Life, ProcessId, Tree};
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// What is known of the tree at one time, and what happened since the time before.
#[derive(Debug, Default)]
pub struct Sample {
    /// CLOCK_MONOTONIC of the sample before (or the start), nanoseconds.
    pub from_ns: u64,
    /// CLOCK_MONOTONIC of this sample, nanoseconds.
    pub at_ns: u64,
    /// Memory now.
    pub now: Sums,
    /// Memory of those that lived at both times, each with the smaller of its two shares.
    pub steady: Sums,
    /// Mean of the two for those, for time-weighted means.
    pub steady_mean: Sums,
    /// Whether the figures of `now` are certain enough to be a maximum; else only their certain part is.
    pub verified: bool,
    /// Who was there in part only.
    pub lives: Vec<Life>,
    /// CPU time of the first process since the sample before, nanoseconds (the living only).
    pub main_cpu_ns: u64,
    /// CPU time of the others since the sample before, nanoseconds (the living only).
    pub descendants_cpu_ns: u64,
    /// Who holds the memory now.
    pub holders: Vec<Held>,
    /// When the last one that was found dead was; 0: none was.
    pub dead_ns: u64,
    /// What the largest of those had when it was last read, bytes.
    pub dead_bytes: u64,
}

/// What a reading tells of the programs that processes run.
#[derive(Debug, Default)]
pub struct Programs {
    /// Who was read for the first time, and the bottom of its stack then (0: not known).
    pub first: Vec<(ProcessId, u64)>,
    /// Who runs another one than at its reading before, and when that was, CLOCK_MONOTONIC nanoseconds.
    pub changed: Vec<(ProcessId, u64)>,
}

/// A process's share of the tree's RAM.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Whose.
    pub id: ProcessId,
    /// Now, bytes.
    pub now: u64,
    /// What it had all the time since the sample before, bytes.
    pub steady: u64,
}

impl Sample {
    /// Take in who ended, once all that was written up to the sample is known: who was dead by then is not in it.
    pub fn complete(&mut self, tree: &mut Tree) {
        self.lives.extend(tree.take_lives(self.at_ns));
    }
}

/// Reads the live processes.
#[derive(Debug)]
pub struct Sampler {
    root: ProcRoot,
    handles: HashMap<ProcessId, Handle>,
    budget: Budget,
    last_ns: u64,
    /// Where the next round of peak reads begins.
    cursor: usize,
}

/// CPU time for expensive reads: a share of the time that passes, saved up for a moment, with some credit.
#[derive(Debug)]
struct Budget {
    nanoseconds: i64,
    refilled_ns: u64,
}

/// Expensive reads take at most this part of one core.
const BUDGET_PERCENT: u64 = 1;
/// What can be saved up.
const BUDGET_SAVED_NS: i64 = 20_000_000;
/// What can be owed, for a sample that would set a new peak.
const BUDGET_CREDIT_NS: i64 = 250_000_000;
/// What of that can be owed for memory that still grows: the next sample would ask for it again, and what it is at its
/// largest must be paid for too (100 ms for five processes with 500 MB on a busy machine).
const GROWING_CREDIT_NS: i64 = BUDGET_CREDIT_NS / 5;

impl Budget {
    fn refill(&mut self, now_ns: u64) {
        let earned = now_ns.saturating_sub(self.refilled_ns) * BUDGET_PERCENT / 100;
        self.refilled_ns = now_ns;
        self.nanoseconds = (self.nanoseconds.saturating_add_unsigned(earned)).min(BUDGET_SAVED_NS);
    }

    fn spend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = clock::thread_cpu_ns();
        let result = work();
        self.nanoseconds =
            self.nanoseconds.saturating_sub_unsigned(clock::thread_cpu_ns().saturating_sub(start));
        result
    }

    fn is_left(&self) -> bool {
        self.nanoseconds > 0
    }

    /// Whether so much more may be owed.
    fn has_credit(&self, credit_ns: i64) -> bool {
        self.nanoseconds > -credit_ns
    }
}

/// Largest values so far: a sample beyond them wants certainty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record {
    /// Of the descendants, bytes.
    pub descendants: u64,
    /// Of the tree, bytes.
    pub combined: u64,
}

impl Sampler {
    /// A sampler over a /proc; `start_ns` is CLOCK_MONOTONIC at the session's start.
    #[must_use]
    pub fn new(root: ProcRoot, start_ns: u64) -> Self {
        Self {
            root,
            handles: HashMap::new(),
            budget: Budget { nanoseconds: BUDGET_SAVED_NS, refilled_ns: start_ns },
            last_ns: start_ns,
            cursor: 0,
        }
    }

    /// When the last sample was taken (or the start), CLOCK_MONOTONIC nanoseconds.
    #[must_use]
    pub fn sampled_ns(&self) -> u64 {
        self.last_ns
    }

    /// Read all live processes. `look` is told of the programs that they were found to run, before anything is concluded
    /// from what they hold. To be completed by what their ends tell. None if somebody was found dead who had `notable_end`
    /// bytes when he was last read.
    pub fn sample(
        &mut self,
        tree: &mut Tree,
        now_ns: u64,
        record: Record,
        notable_end: Option<u64>,
        look: impl FnOnce(&mut Tree, &Programs),
    ) -> Option<Sample> {
        self.budget.refill(now_ns);
        let mut sample = Sample { from_ns: self.last_ns, at_ns: now_ns, ..Sample::default() };
        let mut programs = Programs::default();
        let alive = self.read_all(tree, &mut sample, &mut programs);
        look(tree, &programs);
        if notable_end.is_some_and(|bytes| sample.dead_bytes >= bytes) {
            return None;
        }
        self.read_peaks(tree, &alive, now_ns);
        let mut estimates = memory::estimate_all(tree, &self.handles, &alive);
        if self.spend_on_sharing(tree, &mut estimates, record) {
            // What the others mapped while one after another was read.
            estimates = memory::estimate_all(tree, &self.handles, &alive);
        }
        sample.verified = memory::certain(&estimates);
        self.take_in(tree, &alive, &estimates, &mut sample);
        self.handles.retain(|id, _| tree.get(*id).is_some_and(|process| process.is_alive()));
        self.last_ns = now_ns;
        Some(sample)
    }

    /// One pass over the processes: clock, stat, statm. Returns those that live.
    fn read_all(&mut self, tree: &mut Tree, sample: &mut Sample, programs: &mut Programs) -> Vec<ProcessId> {
        let ids = tree.alive().to_vec();
        let mut alive = Vec::with_capacity(ids.len());
        let mut found_dead = |tree: &mut Tree, id, is_gone: bool| {
            sample.dead_ns = clock::monotonic_ns();
            sample.dead_bytes = sample.dead_bytes.max(tree.get(id).map_or(0, |process| process.observed.rss));
            tree.observe_end(id, sample.dead_ns, is_gone.then_some(sample.dead_ns));
        };
        for id in ids {
            let Some(process) = tree.get(id) else { continue };
            let Some(pid) = process.host_pid else { continue };
            let is_new = !self.handles.contains_key(&id);
            let handle = match self.handles.entry(id) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    match Handle::open(&self.root, pid, process, tree.frame().tick_us) {
                        Ok(handle) => entry.insert(handle),
                        Err(gone) => {
                            if gone {
                                found_dead(tree, id, true);
                            }
                            continue;
                        }
                    }
                }
            };
            let is_alone = tree.group(process.group).is_some_and(|group| group.members.len() <= 1);
            match handle.read(&self.root, tree.frame().page, is_alone, sample.at_ns) {
                Seen::Alive { execd_since_ns } => {
                    alive.push(id);
                    if is_new {
                        programs.first.push((id, handle.start_stack));
                    }
                    programs.changed.extend(execd_since_ns.map(|since_ns| (id, since_ns)));
                }
                Seen::Dead(remains) => {
                    tree.note_remains(id, &remains);
                    found_dead(tree, id, false);
                }
                Seen::Ending => {
                    note_clock(tree, id, handle);
                    found_dead(tree, id, false);
                }
                Seen::Gone => found_dead(tree, id, true),
            }
        }
        alive
    }

    /// Peaks so far: of each process at its first sample, of the others in turn while there is budget.
    fn read_peaks(&mut self, tree: &Tree, alive: &[ProcessId], now_ns: u64) {
        let interval_passed = |handle: &Handle| now_ns.saturating_sub(handle.peak_at_ns) >= 1_000_000_000;
        let mut wanted: Vec<ProcessId> = Vec::new();
        for id in alive {
            let image = tree.get(*id).map(Process::program_start_ns);
            if let Some(handle) = self.handles.get_mut(id)
                && image.is_some_and(|image| image >= handle.peak_at_ns)
            {
                handle.forget_image();
                wanted.push(*id);
            }
        }
        let first_reads = wanted.len();
        let start = if alive.is_empty() { 0 } else { self.cursor % alive.len() };
        wanted.extend(alive.iter().cycle().skip(start).take(alive.len()));
        for (number, id) in wanted.into_iter().enumerate() {
            let first = number < first_reads;
            if !(self.budget.is_left() || (first && self.budget.has_credit(BUDGET_CREDIT_NS))) {
                break;
            }
            self.cursor = self.cursor.wrapping_add(usize::from(!first));
            let Some(handle) = self.handles.get_mut(&id) else { continue };
            if first || (interval_passed(handle) && handle.faulted_since_peak()) {
                self.budget.spend(|| handle.read_peak(&self.root, now_ns));
            }
        }
    }

    /// Read how memory is shared, most uncertain first: within the budget, and on credit where the sample would
    /// otherwise set a new peak that it can't vouch for. Whether anything was read.
    fn spend_on_sharing(
        &mut self,
        tree: &Tree,
        estimates: &mut HashMap<ProcessId, Estimate>,
        record: Record,
    ) -> bool {
        let page = tree.frame().page;
        let mut shared_of_all = memory::shared_of_all(&self.handles, estimates.keys());
        let mut units = memory::units_by_uncertainty(tree, estimates);
        let mut is_any_read = false;
        while let Some(unit) = units.pop() {
            let sums = memory::total(tree, estimates);
            let new_peak = sums.combined() > record.combined || sums.descendants > record.descendants;
            let worth = unit.uncertain > memory::negligible(sums.combined()) / 4;
            let credit_ns =
                if self.is_growing(tree, &unit.members) { GROWING_CREDIT_NS } else { BUDGET_CREDIT_NS };
            let credit_ns = if new_peak && !memory::certain(estimates) { credit_ns } else { 0 };
            if !(worth && self.budget.has_credit(credit_ns)) {
                break;
            }
            for id in memory::reading_order(tree, &self.handles, estimates, &unit.members) {
                // What is left of a large group is read with the next samples.
                if !self.budget.has_credit(credit_ns) {
                    break;
                }
                let epoch = memory::epoch(tree, id);
                if let Some(handle) = self.handles.get_mut(&id) {
                    let others_shared = shared_of_all.saturating_sub(handle.shared);
                    self.budget.spend(|| handle.read_rollup(&self.root, epoch, page, others_shared));
                    shared_of_all = others_shared + handle.shared;
                    is_any_read = true;
                }
            }
            let before = memory::shared_of_all(&self.handles, &unit.members);
            self.discard_if_moved(&unit.members, page);
            let now = memory::shared_of_all(&self.handles, &unit.members);
            shared_of_all = shared_of_all.saturating_sub(before) + now;
            let read = memory::groups_read(tree, &self.handles, &unit.members);
            for id in &unit.members {
                if estimates.contains_key(id)
                    && let Some(handle) = self.handles.get(id)
                    && let Some(estimate) = memory::estimate(tree, &read, *id, handle, shared_of_all)
                {
                    estimates.insert(*id, estimate);
                }
            }
        }
        is_any_read
    }

    /// Whether the memory of any of them is more than 0.1% larger than at the last sample.
    fn is_growing(&self, tree: &Tree, members: &[ProcessId]) -> bool {
        members.iter().any(|id| {
            let before = tree.get(*id).map_or(0, |process| process.observed.rss);
            self.handles.get(id).is_some_and(|handle| handle.rss > before.saturating_add(before / 1000))
        })
    }

    /// While the members of a group were read one after another, one may have exec'd or ended: then their proportional
    /// sizes are of different times and don't add up.
    fn discard_if_moved(&mut self, members: &[ProcessId], page: u64) {
        if members.len() < 2 {
            return;
        }
        let moved = members
            .iter()
            .any(|id| self.handles.get_mut(id).is_none_or(|handle| handle.has_moved(&self.root, page)));
        if moved {
            for id in members {
                if let Some(handle) = self.handles.get_mut(id) {
                    handle.sharing = None;
                }
            }
        }
    }

    /// Turn what was read into sums, and store it with the processes.
    fn take_in(
        &mut self,
        tree: &mut Tree,
        alive: &[ProcessId],
        estimates: &HashMap<ProcessId, Estimate>,
        sample: &mut Sample,
    ) {
        let (from_ns, now_ns) = (sample.from_ns, sample.at_ns);
        let largest_shared = memory::largest_shared(&self.handles, alive);
        for id in alive {
            let (Some(handle), Some(estimate)) = (self.handles.get(id), estimates.get(id)) else { continue };
            note_clock(tree, *id, handle);
            let Some(process) = tree.get_mut(*id) else { continue };
            let before = process.observed;
            // The high-water mark of what may be a copy of the parent is the parent's.
            let hwm = handle.hwm.filter(|_| process.image != Image::Unknown).unwrap_or(0);
            // Nor is it one of the program that the kernel says was replaced since.
            let is_new_program = process.program_start_ns() >= before.at_ns;
            let peak_before = if is_new_program { 0 } else { before.peak };
            let peak = peak_before.max(handle.rss).max(hwm);
            // A peak that no sample saw lies between the last two.
            let is_spike = peak > peak_before.max(handle.rss);
            let spike = if is_spike { process.image.own_part(peak, handle.rss) } else { 0 };
            // What may be another's too counts in the sums only, where those are vouched for.
            let certain = estimate.share - estimate.uncertain.min(estimate.share);
            let share_at_peak = certain + spike;
            let now = Sums::of(process.is_main, estimate, handle);
            sample.now.add(&now);
            let mut held = Held { id: *id, now: estimate.share, steady: 0 };
            if before.at_ns == from_ns && before.at_ns != 0 {
                held.steady = estimate.share.min(before.share);
                sample.steady.add(&now.smaller_share(before.share, before.threads));
                let is_new_image = process.image_start_ns >= from_ns;
                if !is_new_image {
                    sample.steady_mean.add(&now.mean_share(before.share));
                }
                if is_new_image || spike > 0 {
                    let [_, memory] = process
                        .lives_until(now_ns, share_at_peak.saturating_sub(before.share.min(estimate.share)));
                    sample.lives.push(memory);
                }
            } else {
                sample.lives.extend(process.lives_until(now_ns, share_at_peak));
            }
            sample.holders.push(held);
            process.observed = Observed {
                at_ns: now_ns,
                rss: handle.rss,
                peak,
                share: certain,
                private: estimate.private,
                common_growth: memory::common_growth(handle, largest_shared, *id),
                threads: handle.threads,
                minor_faults: handle.minor_faults,
                major_faults: handle.major_faults,
                user_ticks: handle.user_ticks,
                system_ticks: handle.system_ticks,
                cpu_ns: handle.cpu_ns.or(before.cpu_ns),
                blocks: None,
            };
            let counted = handle.cpu_ns.unwrap_or(0);
            let spent = counted.saturating_sub(process.counted_cpu_ns);
            process.counted_cpu_ns = process.counted_cpu_ns.max(counted);
            process.counted_at_ns = now_ns;
            if process.is_main {
                sample.main_cpu_ns += spent;
            } else {
                sample.descendants_cpu_ns += spent;
            }
            if process.args.is_none()
                && let Some(pid) = process.host_pid
            {
                process.args = self.root.args(pid, 4096);
            }
        }
    }
}

/// The last reading of a process's CPU clock is the last word on it if nobody says more.
fn note_clock(tree: &mut Tree, id: ProcessId, handle: &Handle) {
    if let Some(process) = tree.get_mut(id)
        && let Some(cpu_ns) = handle.cpu_ns
    {
        process.observed.cpu_ns = Some(cpu_ns);
        process.observed.user_ticks = handle.user_ticks;
        process.observed.system_ticks = handle.system_ticks;
    }
}
