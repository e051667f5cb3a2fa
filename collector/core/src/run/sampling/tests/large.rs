//! Processes that are too large to be read by smaps.

use super::*;

/// The units that are wanted at the next sample, as the pids of what is read with what it is read from.
fn wanted(run: &mut Run) -> Vec<Vec<(u32, SharingSource)>> {
    run.broke();
    run.sample(1);
    let wanted = run.sampling.next_unit(&run.tree, Groups::default());
    let units = wanted.into_iter().chain(run.sampling.stale(&run.tree));
    let pid = |target: &SharingTarget| run.tree.get(target.id).unwrap().ids.host_pid.unwrap();
    let mut targets: Vec<Vec<_>> =
        units.map(|unit| unit.order.iter().map(|target| (pid(target), target.source)).collect()).collect();
    targets.dedup();
    targets
}

fn by_pages(mib: u64, with_anonymous: bool) -> SharingSource {
    SharingSource::Pages { bytes: mib * MIB, with_anonymous }
}

// Requirement: RAM-38
#[test]
fn relatives_of_a_large_process_are_read_with_it_page_by_page() {
    let family = |rss, swap| {
        let mut run = Run::new(Made { swap, ..Made::with(rss) });
        run.sample(1);
        run.fork(CHILD, rss);
        // It has unmapped most of what it inherited.
        run.is(CHILD, Made { faults: 30 * 256, ..Made::with(50) });
        wanted(&mut run)
    };
    let main_and_child = |main, child| vec![vec![(MAIN, main), (CHILD, child)]];
    assert_eq!(family(300, 0), main_and_child(by_pages(300, true), by_pages(50, true)));
    assert_eq!(family(100, 300), main_and_child(by_pages(400, true), by_pages(50, true)));
    let small = family(100, 0);
    assert!(
        small
            .iter()
            .flatten()
            .all(|(_, source)| matches!(source, SharingSource::Smaps | SharingSource::Rollup))
    );
    assert_eq!(small.concat().len(), 4, "{small:?}");
}

// Requirement: RAM-38
#[test]
fn pages_of_files_alone_are_read_of_a_large_process_without_relatives() {
    let mut run = Run::new(Made { shared: 60, pss: 455, private: 440, ..Made::with(500) });
    assert_eq!(wanted(&mut run), [[(MAIN, by_pages(60, false))]]);
    // A process without a record may be a copy of its parent.
    let mut run = Run::new(Made::with(10));
    run.found(CHILD);
    run.is(CHILD, Made { shared: 60, ..Made::with(500) });
    assert_eq!(wanted(&mut run)[0], [(MAIN, by_pages(10, true)), (CHILD, by_pages(500, true))]);
}

// Requirement: RAM-38
#[test]
fn relatives_that_could_not_be_read_are_not_tried_again_for_the_same_sample() {
    let mut run = Run::new(Made::with(500));
    run.sample(1);
    run.fork(CHILD, 500);
    run.is(CHILD, Made { faults: 100 * 256, ..Made::with(500) });
    run.read(1);
    run.sampling.peaks(&run.tree, &[]);
    let unit = run.sampling.next_unit(&run.tree, Groups::default()).unwrap();
    let nothing = SharingReadings { members: unit.members, with_files: true, ..Default::default() };
    run.sampling.take_in_sharing(&run.tree, &nothing);
    assert!(run.sampling.next_unit(&run.tree, Groups::default()).is_none());
    assert!(run.sampling.stale(&run.tree).is_empty());
}

// Requirement: RAM-87
#[test]
fn proportional_size_is_unknown_if_the_sharers_of_many_pages_were_not_counted() {
    for (uncounted, proportional) in [(0, Some(455)), (4, Some(455)), (60, None)] {
        let mut run = Run::new(Made { shared: 60, pss: 455, private: 440, ..Made::with(500) });
        let rollup = run.made[&MAIN].rollup();
        run.rollups.insert(MAIN, Rollup { uncounted_bytes: uncounted * MIB, ..rollup });
        run.sample(1);
        let mib = run.ram.proportional_bytes.main.map(|bytes| bytes / MIB);
        assert_eq!((mib, run.ram.max.main.private_bytes), (proportional, Some(440 * MIB)), "{uncounted}");
    }
}

// Requirement: RAM-26
#[test]
fn pages_that_nothing_tells_apart_count_in_the_upper_bound_as_far_as_they_were_copied() {
    for (copied, more) in [(0_u64, 0), (50, 50), (400, 200)] {
        let mut run = Run::new(Made::with(500));
        run.sample(1);
        // Two pairs of children: in between, their parent copies some of its pages.
        let of_five =
            |faults: u64| Made { faults: faults * 256, pss: 100, private: 0, unseen: 200, ..Made::with(500) };
        for (pids, faults) in [([102, 103], 0), ([104, 105], copied)] {
            run.is(MAIN, of_five(faults));
            for pid in pids {
                run.fork(pid, 500);
                run.is(pid, Made { unseen: 0, ..of_five(0) });
            }
            run.sample(1);
        }
        run.sample(1);
        run.sample(1);
        assert_eq!(run.ram.max.combined.footprint_bytes, 500 * MIB);
        let [_, descendants, combined] = run.ram.at_most_bytes.values();
        assert_eq!((descendants, combined), ((500 + more) * MIB, (500 + more) * MIB), "{copied}");
        assert_eq!((run.ram.at_most_bytes.main, run.ram.unseen_bytes), (500 * MIB, more * MIB));
    }
}

// Requirement: RAM-90
#[test]
fn swap_of_the_tree_is_known_from_the_last_reading_of_each_process() {
    let mut run = Run::new(Made { swap: 300, ..Made::with(100) });
    run.sample(1);
    run.fork(CHILD, 10);
    run.is(CHILD, Made { swap: 50, ..Made::with(10) });
    assert_eq!(run.sample(3).swap_bytes, Some(350 * MIB));
    run.is(MAIN, Made { swap: 0, faults: 400 * 256, ..Made::with(400) });
    assert_eq!(run.sample(5).swap_bytes, Some(50 * MIB));
    let peaks = run.ram.swap.unwrap();
    assert_eq!(peaks.peak_bytes, 350 * MIB);
    assert!(peaks.with_ram_peak_bytes >= 450 * MIB, "{peaks:?}");
}
