//! What counts of memory that several processes may share.

use super::*;

// Requirement: RAM-3
#[test]
fn one_process_counts_its_rss_without_any_reading() {
    let mut run = Run::new(Made { shared: 60, pss: 55, private: 40, ..Made::with(100) });
    run.broke();
    assert_eq!(run.sample(1).now.footprint_bytes, 100 * MIB);
    assert_eq!(run.ram.max.combined.footprint_bytes, 100 * MIB);
}

// Requirement: RAM-3
#[test]
fn pages_of_a_file_count_once_whoever_else_maps_them() {
    // Strangers have mapped the same pages, so the proportional sizes are small.
    let shared = |file| Made { shared: 100, pss: 20, private: 0, file, ..Made::with(100) };
    for (file, combined) in [((1, 0), 100), ((2, 0), 200), ((1, 100), 200), ((1, 50), 150)] {
        let mut run = Run::new(shared((1, 0)));
        run.start(CHILD);
        run.is(CHILD, shared(file));
        let sample = run.sample(1);
        assert_eq!(
            (sample.now.main.footprint_bytes, sample.now.descendants.footprint_bytes),
            (100 * MIB, 100 * MIB)
        );
        assert_eq!(sample.now.footprint_bytes, combined * MIB, "{file:?}");
    }
}

// Requirement: RAM-23
#[test]
fn sharing_is_read_again_after_a_fork_child_came_and_went_between_two_samples() {
    const SHORT: u32 = 103;
    let mut run = Run::new(Made { pss: 75, private: 50, ..Made::with(100) });
    run.fork(CHILD, 100);
    run.is(CHILD, Made { pss: 75, private: 50, ..Made::with(100) });
    let private_mib = |sample: &Sample| sample.holders[0].contribution.private_bytes / MIB;
    run.sample(1);
    assert_eq!(private_mib(&run.sample(1)), 50);
    // Neither of the two has touched memory, but the kernel's figures are others.
    for pid in [MAIN, CHILD] {
        run.is(pid, Made { pss: 65, private: 30, ..Made::with(100) });
    }
    assert_eq!(private_mib(&run.sample(1)), 50, "nothing tells that they are");
    run.fork(SHORT, 100);
    run.record(
        SHORT,
        Event::Exit { status: 0, vm_hwm_kib: 0, own: Usage::default(), children: Usage::default() },
    );
    run.finalize();
    assert_eq!(private_mib(&run.sample(1)), 30);
}

// Requirement: RAM-3
#[test]
fn growth_seen_by_a_sample_that_was_put_off_counts_in_the_next_one() {
    let mut run = Run::new(Made::with(100));
    run.sample(1);
    run.is(MAIN, Made { faults: 200 * 256, ..Made::with(300) });
    // So soon after the last time, no peak is read.
    run.read(0);
    assert_eq!(run.sample(0).now.footprint_bytes, 300 * MIB);
}

// Requirement: RAM-3
#[test]
fn copies_made_before_a_sample_that_was_put_off_are_uncertain() {
    let mut run = Run::new(Made::with(400));
    run.broke();
    run.sample(1);
    run.fork(CHILD, 400);
    run.is(CHILD, Made::with(400));
    run.is(MAIN, Made { faults: 100 * 256, ..Made::with(400) });
    run.read(0);
    run.sample(0);
    assert!(run.sampling.next_unit(&run.tree, Groups::default()).is_some());
}

// Requirement: RAM-3
#[test]
fn vfork_child_that_has_its_own_memory_counts_though_nothing_else_changed() {
    let mut run = Run::new(Made::with(400));
    let id = run.found(CHILD);
    run.tree.set_unreported_image(id, UnreportedMemory::Parents, run.now_ns);
    run.is(CHILD, Made::with(50));
    assert_eq!(run.sample(1).now.footprint_bytes, 400 * MIB);
    run.tree.set_unreported_image(id, UnreportedMemory::Copy, run.now_ns);
    assert_eq!(run.sample(1).now.footprint_bytes, 450 * MIB);
}

// Requirement: RAM-3
#[test]
fn copies_made_before_sharing_was_read_do_not_count_again() {
    let mut run = Run::new(Made::with(400));
    let main = run.tree.alive()[0];
    run.sample(1);
    run.fork(CHILD, 400);
    run.is(CHILD, Made::with(400));
    run.is(MAIN, Made { faults: 100 * 256, ..Made::with(400) });
    run.sample(1);
    run.sample(1);
    assert!(run.sampling.readings[&main].touched_before_relatives.is_none());
}

// Requirement: RAM-3
#[test]
fn last_process_of_an_uninstrumented_family_has_all_of_its_memory() {
    let shared = Made { pss: 200, private: 0, ..Made::with(400) };
    let mut run = Run::new(shared);
    run.found(CHILD);
    run.is(CHILD, shared);
    run.sample(1);
    run.is(MAIN, Made { is_zombie: true, ..shared });
    run.is(CHILD, Made::with(400));
    run.sample(1);
    run.finalize();
    assert_eq!(run.sample(1).now.descendants.footprint_bytes, 400 * MIB);
}

// Requirement: RAM-23
#[test]
fn sharing_that_could_not_be_read_is_read_of_the_next_program() {
    let mut run = Run::new(Made { shared: 60, pss: 55, private: 40, ..Made::with(100) });
    let main = run.tree.alive()[0];
    run.read(1);
    let denied = SharingReadings {
        members: vec![main],
        read: vec![(main, SharingReading::Denied)],
        ..Default::default()
    };
    run.sampling.take_in_sharing(&run.tree, &denied);
    run.conclude();
    run.now_ns += S;
    run.start(MAIN);
    run.sample(1);
    assert_eq!(run.ram.max.main.private_bytes, Some(40 * MIB));
}

/// Processes that are not dumpable, or another user's.
// Requirement: RAM-64
#[test]
fn relatives_whose_sharing_only_root_may_read_have_a_bound() {
    let mut run = Run::new(Made::with(200));
    run.fork(CHILD, 200);
    // Each fault can be a page that it copied, or read in again.
    run.is(CHILD, Made { faults: 200 * 256, ..Made::with(200) });
    run.broke();
    run.sample(1);
    let members = run.tree.alive().to_vec();
    let read = members.iter().map(|id| (*id, SharingReading::Denied)).collect();
    run.sampling.take_in_sharing(&run.tree, &SharingReadings { members, read, ..Default::default() });
    run.sample(1);
    assert_eq!(run.ram.max.combined.footprint_bytes, 200 * MIB);
    let [main, descendants, combined] = run.ram.at_most_bytes.values();
    assert_eq!((main, descendants, combined), (200 * MIB, 400 * MIB, 400 * MIB));
    assert_eq!(run.ram.unseen_bytes, 200 * MIB);
}

/// A busy machine leaves no time to read it. The older child has the pages from before, the younger one the copies.
// Requirement: RAM-89
#[test]
fn what_a_parent_copied_between_two_forks_is_a_bound_until_it_is_read() {
    const YOUNGER: u32 = 103;
    let mut run = Run::new(Made::with(200));
    run.broke();
    run.sample(1);
    run.fork(CHILD, 200);
    run.is(CHILD, Made::with(200));
    run.sample(1);
    run.is(MAIN, Made { faults: 100 * 256, ..Made::with(200) });
    run.fork(YOUNGER, 200);
    run.is(YOUNGER, Made::with(200));
    run.sample(1);
    run.sample(1);
    let most = run.ram.max.map(|max| max.footprint_bytes / MIB).values();
    assert_eq!(most, [200, 200, 200]);
    assert_eq!(run.ram.at_most_bytes.map(|bytes| bytes / MIB).values(), [200, 300, 300]);
    assert_eq!(run.ram.unseen_bytes, 100 * MIB);
    // Nothing has changed, and there is time again.
    run.is_broke = false;
    for pid in [MAIN, CHILD, YOUNGER] {
        let made = run.made[&pid];
        let pss = if pid == CHILD { 150 } else { 75 };
        run.is(pid, Made { pss, private: if pid == CHILD { 100 } else { 0 }, ..made });
    }
    run.sample(1);
    assert_eq!(run.ram.max.combined.footprint_bytes / MIB, 300);
    assert_eq!(run.ram.max.descendants.footprint_bytes / MIB, 300);
}

// Requirement: RAM-23
#[test]
fn private_part_that_was_not_read_is_unknown() {
    let mut run = Run::new(Made { shared: 60, pss: 55, private: 40, ..Made::with(100) });
    run.broke();
    run.sample(1);
    let unknown = MaxFootprint { footprint_bytes: 100 * MIB, private_bytes: None, shared_bytes: None };
    assert_eq!((run.ram.max.main, run.ram.max.combined), (unknown, unknown));
    run.is_broke = false;
    run.sample(1);
    let known = MaxFootprint {
        footprint_bytes: 100 * MIB,
        private_bytes: Some(40 * MIB),
        shared_bytes: Some(60 * MIB),
    };
    assert_eq!((run.ram.max.main, run.ram.max.combined), (known, known));
    // A fork child's untouched pages are its parent's, too.
    for (faults, private) in [(256, Some(0)), (20 * 256, None)] {
        let mut run = Run::new(Made::with(100));
        run.fork(CHILD, 100);
        run.is(CHILD, Made { faults, ..Made::with(100) });
        run.broke();
        run.sample(1);
        assert_eq!(run.ram.max.descendants.private_bytes, private, "{faults} faults");
    }
}

/// A busy machine can stop the collector between two readings: what it read by then was small, and the rest is dead.
// Requirement: RAM-27
#[test]
fn memory_of_a_process_that_a_sample_finds_dead_late_counts_until_its_end() {
    const OTHER: u32 = 103;
    let mut run = Run::new(Made::with(10));
    for child in [CHILD, OTHER] {
        run.start(child);
        run.is(child, Made::with(10));
    }
    run.sample(1);
    run.dead_after_ns = S / 2;
    run.is(OTHER, Made { is_zombie: true, ..Made::with(0) });
    run.read(1);
    run.now_ns += S / 4;
    let own = Usage { minor_faults: 200 * 256, max_rss_kib: 200 * 1024, ..Usage::default() };
    let exit = Event::Exit { status: 0, vm_hwm_kib: 200 * 1024, own, children: Usage::default() };
    run.record(OTHER, exit);
    run.finalize();
    run.conclude();
    run.record(CHILD, exit);
    run.finalize();
    run.sample(1);
    assert_eq!(run.ram.max.descendants.footprint_bytes, 400 * MIB);
}

// Requirement: RAM-3
#[test]
fn pages_of_a_process_that_a_sample_finds_dead_count_once() {
    const OTHER: u32 = 103;
    let mut run = Run::new(Made::with(10));
    for child in [CHILD, OTHER] {
        run.fork(child, 200);
        run.is(child, Made::with(200));
    }
    run.broke();
    assert_eq!(run.sample(1).now.descendants.footprint_bytes, 200 * MIB, "all of it is shared");
    // The other one counts for both from that sample on, and the zombie is seen while that is taken.
    run.dead_after_ns = S / 100;
    run.is(CHILD, Made { is_zombie: true, ..Made::with(0) });
    run.read(1);
    run.finalize();
    assert_eq!(run.conclude().now.descendants.footprint_bytes, 200 * MIB);
    run.sample(1);
    assert_eq!(run.ram.max.descendants.footprint_bytes, 200 * MIB);
}

#[test]
fn proportional_size_that_was_not_read_is_unknown() {
    let mut run = Run::new(Made { shared: 60, pss: 55, private: 40, ..Made::with(100) });
    run.broke();
    run.sample(1);
    assert_eq!(run.ram.proportional_bytes.combined, None);
    run.is_broke = false;
    run.sample(1);
    assert_eq!(
        (run.ram.proportional_bytes.main, run.ram.proportional_bytes.combined),
        (Some(55 * MIB), Some(55 * MIB))
    );
    assert_eq!(run.ram.proportional_bytes.descendants, None, "there are none");
}

#[test]
fn pages_that_were_mapped_while_smaps_was_read_are_read_again() {
    // So many strangers map these files that proportional sizes tell nothing.
    let mapped = |mib| Made { shared: mib, pss: 0, private: 0, ..Made::with(mib) };
    let library = mapped(20);
    let mut run = Run::new(library);
    run.start(CHILD);
    run.is(CHILD, mapped(50));
    run.read(1);
    // smaps still has the library alone; statm, which is read after it, has a second file.
    let file = |inode, mib| FileMapping {
        file: (1, inode),
        start: 0,
        end: mib * MIB,
        rss_bytes: mib * MIB,
        pss_bytes: 0,
    };
    let mappings = |files| Mappings { files, ..Mappings::default() };
    run.rollups.insert(MAIN, library.rollup());
    run.mappings.insert(MAIN, mappings(vec![file(1, 20)]));
    run.is(MAIN, mapped(30));
    assert_eq!(run.conclude().now.footprint_bytes, 50 * MIB);
    run.rollups.clear();
    run.mappings.insert(MAIN, mappings(vec![file(1, 20), file(2, 10)]));
    assert_eq!(run.sample(1).now.footprint_bytes, 60 * MIB);
}

#[test]
fn private_memory_of_a_small_first_process_is_read_beside_a_large_one() {
    let mut run = Run::new(Made { shared: 2, private: 1, pss: 1, ..Made::with(2) });
    run.start(CHILD);
    run.is(CHILD, Made::with(1000));
    run.sample(1);
    assert_eq!((run.ram.max.main.private_bytes, run.ram.max.main.shared_bytes), (Some(MIB), Some(MIB)));
}

#[test]
fn parts_that_several_processes_touched_of_one_mapping_add_up() {
    // Each has touched other pages of the same mapping, and no stranger has any.
    let part = Made { shared: 100, pss: 100, private: 100, absent: 100, ..Made::with(100) };
    let mut run = Run::new(part);
    run.start(CHILD);
    run.is(CHILD, part);
    assert_eq!(
        run.sample(1).now.footprint_bytes,
        100 * MIB,
        "the others may have been there before it was read"
    );
    assert_eq!(run.sample(1).now.footprint_bytes, 200 * MIB);
    // Now both have the same pages: what was read before is too much.
    let same = Made { pss: 75, private: 50, shared: 150, ..Made::with(150) };
    run.is(MAIN, same);
    run.is(CHILD, same);
    run.sample(1);
    assert_eq!(run.sample(1).now.footprint_bytes, 150 * MIB);
}

#[test]
fn programs_of_one_name_are_read_once() {
    let program = Made { shared: 10, pss: 10, private: 10, ..Made::with(11) };
    let mut run = Run::new(Made::with(1));
    for pid in CHILD..CHILD + 50 {
        run.start(pid);
        run.is(pid, program);
    }
    let sample = run.sample(1);
    assert_eq!(sample.now.footprint_bytes, (1 + 10 + 50) * MIB);
    assert_eq!(run.sampling.readings.values().filter(|reading| reading.files.is_some()).count(), 1);
}

#[test]
fn without_any_reading_files_count_as_those_of_the_largest_process() {
    let mut run = Run::new(Made { shared: 40, ..Made::with(41) });
    run.start(CHILD);
    run.is(CHILD, Made { shared: 60, file: (2, 0), ..Made::with(61) });
    run.broke();
    let sample = run.sample(1);
    assert_eq!(
        (sample.now.main.footprint_bytes, sample.now.descendants.footprint_bytes),
        (41 * MIB, 61 * MIB)
    );
    assert_eq!(sample.now.footprint_bytes, 62 * MIB);
}

#[test]
fn unread_fork_child_adds_its_growth() {
    let mut run = Run::new(Made::with(400));
    run.sample(1);
    run.fork(CHILD, 400);
    run.is(CHILD, Made { faults: 256, ..Made::with(400) });
    run.broke();
    let sample = run.sample(1);
    assert_eq!((sample.now.footprint_bytes, sample.now.descendants.footprint_bytes), (400 * MIB, 400 * MIB));
    // Its growth is certain; a page that it touched may still be its parent's.
    run.is(CHILD, Made { faults: 256, ..Made::with(450) });
    let sample = run.sample(1);
    assert_eq!((sample.now.footprint_bytes, sample.now.descendants.footprint_bytes), (450 * MIB, 450 * MIB));
    assert_eq!(sample.now.descendants.private_bytes, 50 * MIB);
}

// Requirement: RAM-3
#[test]
fn fork_relatives_count_the_pages_that_any_of_them_has() {
    let mut run = Run::new(Made { pss: 200, private: 0, ..Made::with(400) });
    run.fork(CHILD, 400);
    run.is(CHILD, Made { pss: 230, private: 30, faults: 51_200, ..Made::with(430) });
    let sample = run.sample(1);
    assert_eq!(
        (sample.now.main.footprint_bytes, sample.now.descendants.footprint_bytes, sample.now.footprint_bytes),
        (400 * MIB, 430 * MIB, 430 * MIB)
    );
    assert_eq!(sample.now.descendants.private_bytes, 30 * MIB);
    // Carried forward with statm, without another reading.
    run.broke();
    run.is(CHILD, Made { faults: 51_200, ..Made::with(440) });
    let sample = run.sample(1);
    assert_eq!((sample.now.descendants.footprint_bytes, sample.now.footprint_bytes), (440 * MIB, 440 * MIB));
    // A new member: what the first child had alone, it has in any case.
    run.fork(CHILD + 1, 440);
    run.is(CHILD + 1, Made::with(440));
    let sample = run.sample(1);
    assert_eq!((sample.now.main.footprint_bytes, sample.now.footprint_bytes), (400 * MIB, 440 * MIB));
}

#[test]
fn what_the_first_process_has_alone_is_not_the_descendants() {
    // Of its 400 MiB, its child has unmapped 100.
    let mut run = Run::new(Made { pss: 250, private: 100, ..Made::with(400) });
    run.fork(CHILD, 400);
    run.is(CHILD, Made { pss: 170, private: 20, faults: 51_200, ..Made::with(320) });
    let sample = run.sample(1);
    assert_eq!(
        (sample.now.main.footprint_bytes, sample.now.descendants.footprint_bytes, sample.now.footprint_bytes),
        (400 * MIB, 320 * MIB, 420 * MIB)
    );
}

// Requirement: RAM-6
#[test]
fn vfork_child_counts_nothing() {
    let mut run = Run::new(Made::with(400));
    let id = run.found(CHILD);
    run.tree.set_unreported_image(id, UnreportedMemory::Parents, run.now_ns);
    run.is(CHILD, Made::with(400));
    let sample = run.sample(1);
    assert_eq!((sample.now.footprint_bytes, sample.now.processes), (400 * MIB, 2));
    assert_eq!(sample.now.descendants.unread_private_bytes, 0, "there is nothing to read");
    run.tree.set_unreported_image(id, UnreportedMemory::Own, run.now_ns);
    run.is(CHILD, Made::with(3));
    assert_eq!(run.sample(1).now.footprint_bytes, 403 * MIB);
}
