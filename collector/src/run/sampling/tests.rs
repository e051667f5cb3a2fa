//! Samples of made-up readings: how much of each process's memory counts, and what may not be concluded.

use std::collections::BTreeMap;

use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};

use super::*;
use crate::model::finding::Remains;
use crate::model::ids::Key;
use crate::model::observation::{ChildSeen, Rollup, UnreportedMemory};
use crate::run::tree::RunContext;
use crate::run::usage::RamUsage;

const S: u64 = 1_000_000_000;
const PAGE: u64 = 4096;
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
        }
    }

    fn state(&self, now_ns: u64) -> ReadingState {
        if self.is_zombie {
            return ReadingState::Zombie(now_ns, Remains::default());
        }
        let vitals = Vitals { threads: self.threads, minor_faults: self.faults, ..Vitals::default() };
        ReadingState::Alive(vitals, Some(self.size()))
    }

    fn size(&self) -> Size {
        Size { rss_bytes: self.rss * MIB, shared_bytes: self.shared * MIB }
    }

    fn rollup(&self) -> Rollup {
        Rollup {
            rss_bytes: self.rss * MIB,
            pss_bytes: self.pss * MIB,
            pss_anon_bytes: (self.rss - self.shared).min(self.private) * MIB,
            private_bytes: self.private * MIB,
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
    now_ns: u64,
    sampled_ns: u64,
    is_broke: bool,
}

impl Run {
    /// A first process with this much memory, started at second 1.
    fn new(main: Made) -> Self {
        let context = RunContext {
            launcher_pid: 100,
            pid_ns: 1,
            session_monotonic_ns: S,
            session_realtime_ns: S,
            page: PAGE,
            tick_us: 10_000,
        };
        let mut run = Self {
            tree: Tree::new(context),
            sampling: Sampling::default(),
            ram: RamUsage::default(),
            made: BTreeMap::new(),
            rollups: BTreeMap::new(),
            now_ns: S,
            sampled_ns: S,
            is_broke: false,
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
        self.record(pid, Event::Start { realtime_ns, pidfd_inode: 0, max_rss_kib: 0, names });
    }

    fn fork(&mut self, pid: u32, rss: u64) {
        let (realtime_ns, max_rss_kib) = (self.now_ns, rss * 1024);
        self.record(pid, Event::Fork { realtime_ns, pidfd_inode: 0, max_rss_kib, parent_pid_ns: 1 });
    }

    /// /proc shows a child of the first process with this pid.
    fn found(&mut self, pid: u32) -> ProcessId {
        let parent = self.tree.alive()[0];
        let key = Key { pid_ns: 1, pid };
        let start_ns = self.now_ns;
        self.tree.found_in_proc(&ChildSeen { key, host_pid: pid, parent, start_ns, pidfd_inode: 0 })
    }

    fn is(&mut self, pid: u32, made: Made) {
        self.made.insert(pid, made);
    }

    fn read(&mut self, seconds: u64) {
        self.now_ns += seconds * S;
        let now_ns = self.now_ns;
        let read = |target: SampleTarget| {
            let made = self.made.get(&target.target.pid);
            let state = made.map_or(ReadingState::Gone(now_ns), |made| made.state(now_ns));
            Reading { id: target.target.id, args: None, state }
        };
        let readings: Vec<Reading> = Sampling::targets(&self.tree).into_iter().map(read).collect();
        self.sampling.read(&mut self.tree, now_ns, &readings);
    }

    /// A sample some seconds later.
    fn sample(&mut self, seconds: u64) -> Sample {
        self.read(seconds);
        let made_of = |run: &Self, id: ProcessId| {
            let pid = run.tree.get(id)?.ids.host_pid?;
            Some((pid, *run.made.get(&pid)?))
        };
        let peak = |id: ProcessId| {
            let (_, made) = made_of(self, id)?;
            let (vm_hwm_bytes, hugetlb_bytes) = (Some(made.hwm * MIB), Some(made.hugetlb * MIB));
            Some(PeakReading { id, vm_hwm_bytes, hugetlb_bytes, limits: None })
        };
        let mut wanted = self.sampling.new_images(&self.tree);
        wanted.extend(self.sampling.alive().iter().filter(|id| self.sampling.is_peak_due(**id)));
        let peaks: Vec<_> = wanted.into_iter().filter_map(peak).filter(|_| !self.is_broke).collect();
        self.sampling.peaks(&self.tree, &peaks);
        let mut units = self.sampling.sharing_units(&self.tree);
        while let Some(unit) = units.pop() {
            let credit = self.sampling.credit_for(&self.tree, &unit, self.ram.high_water_mark());
            if credit.is_none() || self.is_broke {
                break;
            }
            let sharing = |id: ProcessId| {
                let (pid, made) = made_of(self, id)?;
                let rollup = self.rollups.get(&pid).copied().unwrap_or(made.rollup());
                Some((id, SharingReading::Read(rollup, Some(made.size()))))
            };
            let read =
                self.sampling.reading_order(&self.tree, &unit).into_iter().filter_map(sharing).collect();
            let several = if unit.members.len() > 1 { unit.members.as_slice() } else { &[] };
            let size = |id: &ProcessId| (*id, made_of(self, *id).map(|(_, made)| made.size()));
            let sizes_after = several.iter().map(size).collect();
            let unit = SharingReadings { members: unit.members.clone(), read, sizes_after };
            self.sampling.sharing(&self.tree, &unit);
        }
        self.sampling.conclude(&mut self.tree, self.sampled_ns);
        let mut sample = self.sampling.take().expect("it was concluded");
        sample.intervals.extend(self.tree.take_intervals(sample.at_ns));
        self.ram.add(&self.tree, &sample);
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

#[test]
fn anonymous_memory_needs_no_expensive_reading() {
    let mut run = Run::new(Made { threads: 5, ..Made::with(100) });
    run.start(CHILD);
    run.is(CHILD, Made::with(50));
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (100 * MIB, 50 * MIB));
    assert_eq!((sample.now.main_threads, sample.now.descendants_threads, sample.verified), (5, 1, true));
    assert_eq!(sample.holders.iter().map(|held| held.now / MIB).max(), Some(100));
}

#[test]
fn file_memory_counts_proportionally_once_sharing_is_read() {
    let files = Made { shared: 60, pss: 55, private: 40, ..Made::with(100) };
    let mut run = Run::new(files);
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain, sample.verified), (100 * MIB, 60 * MIB, false));
    assert_eq!(run.ram.combined.total, 40 * MIB, "private file pages count in full");
    let mut run = Run::new(files);
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain, sample.verified), (55 * MIB, 0, true));
}

#[test]
fn sharing_is_read_again_when_others_map_as_much() {
    let shared = |pss| Made { shared: 100, pss, private: 0, ..Made::with(100) };
    let mut run = Run::new(shared(100));
    assert_eq!(run.sample(1).now.main, 100 * MIB);
    run.is(MAIN, shared(50));
    run.start(CHILD);
    run.is(CHILD, shared(50));
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants, sample.verified), (50 * MIB, 50 * MIB, true));
    assert_eq!(run.ram.combined.total, 100 * MIB);
    // Without the time for that.
    run.broke();
    run.start(CHILD + 1);
    run.is(CHILD + 1, shared(33));
    assert!(!run.sample(1).verified);
    assert_eq!(run.ram.combined.total, 100 * MIB);
    // Pages that others unmapped are not known to have become its own.
    run.is(CHILD, Made { shared: 0, pss: 0, ..Made::with(0) });
    run.is(CHILD + 1, Made { shared: 0, pss: 0, ..Made::with(0) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.uncertain), (50 * MIB, 0));
}

#[test]
fn unread_fork_child_counts_touched_pages_and_growth() {
    let mut run = Run::new(Made::with(400));
    run.sample(1);
    run.fork(CHILD, 400);
    run.is(CHILD, Made { faults: 256, ..Made::with(400) });
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (400 * MIB, MIB));
    // Its growth is certain; a page that it touched may still be its parent's.
    run.is(CHILD, Made { faults: 256, ..Made::with(450) });
    let sample = run.sample(1);
    assert_eq!((sample.now.descendants, sample.now.descendants_uncertain), (50 * MIB, 0));
}

#[test]
fn read_image_group_counts_proportional_sizes() {
    let mut run = Run::new(Made { pss: 200, private: 0, ..Made::with(400) });
    run.fork(CHILD, 400);
    run.is(CHILD, Made { pss: 230, private: 30, faults: 51_200, ..Made::with(430) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants, sample.verified), (200 * MIB, 230 * MIB, true));
    assert_eq!(sample.now.descendants_private, 30 * MIB);
    // Carried forward with statm, without another reading.
    run.broke();
    run.is(CHILD, Made { faults: 51_200, ..Made::with(440) });
    assert_eq!(run.sample(1).now.descendants, 240 * MIB);
    // A new member: the proportional sizes are those of another group.
    run.fork(CHILD + 1, 440);
    run.is(CHILD + 1, Made::with(440));
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.descendants), (400 * MIB, 200 * MIB));
}

// Requirement: RAM-6
#[test]
fn vfork_child_counts_nothing() {
    let mut run = Run::new(Made::with(400));
    let id = run.found(CHILD);
    run.tree.set_unreported_image(id, UnreportedMemory::Parents, run.now_ns);
    run.is(CHILD, Made::with(400));
    let sample = run.sample(1);
    assert_eq!((sample.now.combined(), sample.now.processes), (400 * MIB, 2));
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    run.is(CHILD, Made::with(3));
    assert_eq!(run.sample(1).now.combined(), 403 * MIB);
}

#[test]
fn fork_child_sampled_before_its_record_keeps_its_peak() {
    let mut run = Run::new(Made::with(10));
    run.found(CHILD);
    run.is(CHILD, Made { faults: 15 * 256, ..Made::with(25) });
    run.broke();
    // It may all be its parent's.
    assert_eq!(run.sample(1).now.uncertain, 25 * MIB);
    run.fork(CHILD, 10);
    run.now_ns += S / 2;
    let own = Usage { minor_faults: 50 * 256, max_rss_kib: 60 * 1024, ..Usage::default() };
    run.record(CHILD, Event::Exit { status: 0, vm_hwm_kib: 60 * 1024, own, children: Usage::default() });
    run.sample(1);
    assert_eq!(run.ram.descendants.total, 50 * MIB);
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
    assert_eq!((run.ram.descendants.total, run.ram.max_processes), (200 * MIB, 2));
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
    assert_eq!(run.ram.descendants.total, 0);
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
    // 1 MiB was certain; 30 of the 1,000 that it grew by may be the child's.
    assert_eq!(run.ram.main.total, 971 * MIB);
}

// Requirement: RAM-7
#[test]
fn hugetlb_pages_are_added() {
    let mut run = Run::new(Made { hugetlb: 64, ..Made::with(10) });
    let sample = run.sample(1);
    assert_eq!((sample.now.main, sample.now.main_rss), (74 * MIB, 74 * MIB));
}

#[test]
fn first_sample_counts_from_start_and_later_ones_are_steady() {
    let mut run = Run::new(Made::with(100));
    let first = run.sample(10);
    let main: Vec<_> =
        first.intervals.iter().filter(|interval| interval.is_process || interval.bytes > 0).collect();
    assert_eq!((main.len(), main[0].is_process, main[0].start_ns), (2, true, S));
    assert_eq!((main[1].start_ns, main[1].bytes), (S, 100 * MIB));
    assert_eq!(first.steady, Sums::default());
    run.is(MAIN, Made::with(300));
    let second = run.sample(10);
    assert!(second.intervals.is_empty());
    assert_eq!(
        (second.steady.main, second.steady_mean.main, second.now.main),
        (100 * MIB, 200 * MIB, 300 * MIB)
    );
    // 100 MiB for ten seconds, then 200 in the mean.
    let (main, ..) = run.ram.means(20.0).unwrap();
    assert_eq!(main, 150.0 * MIB as f64);
}

#[test]
fn vm_hwm_shows_a_peak_between_two_samples() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.is(MAIN, Made { hwm: 900, faults: 9, ..Made::with(100) });
    run.sample(10);
    assert_eq!(run.ram.combined.total, 900 * MIB);
}

#[test]
fn exec_counts_once_in_the_mean() {
    let mut run = Run::new(Made::with(100));
    run.sample(10);
    run.now_ns += S;
    run.start(MAIN);
    run.sample(9);
    let (main, ..) = run.ram.means(20.0).unwrap();
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
    assert!(sample.now.combined() <= 502 * MIB, "{:?}", sample.now);
    assert!(run.ram.combined.total <= 502 * MIB, "{:?}", run.ram.combined);
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
    run.sampling.sharing(&run.tree, &SharingReadings { members: ids.clone(), read: Vec::new(), sizes_after });
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
    let sample = run.sample(1);
    assert_eq!((sample.verified, sample.now.uncertain), (false, 100 * MIB));
    assert_eq!((run.ram.combined.total, run.ram.descendants.total), (400 * MIB, 0));
}

#[test]
fn largest_process_found_dead_is_known_before_the_sample_counts() {
    let mut run = Run::new(Made::with(400));
    run.start(CHILD);
    run.is(CHILD, Made::with(10));
    run.sample(1);
    assert_eq!((run.sampling.dead_ns(), run.sampling.dead_bytes()), (None, 0));
    run.is(CHILD, Made { is_zombie: true, ..Made::with(0) });
    run.read(1);
    assert_eq!((run.sampling.dead_ns(), run.sampling.dead_bytes()), (Some(3 * S), 10 * MIB));
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
        (run.sampling.take().unwrap().main_cpu_ns, run.tree.counted_cpu_ns())
    };
    assert_eq!(main_cpu_ns(7), (7, 7));
    assert_eq!(main_cpu_ns(12), (5, 12));
}

#[test]
fn another_stack_bottom_shows_an_exec_since_the_last_reading() {
    let mut run = Run::new(Made::with(10));
    let id = run.tree.alive()[0];
    let mut read = |start_stack| {
        run.now_ns += S;
        let state = ReadingState::Alive(Vitals { start_stack, ..Vitals::default() }, None);
        run.sampling.read(&mut run.tree, run.now_ns, &[Reading { id, args: None, state }]);
        (run.sampling.first_read().to_vec(), run.sampling.changed_programs().to_vec())
    };
    assert_eq!(read(0x7000), (vec![(id, 0x7000)], vec![]));
    assert_eq!(read(0), (vec![], vec![]), "unknown");
    assert_eq!(read(0x7000), (vec![], vec![]));
    assert_eq!(read(0x8000), (vec![], vec![ChangedProgram { id, since_ns: 4 * S }]));
}
