//! Samples of made-up readings: how much of each process's memory counts, and what may not be concluded.

mod footprint;
mod large;
mod shared_pages;

use std::collections::BTreeMap;

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};
use gpu_track_abi::task::TaskKeys;

use super::*;
use crate::model::exit_account::{Remains, StatCounts};
use crate::model::ids::Key;
use crate::model::observation::{
    ChildSeen, FileMapping, Mappings, Rollup, SharingSource, SharingTarget, UnreportedMemory,
};
use crate::run::tree::RunContext;
use crate::run::usage::{MaxFootprint, RamUsage};

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const MAIN: u32 = 101;
const CHILD: u32 = 102;

/// What /proc shows of a made-up process; sizes in MiB.
#[derive(Clone, Copy)]
struct Made {
    is_zombie: bool,
    rss: u64,
    shared: u64,
    faults: u64,
    threads: u64,
    hwm: u64,
    pss: u64,
    private: u64,
    hugetlb: u64,
    swap: u64,
    /// See [`Rollup::unseen_bytes`].
    unseen: u64,
    /// Inode of the file that the shared pages are of, and where they begin in it.
    file: (u64, u64),
    /// How much of the mapping is not resident.
    absent: u64,
}

impl Made {
    fn with(rss: u64) -> Self {
        Self {
            is_zombie: false,
            rss,
            shared: 0,
            faults: 0,
            threads: 1,
            hwm: rss,
            pss: rss,
            private: rss,
            hugetlb: 0,
            swap: 0,
            unseen: 0,
            file: (1, 0),
            absent: 0,
        }
    }

    fn state(&self, dead_ns: u64) -> ReadingState {
        if self.is_zombie {
            return ReadingState::Zombie(dead_ns, Remains::default());
        }
        let counts = StatCounts { minor_faults: self.faults, ..StatCounts::default() };
        let vitals = Vitals { threads: self.threads, counts, ..Vitals::default() };
        ReadingState::Alive(vitals, Some(self.size()))
    }

    fn size(&self) -> Size {
        Size { rss_bytes: self.rss * MIB, shared_bytes: self.shared * MIB }
    }

    fn rollup(&self) -> Rollup {
        Rollup {
            rss_bytes: self.rss * MIB,
            pss_bytes: self.pss * MIB,
            pss_anon_bytes: if self.shared == 0 {
                self.pss
            } else {
                (self.rss - self.shared).min(self.private)
            } * MIB,
            private_bytes: self.private * MIB,
            anonymous_bytes: (self.rss - self.shared) * MIB,
            unseen_bytes: self.unseen * MIB,
            ..Rollup::default()
        }
    }
}

impl Made {
    fn mappings(&self) -> Mappings {
        let (inode, start) = (self.file.0, self.file.1 * MIB);
        let rollup = self.rollup();
        let mapping = FileMapping {
            file: (1, inode),
            start,
            end: start + (self.shared + self.absent) * MIB,
            rss_bytes: self.shared * MIB,
            pss_bytes: rollup.pss_bytes.saturating_sub(rollup.pss_anon_bytes),
        };
        Mappings {
            files: vec![mapping],
            private_anon_bytes: (self.rss - self.shared).min(self.private) * MIB,
            ..Mappings::default()
        }
    }
}

struct Run {
    tree: Tree,
    sampling: Sampling,
    ram: RamUsage,
    made: BTreeMap<u32, Made>,
    /// smaps_rollup of a process, where it differs from `made`.
    rollups: BTreeMap<u32, Rollup>,
    /// smaps of a process, where it differs from `made`.
    mappings: BTreeMap<u32, Mappings>,
    now_ns: u64,
    sampled_ns: u64,
    is_broke: bool,
    /// The mappings of all processes are read at each sample.
    reads_all: bool,
    /// So long after the sample's time a process is found dead.
    dead_after_ns: u64,
}

impl Run {
    /// A first process with this much memory, started at second 1.
    fn new(main: Made) -> Self {
        let context = RunContext::of_test(100, 1, S);
        let mut run = Self {
            tree: Tree::new(context),
            sampling: Sampling::default(),
            ram: RamUsage::default(),
            made: BTreeMap::new(),
            rollups: BTreeMap::new(),
            mappings: BTreeMap::new(),
            now_ns: S,
            sampled_ns: S,
            is_broke: false,
            reads_all: false,
            dead_after_ns: 0,
        };
        run.tree.set_main(MAIN, S, "main");
        run.start(MAIN);
        run.is(MAIN, main);
        run
    }

    fn record(&mut self, pid: u32, event: Event) {
        let origin = Origin { pid, pid_ns: 1, parent: MAIN, monotonic_ns: self.now_ns, flags: 0 };
        self.tree.apply(&origin, &event, self.now_ns);
    }

    fn start(&mut self, pid: u32) {
        let (realtime_ns, names) = (self.now_ns, [0; NAME_BYTES]);
        self.record(
            pid,
            Event::Start {
                realtime_ns,
                pidfd_inode: 0,
                max_rss_kib: 0,
                names,
                rank: Rank::default(),
                task: TaskKeys::NONE,
            },
        );
    }

    fn fork(&mut self, pid: u32, rss: u64) {
        self.forked_by(MAIN, pid, rss);
    }

    fn forked_by(&mut self, parent: u32, pid: u32, rss: u64) {
        let (realtime_ns, max_rss_kib) = (self.now_ns, rss * 1024);
        let event = Event::Fork { realtime_ns, pidfd_inode: 0, max_rss_kib, parent_pid_ns: 1 };
        let origin = Origin { pid, pid_ns: 1, parent, monotonic_ns: self.now_ns, flags: 0 };
        self.tree.apply(&origin, &event, self.now_ns);
    }

    /// /proc shows a child of the first process with this pid.
    fn found(&mut self, pid: u32) -> ProcessId {
        let parent = self.tree.alive()[0];
        let key = Key { pid_ns: 1, pid };
        let start_ns = self.now_ns;
        self.tree.found_in_proc(&ChildSeen::of_test(key, parent, start_ns))
    }

    fn is(&mut self, pid: u32, made: Made) {
        self.made.insert(pid, made);
    }

    fn read(&mut self, seconds: u64) {
        self.now_ns += seconds * S;
        let now_ns = self.now_ns;
        let read = |target: SampleTarget| {
            let made = self.made.get(&target.target.pid);
            let dead_ns = now_ns + self.dead_after_ns;
            let state = made.map_or(ReadingState::Gone(dead_ns), |made| made.state(dead_ns));
            Reading { id: target.target.id, args: None, state }
        };
        let readings: Vec<Reading> = Sampling::targets(&self.tree).into_iter().map(read).collect();
        self.sampling.read(&mut self.tree, now_ns, &readings);
    }

    /// A sample some seconds later.
    fn sample(&mut self, seconds: u64) -> Sample {
        self.read(seconds);
        self.conclude()
    }

    /// The passes after the first.
    fn conclude(&mut self) -> Sample {
        let made_of = |run: &Self, id: ProcessId| {
            let pid = run.tree.get(id)?.ids.host_pid?;
            Some((pid, *run.made.get(&pid)?))
        };
        let peak = |id: ProcessId| {
            let (_, made) = made_of(self, id)?;
            let (vm_hwm_bytes, hugetlb_bytes) = (Some(made.hwm * MIB), Some(made.hugetlb * MIB));
            Some(PeakReading {
                id,
                vm_hwm_bytes,
                hugetlb_bytes,
                swap_bytes: Some(made.swap * MIB),
                limits: None,
            })
        };
        let mut wanted = self.sampling.new_images(&self.tree);
        wanted.extend(self.sampling.alive.iter().filter(|id| self.sampling.is_peak_due(**id, true)));
        let peaks: Vec<_> = wanted.into_iter().filter_map(peak).filter(|_| !self.is_broke).collect();
        self.sampling.peaks(&self.tree, &peaks);
        let read = |run: &Self, target: &SharingTarget| {
            let (pid, made) = made_of(run, target.id)?;
            let rollup = run.rollups.get(&pid).copied().unwrap_or(made.rollup());
            let mappings = || run.mappings.get(&pid).cloned().unwrap_or_else(|| made.mappings());
            let mappings = (target.source != SharingSource::Rollup).then(mappings);
            Some((target.id, SharingReading::Read { rollup, mappings, size: Some(made.size()) }))
        };
        while !self.is_broke
            && let Some(unit) = self.sampling.next_unit(&self.tree, self.ram.high_water_mark())
        {
            let several = if unit.members.len() > 1 { unit.members.as_slice() } else { &[] };
            let size = |id: &ProcessId| (*id, made_of(self, *id).map(|(_, made)| made.size()));
            let sizes_after = several.iter().map(size).collect();
            let read = unit.order.iter().filter_map(|target| read(self, target)).collect();
            let with_files = is_by_pages(&unit);
            let members = unit.members;
            self.sampling
                .take_in_sharing(&self.tree, &SharingReadings { members, read, sizes_after, with_files });
        }
        let mut units = self.sampling.stale(&self.tree);
        if self.reads_all {
            let unit = |id: &ProcessId| Unit {
                members: vec![*id],
                order: vec![SharingTarget { id: *id, source: SharingSource::Smaps }],
                credit: SharingCredit::Spare,
            };
            units = self.sampling.alive.iter().map(unit).collect();
        }
        for unit in units.into_iter().filter(|_| !self.is_broke) {
            let read = unit.order.iter().filter_map(|target| read(self, target)).collect();
            let with_files = is_by_pages(&unit);
            let readings = SharingReadings { members: unit.members, read, with_files, ..Default::default() };
            self.sampling.take_in_sharing(&self.tree, &readings);
        }
        self.sampling.conclude(&mut self.tree, self.sampled_ns);
        let mut sample = self.sampling.take().expect("it was concluded");
        sample.intervals.extend(self.tree.take_intervals(sample.at_ns));
        self.ram.add(&self.tree, &mut sample.clone());
        self.sampled_ns = sample.at_ns;
        sample
    }

    /// From now on there is no time for expensive readings.
    fn broke(&mut self) {
        self.is_broke = true;
    }

    fn finalize(&mut self) {
        self.tree.finalize(self.now_ns, u64::MAX);
    }
}

/// Whether the unit is read by pagemap.
fn is_by_pages(unit: &Unit) -> bool {
    unit.order.iter().any(|target| matches!(target.source, SharingSource::Pages { .. }))
}

#[test]
fn anonymous_memory_needs_no_expensive_reading() {
    let mut run = Run::new(Made { threads: 5, ..Made::with(100) });
    run.start(CHILD);
    run.is(CHILD, Made::with(50));
    run.broke();
    let sample = run.sample(1);
    assert_eq!(
        (sample.now.main.footprint_bytes, sample.now.descendants.footprint_bytes),
        (100 * MIB, 50 * MIB)
    );
    assert_eq!((sample.now.main.threads, sample.now.descendants.threads), (5, 1));
    assert_eq!(sample.holders.iter().map(|held| held.rss_bytes / MIB).max(), Some(100));
}

#[test]
fn fork_child_sampled_before_its_record_keeps_its_peak() {
    let mut run = Run::new(Made::with(10));
    run.found(CHILD);
    run.is(CHILD, Made { faults: 15 * 256, ..Made::with(25) });
    run.broke();
    // It may all be its parent's, or a part.
    assert_eq!(run.sample(1).now.footprint_bytes, 25 * MIB);
    run.fork(CHILD, 10);
    run.now_ns += S / 2;
    let own = Usage { minor_faults: 50 * 256, max_rss_kib: 60 * 1024, ..Usage::default() };
    run.record(CHILD, Event::Exit { status: 0, vm_hwm_kib: 60 * 1024, own, children: Usage::default() });
    run.sample(1);
    assert_eq!(run.ram.max.descendants.footprint_bytes, 50 * MIB);
}

#[test]
fn process_sampled_after_its_exit_record_counts_once() {
    let mut run = Run::new(Made::with(10));
    run.start(CHILD);
    run.is(CHILD, Made::with(200));
    run.sample(1);
    run.sample(1);
    // It was written before the sample, and read after it.
    run.now_ns -= S / 1000;
    let own = Usage { max_rss_kib: 200 * 1024, ..Usage::default() };
    run.record(CHILD, Event::Exit { status: 0, vm_hwm_kib: 200 * 1024, own, children: Usage::default() });
    run.finalize();
    run.sample(1);
    assert_eq!((run.ram.max.descendants.footprint_bytes, run.ram.max_processes), (200 * MIB, 2));
}

// Requirement: RAM-60
#[test]
fn growth_in_shared_memory_is_not_counted_twice() {
    let mut run = Run::new(Made { shared: 400, ..Made::with(400) });
    for pid in [CHILD, CHILD + 1] {
        run.fork(pid, 1);
        run.is(pid, Made { shared: 300, faults: 300 * 256, ..Made::with(300) });
    }
    run.broke();
    run.sample(1);
    let own = Usage { minor_faults: 400 * 256, max_rss_kib: 400 * 1024, ..Usage::default() };
    for pid in [CHILD, CHILD + 1] {
        run.record(pid, Event::Exit { status: 0, vm_hwm_kib: 400 * 1024, own, children: Usage::default() });
    }
    run.finalize();
    run.sample(1);
    assert_eq!(
        (run.ram.max.descendants.footprint_bytes, run.ram.max.combined.footprint_bytes),
        (300 * MIB, 400 * MIB)
    );
}

#[test]
fn growth_beyond_what_others_share_is_its_own() {
    let mut run = Run::new(Made { shared: 100, ..Made::with(101) });
    run.fork(CHILD, 1);
    run.is(CHILD, Made { shared: 30, faults: 30 * 256, ..Made::with(31) });
    run.broke();
    run.sample(1);
    let own = Usage { max_rss_kib: 1101 * 1024, ..Usage::default() };
    run.record(MAIN, Event::Exit { status: 0, vm_hwm_kib: 1101 * 1024, own, children: Usage::default() });
    run.finalize();
    run.sample(1);
    // 30 of the 1,000 that it grew by may be the child's.
    assert_eq!(run.ram.max.main.footprint_bytes, 1071 * MIB);
}

// Requirement: RAM-7
#[test]
fn hugetlb_pages_are_added() {
    let mut run = Run::new(Made { hugetlb: 64, ..Made::with(10) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main.footprint_bytes, sample.now.footprint_bytes), (74 * MIB, 74 * MIB));
}

#[test]
fn first_sample_counts_from_start_and_later_ones_are_steady() {
    let mut run = Run::new(Made::with(100));
    let first = run.sample(10);
    let main: Vec<_> =
        first.intervals.iter().filter(|interval| interval.is_process || !interval.memory.is_zero()).collect();
    assert_eq!((main.len(), main[0].is_process, main[0].start_ns), (2, true, S));
    assert_eq!((main[1].start_ns, main[1].memory.added_bytes), (S, 100 * MIB));
    assert_eq!(first.steady, TreeSums::default());
    run.is(MAIN, Made::with(300));
    let second = run.sample(10);
    assert!(second.intervals.is_empty());
    let main = [second.steady, second.steady_mean, second.now].map(|sums| sums.main.footprint_bytes);
    assert_eq!(main, [100 * MIB, 200 * MIB, 300 * MIB]);
    // 100 MiB for ten seconds, then 200 in the mean.
    let main = run.ram.means(20.0).unwrap().main;
    assert_eq!(main, 150.0 * MIB as f64);
}

#[test]
fn vm_hwm_shows_a_peak_between_two_samples() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.is(MAIN, Made { hwm: 900, faults: 9, ..Made::with(100) });
    run.sample(10);
    assert_eq!(run.ram.max.combined.footprint_bytes, 900 * MIB);
    // It grows to 200 MiB, with a peak of 950 on the way: how long that lasted is not known.
    run.is(MAIN, Made { hwm: 950, faults: 99, ..Made::with(200) });
    run.sample(10);
    let main = run.ram.means(30.0).unwrap().main;
    assert_eq!(main, (100.0 + 100.0 + 150.0) / 3.0 * MIB as f64);
}

#[test]
fn exec_counts_once_in_the_mean() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.now_ns += S;
    run.start(MAIN);
    run.sample(9);
    let main = run.ram.means(20.0).unwrap().main;
    assert_eq!(main, 100.0 * MIB as f64);
}

/// A fork child that execs between the two: half of its parent's memory would be its own.
#[test]
fn rollup_and_size_of_two_programs_are_discarded() {
    let mut run = Run::new(Made { shared: 20, ..Made::with(500) });
    run.fork(CHILD, 500);
    run.is(CHILD, Made { shared: 1, faults: 10, ..Made::with(2) });
    run.rollups.insert(CHILD, Made { pss: 250, private: 0, ..Made::with(500) }.rollup());
    let sample = run.sample(1);
    assert!(sample.now.footprint_bytes <= 502 * MIB, "{:?}", sample.now);
    assert!(run.ram.max.combined.footprint_bytes <= 502 * MIB, "{:?}", run.ram.max.combined);
}

#[test]
fn member_that_lost_its_memory_voids_its_groups_sharing() {
    let mut run = Run::new(Made::with(400));
    run.fork(CHILD, 400);
    run.is(CHILD, Made { pss: 200, private: 0, faults: 102_400, ..Made::with(400) });
    run.is(MAIN, Made { pss: 200, private: 0, ..Made::with(400) });
    run.sample(1);
    let ids = run.tree.alive().to_vec();
    assert!(run.sampling.readings.values().all(|reading| reading.sharing.is_some()));
    let sizes_after = vec![(ids[0], Some(Made::with(400).size())), (ids[1], None)];
    run.sampling.take_in_sharing(
        &run.tree,
        &SharingReadings { members: ids.clone(), sizes_after, ..Default::default() },
    );
    assert!(run.sampling.readings.values().all(|reading| reading.sharing.is_none()));
    assert_eq!(run.sampling.readings[&ids[1]].size.rss_bytes, 400 * MIB, "what it had stands");
}

// Requirement: RAM-10, RAM-58
#[test]
fn sample_without_budget_counts_only_what_is_certain() {
    let mut run = Run::new(Made::with(400));
    run.fork(CHILD, 400);
    run.is(CHILD, Made { faults: 25_600, ..Made::with(400) });
    run.broke();
    run.sample(1);
    // 100 MiB may be copies that it made.
    assert_eq!(
        (run.ram.max.combined.footprint_bytes, run.ram.max.descendants.footprint_bytes),
        (400 * MIB, 400 * MIB)
    );
}

#[test]
fn largest_process_found_dead_is_known_before_the_sample_counts() {
    let mut run = Run::new(Made::with(400));
    run.start(CHILD);
    run.is(CHILD, Made::with(10));
    run.sample(1);
    assert_eq!((run.sampling.current.dead_ns, run.sampling.current.dead_bytes), (None, 0));
    run.is(CHILD, Made { is_zombie: true, ..Made::with(0) });
    run.read(1);
    assert_eq!((run.sampling.current.dead_ns, run.sampling.current.dead_bytes), (Some(3 * S), 10 * MIB));
}

#[test]
fn cpu_clock_counts_by_its_growth() {
    let mut run = Run::new(Made::with(10));
    let id = run.tree.alive()[0];
    let mut main_cpu_ns = |cpu_ns| {
        run.now_ns += S;
        let vitals = Vitals { cpu_ns: Some(cpu_ns), ..Vitals::default() };
        let state = ReadingState::Alive(vitals, Some(Size::default()));
        run.sampling.read(&mut run.tree, run.now_ns, &[Reading { id, args: None, state }]);
        run.sampling.peaks(&run.tree, &[]);
        run.sampling.conclude(&mut run.tree, run.sampled_ns);
        (run.sampling.take().unwrap().cpu_ns.main, run.tree.counted_cpu_ns())
    };
    assert_eq!(main_cpu_ns(7), (7, 7));
    assert_eq!(main_cpu_ns(12), (5, 12));
}

#[test]
fn threads_to_read_are_those_of_live_processes_and_a_process_that_rested_is_marked() {
    let mut run = Run::new(Made::with(10));
    run.start(CHILD);
    let ids = run.tree.alive().to_vec();
    let mut targets = |states: [ReadingState; 2]| {
        run.now_ns += S;
        let reading = |(id, state): (&ProcessId, ReadingState)| Reading { id: *id, args: None, state };
        let readings: Vec<_> = ids.iter().zip(states).map(reading).collect();
        run.sampling.read(&mut run.tree, run.now_ns, &readings);
        let targets = run.sampling.thread_targets(&run.tree);
        targets.into_iter().map(|one| (one.target.pid, one.threads, one.has_rested)).collect::<Vec<_>>()
    };
    let vitals = Vitals { threads: 3, ..Vitals::default() };
    let alive = ReadingState::Alive(vitals, Some(Size::default()));
    assert_eq!(targets([alive, alive]), [(MAIN, 3, false), (CHILD, 3, false)]);
    assert_eq!(targets([ReadingState::Rested, alive]), [(MAIN, 3, true), (CHILD, 3, false)]);
    assert_eq!(targets([ReadingState::Rested, ReadingState::Gone(S)]), [(MAIN, 3, true)]);
}

#[test]
fn another_stack_bottom_shows_an_exec_since_the_last_reading() {
    let mut run = Run::new(Made::with(10));
    let id = run.tree.alive()[0];
    let mut read = |start_stack| {
        run.now_ns += S;
        let state = ReadingState::Alive(Vitals { start_stack, ..Vitals::default() }, None);
        run.sampling.read(&mut run.tree, run.now_ns, &[Reading { id, args: None, state }]);
        (run.sampling.current.first.to_vec(), run.sampling.current.changed.to_vec())
    };
    assert_eq!(read(0x7000), (vec![(id, 0x7000)], vec![]));
    assert_eq!(read(0), (vec![], vec![]), "unknown");
    assert_eq!(read(0x7000), (vec![], vec![]));
    assert_eq!(read(0x8000), (vec![], vec![ChangedProgram { id, since_ns: 4 * S }]));
}
