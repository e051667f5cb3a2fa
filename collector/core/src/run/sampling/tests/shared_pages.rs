//! Random patterns of shared pages. Processes of a tree, and strangers, fork, exec, write, map, free and end. The kernel's
//! figures are computed from the pages that each has mapped. The core must never count more than the distinct pages, and
//! must count what the figures allow once nothing changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::random_seed::seeded;

/// A page here is 1 MiB, so that differences are not negligible.
const FILE_PAGES: u64 = 40;
const FILES: u64 = 3;
/// Of this file it is known which pages a process has.
const DIVIDED: u64 = 1;

/// What happens between two samples; the numbers choose a process, pages and a file.
#[derive(Debug, Clone)]
enum Step {
    Fork(usize),
    Exec(usize),
    End(usize),
    Allocate(usize, u64),
    Write(usize, usize),
    Free(usize, usize),
    Touch(usize, u64, u64, u64),
    StrangerTouches(u64, u64, u64),
    /// There is no time to read how memory is shared.
    Busy(bool),
    Sample,
}

#[derive(Debug, Clone, Default)]
struct Pages {
    anonymous: BTreeSet<u64>,
    files: BTreeSet<(u64, u64)>,
    faults: u64,
}

impl Pages {
    fn count(&self) -> u64 {
        (self.anonymous.len() + self.files.len()) as u64
    }

    fn pages_of(&self, file: u64) -> impl Iterator<Item = u64> {
        self.files.iter().filter(move |page| page.0 == file).map(|page| page.1)
    }

    /// The pages that follow each other.
    fn pieces_of(&self, file: u64) -> Vec<Range<u64>> {
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for page in self.pages_of(file) {
            match pieces.last_mut().filter(|last| last.end == page) {
                Some(last) => last.end += 1,
                None => pieces.push(page..page + 1),
            }
        }
        pieces
    }
}

struct World {
    run: Run,
    processes: BTreeMap<u32, Pages>,
    stranger: BTreeSet<(u64, u64)>,
    next_page: u64,
    next_pid: u32,
}

impl World {
    fn new() -> Self {
        let mut processes = BTreeMap::new();
        let pages = Pages { anonymous: (0..10).collect(), ..Pages::default() };
        processes.insert(MAIN, pages);
        let run = Run::new(Made::with(10));
        Self { run, processes, stranger: BTreeSet::new(), next_page: 10, next_pid: CHILD }
    }

    fn pid(&self, number: usize) -> u32 {
        *self.processes.keys().nth(number % self.processes.len()).unwrap()
    }

    fn new_page(&mut self) -> u64 {
        self.next_page += 1;
        self.next_page
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Fork(process) => {
                let (parent, pid) = (self.pid(process), self.next_pid);
                if self.processes.len() >= 6 {
                    return;
                }
                self.next_pid += 1;
                let pages = self.processes[&parent].clone();
                self.run.forked_by(parent, pid, pages.count());
                // Pages of files come with the child's own faults.
                let pages = Pages { files: BTreeSet::new(), faults: 0, ..pages };
                self.processes.insert(pid, pages);
            }
            Step::Exec(process) => {
                let pid = self.pid(process);
                self.run.start(pid);
                let faults = self.processes[&pid].faults + 1;
                let anonymous = BTreeSet::from([self.new_page()]);
                self.processes.insert(pid, Pages { anonymous, faults, ..Pages::default() });
            }
            Step::End(process) => {
                let pid = self.pid(process);
                if pid != MAIN {
                    self.processes.remove(&pid);
                    self.run.is(pid, Made { is_zombie: true, ..Made::with(0) });
                }
            }
            Step::Allocate(process, count) => {
                let pid = self.pid(process);
                for _ in 0..count {
                    let page = self.new_page();
                    let pages = self.processes.get_mut(&pid).unwrap();
                    pages.anonymous.insert(page);
                    pages.faults += 1;
                }
            }
            Step::Write(process, count) => {
                let pid = self.pid(process);
                let written: Vec<u64> = self.processes[&pid].anonymous.iter().copied().take(count).collect();
                for page in written {
                    let is_shared =
                        self.processes.values().filter(|process| process.anonymous.contains(&page)).count()
                            > 1;
                    if is_shared {
                        let copy = self.new_page();
                        let pages = self.processes.get_mut(&pid).unwrap();
                        pages.anonymous.remove(&page);
                        pages.anonymous.insert(copy);
                        pages.faults += 1;
                    }
                }
            }
            Step::Free(process, count) => {
                let pid = self.pid(process);
                let pages = self.processes.get_mut(&pid).unwrap();
                for page in pages.anonymous.iter().copied().take(count).collect::<Vec<_>>() {
                    pages.anonymous.remove(&page);
                }
            }
            Step::Touch(process, file, from, count) => {
                let pid = self.pid(process);
                let pages = self.processes.get_mut(&pid).unwrap();
                for page in from..(from + count).min(FILE_PAGES) {
                    pages.faults += u64::from(pages.files.insert((file, page)));
                }
            }
            Step::StrangerTouches(file, from, count) => {
                self.stranger.extend((from..(from + count).min(FILE_PAGES)).map(|page| (file, page)));
            }
            Step::Busy(is_busy) => self.run.is_broke = is_busy,
            Step::Sample => {
                self.sample();
            }
        }
    }

    /// The kernel's figures of a process.
    fn show(&mut self, pid: u32) {
        let users_of_anonymous =
            |page: &u64| self.processes.values().filter(|process| process.anonymous.contains(page)).count();
        let users_of_file = |page: &(u64, u64)| {
            let of_tree = self.processes.values().filter(|process| process.files.contains(page)).count();
            of_tree + usize::from(self.stranger.contains(page))
        };
        let own = &self.processes[&pid];
        let bytes = |pages: f64| (pages * MIB as f64) as u64;
        let pss_anon: f64 = own.anonymous.iter().map(|page| 1.0 / users_of_anonymous(page) as f64).sum();
        let pss_file = |file: u64| -> f64 {
            own.files.iter().filter(|page| page.0 == file).map(|page| 1.0 / users_of_file(page) as f64).sum()
        };
        let pss_files: f64 = (0..FILES).map(pss_file).sum();
        let private_anon = own.anonymous.iter().filter(|page| users_of_anonymous(page) == 1).count() as u64;
        let private_files = own.files.iter().filter(|page| users_of_file(page) == 1).count() as u64;
        let mapping = |file: u64, pages: Range<u64>, rss: u64| FileMapping {
            file: (1, file + 1),
            start: pages.start * MIB,
            end: pages.end * MIB,
            rss_bytes: rss * MIB,
            pss_bytes: bytes(pss_file(file) * rss as f64 / own.pages_of(file).count() as f64),
        };
        let mapped = |file: u64| match file {
            DIVIDED => own
                .pieces_of(file)
                .into_iter()
                .map(|piece| mapping(file, piece.clone(), piece.end - piece.start))
                .collect(),
            _ => vec![mapping(file, 0..FILE_PAGES, own.pages_of(file).count() as u64)],
        };
        let files = (0..FILES).flat_map(mapped).filter(|mapping| mapping.rss_bytes > 0).collect();
        let mappings = Mappings { files, private_anon_bytes: private_anon * MIB, ..Mappings::default() };
        let rollup = Rollup {
            rss_bytes: own.count() * MIB,
            pss_bytes: bytes(pss_anon + pss_files),
            pss_anon_bytes: bytes(pss_anon),
            private_bytes: (private_anon + private_files) * MIB,
            anonymous_bytes: (own.count() - own.files.len() as u64) * MIB,
            ..Rollup::default()
        };
        let made =
            Made { shared: own.files.len() as u64, faults: own.faults * 256, ..Made::with(own.count()) };
        self.run.is(pid, made);
        self.run.rollups.insert(pid, rollup);
        self.run.mappings.insert(pid, mappings);
    }

    fn sample(&mut self) -> Sample {
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.show(pid);
        }
        let sample = self.run.sample(1);
        // Processes that were found dead end when all records of them are there.
        self.run.finalize();
        let now = &sample.now;
        // What is too little to be read again can be too much, too.
        let assumed = self.assumed() + MIB / 4;
        let [main, descendants, combined] = self.footprints();
        assert_eq!(now.main.footprint_bytes, main, "main is its RSS");
        assert!(now.footprint_bytes <= combined + assumed, "{now:?}, but {combined} at most");
        assert!(
            now.descendants.footprint_bytes <= descendants + assumed,
            "{now:?}, but {descendants} at most"
        );
        assert!(
            main <= now.footprint_bytes && now.footprint_bytes <= main + now.descendants.footprint_bytes,
            "{now:?}"
        );
        assert!(now.main.proportional_bytes + now.descendants.proportional_bytes <= 2 * combined, "{now:?}");
        for max in [&self.run.ram.max.main, &self.run.ram.max.descendants, &self.run.ram.max.combined] {
            assert!(
                max.private_bytes <= Some(max.footprint_bytes)
                    && max.shared_bytes <= Some(max.footprint_bytes),
                "{max:?}"
            );
        }
        sample
    }

    /// File pages of processes whose mappings were not read: they are taken to be those of others of their name, bytes.
    fn assumed(&self) -> u64 {
        let bytes = |reading: &LastReading| if reading.files.is_none() { reading.file_bytes() } else { 0 };
        self.run.sampling.readings.values().map(bytes).sum()
    }

    /// Distinct pages of the first process, the others and all, bytes.
    fn footprints(&self) -> [u64; 3] {
        let sum = |is_counted: fn(u32) -> bool| {
            let counted =
                || self.processes.iter().filter(|(pid, _)| is_counted(**pid)).map(|(_, pages)| pages);
            let anonymous: BTreeSet<u64> =
                counted().flat_map(|pages| pages.anonymous.iter().copied()).collect();
            let files: BTreeSet<(u64, u64)> =
                counted().flat_map(|pages| pages.files.iter().copied()).collect();
            (anonymous.len() + files.len()) as u64 * MIB
        };
        [sum(|pid| pid == MAIN), sum(|pid| pid != MAIN), sum(|_| true)]
    }

    /// What can be known of them. Of each file: the larger of the largest RSS and the sum of the PSS. Of the divided one:
    /// the pages.
    fn knowable(&self) -> [u64; 2] {
        let sum = |is_counted: fn(u32) -> bool| {
            let pids = || self.processes.keys().copied().filter(|pid| is_counted(*pid));
            let anonymous: BTreeSet<u64> =
                pids().flat_map(|pid| self.processes[&pid].anonymous.iter().copied()).collect();
            let of_file = |file: u64| {
                if file == DIVIDED {
                    let pages: BTreeSet<u64> =
                        pids().flat_map(|pid| self.processes[&pid].pages_of(file)).collect();
                    return pages.len() as u64 * MIB;
                }
                let of_process =
                    |pid: u32| self.run.mappings[&pid].files.iter().find(|one| one.file.1 == file + 1);
                let mapped: Vec<_> = pids().filter_map(of_process).collect();
                let largest = mapped.iter().map(|one| one.rss_bytes).max().unwrap_or(0);
                largest.max(mapped.iter().map(|one| one.pss_bytes).sum())
            };
            anonymous.len() as u64 * MIB + (0..FILES).map(of_file).sum::<u64>()
        };
        [sum(|pid| pid != MAIN), sum(|_| true)]
    }
}

fn step() -> impl Strategy<Value = Step> {
    let (process, file) = (0..6_usize, 0..FILES);
    prop_oneof![
        3 => process.clone().prop_map(Step::Fork),
        1 => process.clone().prop_map(Step::Exec),
        2 => process.clone().prop_map(Step::End),
        3 => (process.clone(), 1..30_u64).prop_map(|(process, count)| Step::Allocate(process, count)),
        3 => (process.clone(), 1..20_usize).prop_map(|(process, count)| Step::Write(process, count)),
        1 => (process.clone(), 1..20_usize).prop_map(|(process, count)| Step::Free(process, count)),
        4 => (process, file.clone(), 0..FILE_PAGES, 1..20_u64)
            .prop_map(|(process, file, from, count)| Step::Touch(process, file, from, count)),
        1 => (file, 0..FILE_PAGES, 1..20_u64).prop_map(|(file, from, count)| Step::StrangerTouches(file, from, count)),
        1 => any::<bool>().prop_map(Step::Busy),
        6 => Just(Step::Sample),
    ]
}

proptest! {
    #![proptest_config(seeded())]

    // Requirement: RAM-3, RAM-22, RAM-58
    #[test]
    fn footprint_is_what_the_kernels_figures_allow(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.apply(step));
        // Nothing changes any more, and all of it is read: once after the last change.
        (world.run.is_broke, world.run.reads_all) = (false, true);
        world.sample();
        world.sample();
        let now = world.sample().now;
        let [descendants, combined] = world.knowable();
        let rounding = MIB / 16;
        prop_assert!(now.footprint_bytes + rounding >= combined, "{:?}, not {}", now, combined);
        prop_assert!(now.descendants.footprint_bytes + rounding >= descendants, "{:?}, not {}", now, descendants);
    }
}

/// The first process is read once. A descendant is read again for its files after it copied a page: by then the old page is
/// the first process's alone.
// Requirement: RAM-3
#[test]
fn copied_page_is_not_counted_by_an_older_reading_of_its_other_owner() {
    let mut world = World::new();
    let copy_and_map = [
        Step::Fork(0),
        Step::Fork(0),
        Step::Write(1, 1),
        Step::Touch(2, 0, 0, 8),
        Step::Sample,
        Step::Write(2, 1),
        Step::Touch(1, 0, 1, 8),
    ];
    copy_and_map.iter().for_each(|step| world.apply(step));
    let [_, descendants, combined] = world.footprints();
    assert_eq!((descendants, combined), (20 * MIB, 21 * MIB));
    let footprints = |now: TreeSums| (now.descendants.footprint_bytes, now.footprint_bytes);
    let samples: Vec<_> = (0..4).map(|_| footprints(world.sample().now)).collect();
    assert!(samples.iter().all(|(of_descendants, _)| *of_descendants <= descendants), "{samples:?}");
    // The first process is read again, and the page found.
    assert_eq!(samples.last(), Some(&(descendants, combined)), "{samples:?}");
}
