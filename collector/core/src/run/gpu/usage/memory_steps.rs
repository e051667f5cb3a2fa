//! Steps of the run's memory on a device. A step is the memory of one process that rose or fell by much: between two of the driver's
//! lists of processes, or little by little over many of them. If the memory of all together rose by very much from one list to the
//! next, it is a jump.
//!
//! All amounts of a step must be known, and none too old when the next is read. A process that began during the run held nothing before
//! it was first listed. A process that is no longer listed holds nothing. If a list has a process without its memory, that is unknown,
//! and so is all memory on a lost device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::steps::policy::StepPolicy;
use crate::run::steps::{MemoryStep, StepsTold};

/// A list of the run's processes on a device.
#[derive(Clone, Copy)]
pub(super) struct MemoryList<'a> {
    /// When it was read, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// An amount that was read before this time is too old for a step, CLOCK_MONOTONIC nanoseconds.
    pub oldest_ns: u64,
    /// The device's memory, bytes, if it is known.
    pub memory_bytes: Option<u64>,
    /// Memory of each listed process that has figures of its own, by id, bytes; `None`: the list does not tell it.
    pub by_process: &'a BTreeMap<u64, Option<u64>>,
    /// Memory of all processes of the run, bytes; `None`: for one of them it is not known.
    pub of_run: Option<u64>,
    /// When each process that began during the run started, by id, CLOCK_MONOTONIC nanoseconds.
    pub starts: &'a BTreeMap<u64, u64>,
}

/// Finds the steps on a device: what the processes of earlier lists held, and the steps that were found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct MemorySteps {
    /// When the last list was read, CLOCK_MONOTONIC nanoseconds; 0: there was none.
    listed_ns: u64,
    /// The memory of each process that was listed, by id.
    held: BTreeMap<u64, HeldMemory>,
    /// The memory of all processes together.
    run: HeldMemory,
    /// The steps that were not taken yet. They are taken when a reading has been applied, so they are never saved.
    #[serde(skip)]
    pub found: Vec<MemoryStep>,
}

/// The memory of a process, or of all together.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct HeldMemory {
    known: KnownAmount,
    /// The smallest and the largest amount since the last step. `None`: no amount was read since then.
    extremes: Option<[Amount; 2]>,
    /// Decides which of its steps are told to the user, as events.
    told: StepsTold,
    /// The process has ended. It is forgotten once a list does not have it any more.
    has_ended: bool,
}

/// How much memory was held at a time, CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Amount {
    at_ns: u64,
    bytes: u64,
}

/// What is known of an amount of memory before a list. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
enum KnownAmount {
    /// Nothing.
    #[default]
    No,
    /// The process began during the run, and held nothing at this time: its start, or a later list that did not have it.
    Began(u64),
    /// At this time, so many bytes were held.
    Held(u64, u64),
}

impl KnownAmount {
    /// What was held. `None`: this is not known, or it was before `oldest_ns`. `Began` is never too old, since a process holds nothing
    /// until it is listed.
    fn since(self, oldest_ns: u64) -> Option<Amount> {
        match self {
            Self::No => None,
            Self::Began(at_ns) => Some(Amount { at_ns, bytes: 0 }),
            Self::Held(at_ns, bytes) => (at_ns >= oldest_ns).then_some(Amount { at_ns, bytes }),
        }
    }
}

impl HeldMemory {
    /// Notes that `now_bytes` are held at a list; `None`: the list does not tell. Returns what was held before, and what is held now.
    /// `None`: one of them is not known.
    fn note_amount(&mut self, list: MemoryList, now_bytes: Option<u64>) -> Option<(Amount, u64)> {
        let before = self.known.since(list.oldest_ns);
        // If the list does not tell, the amount before stays, as `Held`, which can get too old. `Began` becomes `Held` with 0 bytes: the
        // process is listed by now, and may hold memory.
        self.known = match now_bytes {
            Some(bytes) => KnownAmount::Held(list.at_ns, bytes),
            None => before.map_or(KnownAmount::No, |held| KnownAmount::Held(held.at_ns, held.bytes)),
        };
        // A step never reaches back over a time in which the amount was unknown.
        if before.is_none() {
            self.extremes = None;
        }
        before.zip(now_bytes)
    }

    /// Takes in what is held at a list, as [`Self::note_amount`] does. Returns the step to it, if it differs by at least `least` bytes
    /// from the smallest or the largest amount since the last step. The caller sets the process of the step.
    fn step(&mut self, list: MemoryList, now_bytes: Option<u64>, least: u64) -> Option<MemoryStep> {
        let (before, now_bytes) = self.note_amount(list, now_bytes)?;
        let [smallest, largest] = self.extremes.unwrap_or([before; 2]);
        let distance = |amount: Amount| now_bytes.abs_diff(amount.bytes);
        let from = if distance(smallest) > distance(largest) { smallest } else { largest };
        if distance(from) < least {
            let now = Amount { at_ns: list.at_ns, bytes: now_bytes };
            self.extremes = Some([
                if now_bytes < smallest.bytes { now } else { smallest },
                if now_bytes > largest.bytes { now } else { largest },
            ]);
            return None;
        }
        self.extremes = None;
        Some(self.new_step(list, from, now_bytes, least))
    }

    /// Takes in what is held at a list, as [`Self::note_amount`] does. Returns the rise since the list before, if it is at least
    /// `least` bytes.
    fn jump(&mut self, list: MemoryList, now_bytes: Option<u64>, least: u64) -> Option<MemoryStep> {
        let (from, now_bytes) = self.note_amount(list, now_bytes)?;
        (now_bytes >= from.bytes.saturating_add(least)).then(|| self.new_step(list, from, now_bytes, least))
    }

    /// Makes a step, and decides whether it is told.
    fn new_step(&mut self, list: MemoryList, from: Amount, to: u64, least: u64) -> MemoryStep {
        let is_told = self.told.tells(list.at_ns, from.bytes, to, least);
        MemoryStep { process: None, from_ns: from.at_ns, at_ns: list.at_ns, from: from.bytes, to, is_told }
    }
}

impl MemorySteps {
    /// Takes in a list, and finds the steps to it. Forgets the ended processes that it does not have.
    pub(super) fn add(&mut self, list: MemoryList) {
        for id in list.by_process.keys() {
            // A new process held nothing at its start, nor at the last list, which did not have it. The later of both counts.
            let began = list.starts.get(id).map(|ns| KnownAmount::Began(self.listed_ns.max(*ns)));
            let new = HeldMemory { known: began.unwrap_or_default(), ..HeldMemory::default() };
            self.held.entry(*id).or_insert(new);
        }
        let least = StepPolicy::least_on(list.memory_bytes);
        for (id, held) in &mut self.held {
            // A process that is not listed holds nothing.
            let to = list.by_process.get(id).copied().unwrap_or(Some(0));
            let step = held.step(list, to, least);
            self.found.extend(step.map(|step| MemoryStep { process: Some(*id), ..step }));
        }
        if let Some(least) = StepPolicy::least_jump(list.memory_bytes) {
            self.found.extend(self.run.jump(list, list.of_run, least));
        }
        self.held.retain(|id, held| !held.has_ended || list.by_process.contains_key(id));
        self.listed_ns = list.at_ns;
    }

    /// Notes that the device is lost: nothing is known of its memory any more.
    pub(super) fn lose(&mut self) {
        self.run.known = KnownAmount::No;
        self.held.values_mut().for_each(|held| held.known = KnownAmount::No);
    }

    /// Notes that a process ended. The driver may list it once more.
    pub(super) fn ended(&mut self, id: u64) {
        if let Some(held) = self.held.get_mut(&id) {
            held.has_ended = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    /// The lists of a device, of one process.
    #[derive(Default)]
    struct Bench {
        steps: MemorySteps,
        start_ns: Option<u64>,
    }

    impl Bench {
        /// A list after so many seconds. `held`: MiB of the process; `None`: it is not listed; `Some(None)`: without memory. Gives its
        /// step: from how many MiB to how many.
        fn at(&mut self, s: u64, held: Option<Option<u64>>) -> Option<(u64, u64)> {
            let steps = self.all_at(s, held);
            steps.iter().find(|step| step.process.is_some()).map(|step| (step.from / MIB, step.to / MIB))
        }

        /// The same with the jump of the run, if there is one.
        fn all_at(&mut self, s: u64, held: Option<Option<u64>>) -> Vec<MemoryStep> {
            let by_process = held.map(|mib| (1, mib.map(|mib| mib * MIB))).into_iter().collect();
            self.steps.add(MemoryList {
                at_ns: s * S,
                oldest_ns: (s * S).saturating_sub(2 * S),
                memory_bytes: Some(5000 * MIB),
                by_process: &by_process,
                of_run: by_process.values().copied().sum(),
                starts: &self.start_ns.map(|ns| (1, ns)).into_iter().collect(),
            });
            std::mem::take(&mut self.steps.found)
        }
    }

    // Requirement: ALERT-14
    #[test]
    fn process_that_began_in_the_run_held_nothing_before_its_first_list() {
        let mut began = Bench { start_ns: Some(S), ..Bench::default() };
        assert_eq!(began.at(9, Some(Some(500))), Some((0, 500)), "however long ago");
        assert_eq!(began.at(10, Some(Some(563))), None, "63 MiB are no step");
        assert_eq!(began.at(11, Some(Some(627))), Some((500, 627)), "small changes add up");
        assert_eq!(began.at(12, None), Some((627, 0)));
        let mut ran_before = Bench::default();
        assert_eq!(ran_before.at(1, Some(Some(500))), None, "what it held before is not known");
        assert_eq!(ran_before.at(2, Some(Some(400))), Some((500, 400)));
    }

    // Requirement: ALERT-14
    #[test]
    fn slow_growth_is_a_step_for_each_amount_and_trembling_is_none() {
        let mut bench = Bench { start_ns: Some(S), ..Bench::default() };
        bench.at(1, Some(Some(500)));
        let growing: Vec<_> = (1..=20).filter_map(|n| bench.at(1 + n, Some(Some(500 + 50 * n)))).collect();
        assert_eq!(growing.first(), Some(&(500, 600)));
        assert_eq!((growing.len(), growing.last()), (10, Some(&(1400, 1500))));
        let trembling = (0..20).filter_map(|n| bench.at(22 + n, Some(Some(1500 - 50 * (n % 2)))));
        assert_eq!(trembling.count(), 0);
        // From its highest amount, which was no step itself.
        assert_eq!(
            (bench.at(42, Some(Some(1550))), bench.at(43, Some(Some(1470)))),
            (Some((1450, 1550)), Some((1550, 1470)))
        );
    }

    // Requirement: ALERT-14
    #[test]
    fn old_readings_null_and_a_lost_device_make_no_step() {
        let known = || {
            let mut bench = Bench { start_ns: Some(S), ..Bench::default() };
            bench.at(1, Some(Some(500)));
            bench
        };
        assert_eq!(known().at(4, Some(Some(900))), None, "no list for 3 s");
        assert_eq!(known().at(4, None), None);
        let mut null = known();
        assert_eq!((null.at(2, Some(None)), null.at(3, Some(Some(900)))), (None, Some((500, 900))));
        let mut long_null = known();
        assert_eq!([2, 3, 4].map(|s| long_null.at(s, Some(None))), [None; 3]);
        assert_eq!((long_null.at(5, Some(Some(900))), long_null.at(6, None)), (None, Some((900, 0))));
        let mut lost = known();
        lost.steps.lose();
        assert_eq!((lost.at(2, None), lost.at(3, Some(Some(900)))), (None, Some((0, 900))));
        let mut began_null = Bench { start_ns: Some(S), ..Bench::default() };
        assert_eq!([2, 3, 4].map(|s| began_null.at(s, Some(None))), [None; 3]);
        assert_eq!(began_null.at(5, Some(Some(900))), None);
    }

    // Requirement: ALERT-14
    #[test]
    fn tenth_of_the_devices_memory_within_an_interval_is_a_jump_of_the_run() {
        let mut bench = Bench { start_ns: Some(S), ..Bench::default() };
        let mut jump = |s, held| {
            let steps = bench.all_at(s, held);
            steps.iter().find(|step| step.process.is_none()).map(|step| (step.from / MIB, step.to / MIB))
        };
        assert_eq!([jump(1, None), jump(2, Some(Some(499)))], [None; 2]);
        assert_eq!(jump(3, Some(Some(999))), Some((499, 999)));
        assert_eq!([jump(4, None), jump(5, Some(None)), jump(6, Some(None))], [None; 3]);
        assert_eq!(jump(7, Some(Some(4000))), None, "the list before did not tell it");
    }

    #[test]
    fn ended_process_frees_its_memory_at_the_next_list_and_is_forgotten() {
        let mut bench = Bench { start_ns: Some(S), ..Bench::default() };
        bench.at(1, Some(Some(500)));
        bench.steps.ended(1);
        assert_eq!((bench.at(2, Some(Some(500))), bench.at(3, None)), (None, Some((500, 0))));
        assert!(bench.steps.held.is_empty());
    }
    // Requirement: ALERT-14
    #[test]
    fn jump_is_of_all_processes_though_not_all_have_figures_of_their_own() {
        let mut steps = MemorySteps::default();
        for (s, mib) in [(1, 0), (2, 1000)] {
            steps.add(MemoryList {
                at_ns: s * S,
                oldest_ns: 0,
                memory_bytes: Some(5000 * MIB),
                by_process: &BTreeMap::new(),
                of_run: Some(mib * MIB),
                starts: &BTreeMap::new(),
            });
        }
        let found: Vec<_> = steps.found.iter().map(|step| (step.process, step.to)).collect();
        assert_eq!(found, [(None, 1000 * MIB)]);
    }
}
