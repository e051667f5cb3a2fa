//! The passes of a sample over the live processes. The expensive ones read only as much as their budget of time allows.

use crate::model::ids::ProcessId;
use crate::model::observation::{Observation, PeakReading};
use crate::model::policy::BudgetPolicy;
use crate::run::sampling::{Sampling, SharingCredit, Unit};
use crate::sources::sampler::{Budget, Sampler};
use crate::store::replay_journal::JournaledRun;

/// Reads the live processes for the core.
#[derive(Debug)]
pub(crate) struct Passes {
    sampler: Sampler,
    budget: Budget,
    /// How many processes [`Self::read_other_peaks`] has passed so far. The next call continues after the last of them.
    peak_cursor: usize,
}

impl Passes {
    /// Makes passes with a full budget at `start_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn new(sampler: Sampler, policy: BudgetPolicy, start_ns: u64) -> Self {
        Self { sampler, budget: Budget::new(policy, start_ns), peak_cursor: 0 }
    }

    /// Reads CPU clock, RSS and state of all live processes, and gives them to the core. `now_ns`: CLOCK_MONOTONIC nanoseconds.
    pub(crate) fn read(&mut self, run: &mut JournaledRun, now_ns: u64) {
        let readings = self.sampler.read(&Sampling::targets(&run.tree), now_ns);
        run.apply(now_ns, Observation::Readings(readings));
    }

    /// Refills the budget, and reads peaks and sharing as far as it allows. Then tells the core that the sample is read, and makes
    /// the sampler forget dead processes.
    pub(crate) fn conclude(&mut self, run: &mut JournaledRun, now_ns: u64) {
        self.budget.refill(now_ns);
        self.read_peaks(run, now_ns);
        self.read_sharing(run, now_ns);
        self.read_stale_sharing(run, now_ns);
        run.apply(now_ns, Observation::SampleRead);
        self.sampler.retain(|id| run.tree.get(id).is_some_and(|process| process.is_alive()));
    }

    /// Reads peaks so far (VmHWM). Those of new images (begun by fork or exec since the last reading of the peak) come first. Others
    /// follow while there is budget. For new images, the budget can be overdrawn by the policy's `credit_ns`. If that is not enough
    /// for all of them, no others are read.
    fn read_peaks(&mut self, run: &mut JournaledRun, now_ns: u64) {
        let new_images = run.sampling.new_images(&run.tree);
        let mut peaks = Vec::new();
        if self.read_new_peaks(&new_images, &mut peaks) {
            self.read_other_peaks(&run.sampling, &new_images, &mut peaks);
        }
        run.apply(now_ns, Observation::Peaks(peaks));
    }

    /// Reads the peaks of `new_images`, and may overdraw the budget by `credit_ns`. Returns whether that was enough for all of them.
    fn read_new_peaks(&mut self, new_images: &[ProcessId], peaks: &mut Vec<PeakReading>) -> bool {
        let credit_ns = self.budget.policy().credit_ns;
        for id in new_images {
            if !self.budget.has_credit(credit_ns) {
                return false;
            }
            peaks.extend(self.budget.spend(|| self.sampler.peak(*id)));
        }
        true
    }

    /// Reads the peaks that are due of processes other than `new_images`, until the budget is used up. Starts after the process at
    /// which the previous sample stopped, so that each process has its turn.
    fn read_other_peaks(
        &mut self,
        sampling: &Sampling,
        new_images: &[ProcessId],
        peaks: &mut Vec<PeakReading>,
    ) {
        // A part of the budget is reserved for footprints. Of the rest, three quarters are for private and proportional sizes. While
        // this pass has used less than its quarter, peaks are due more often (`is_rich`).
        let rich_credit_ns = self.budget.credit_of_quarter(self.budget.policy().reserved_ns);
        let alive = &sampling.alive;
        let start = if alive.is_empty() { 0 } else { self.peak_cursor % alive.len() };
        for id in alive.iter().cycle().skip(start).take(alive.len()) {
            if !self.budget.is_left() {
                break;
            }
            self.peak_cursor = self.peak_cursor.wrapping_add(1);
            let is_rich = rich_credit_ns.is_some_and(|credit_ns| self.budget.has_credit(credit_ns));
            if new_images.binary_search(id).is_err() && sampling.is_peak_due(*id, is_rich) {
                peaks.extend(self.budget.spend(|| self.sampler.peak(*id)));
            }
        }
    }

    /// Reads how processes share memory, as far as the sample's footprint (the distinct resident pages of all) needs it, the most
    /// uncertain first. A unit has a credit, by which the budget can be overdrawn, if the sample would otherwise set an uncertain
    /// peak.
    fn read_sharing(&mut self, run: &mut JournaledRun, now_ns: u64) {
        let mark = run.ram.high_water_mark();
        while let Some(unit) = run.sampling.next_unit(&run.tree, mark) {
            if !self.read_unit(run, &unit, now_ns) {
                break;
            }
        }
    }

    /// Reads private and proportional sizes that are not known any more, while more of the budget is left than is reserved for
    /// footprints.
    fn read_stale_sharing(&mut self, run: &mut JournaledRun, now_ns: u64) {
        for unit in run.sampling.stale(&run.tree) {
            if !self.read_unit(run, &unit, now_ns) {
                break;
            }
        }
    }

    /// Reads how the members of a unit, processes whose proportional sizes depend on each other, share memory. Returns whether the
    /// budget, with the unit's credit, allowed that.
    fn read_unit(&mut self, run: &mut JournaledRun, unit: &Unit, now_ns: u64) -> bool {
        let policy = self.budget.policy();
        let credit_ns = match unit.credit {
            // A negative credit leaves this much of the budget for footprints.
            SharingCredit::Spare => -policy.reserved_ns,
            SharingCredit::None => 0,
            SharingCredit::GrowingPeak => policy.growing_credit_ns,
            SharingCredit::NewPeak => policy.credit_ns,
        };
        if !self.budget.has_credit(credit_ns) {
            return false;
        }
        let sharing = self.sampler.read_sharing(&unit.members, &unit.order, &mut self.budget, credit_ns);
        run.apply(now_ns, Observation::Sharing(sharing));
        true
    }
}
