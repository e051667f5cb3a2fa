//! RAM and CPU over time as examples: hand-made windows and their expected sums.

use std::sync::Arc;

use super::{CpuUsage, RamUsage, Totals};
use crate::model::groups::Groups;
use crate::model::report::{CommandHolders, OtherHolders};
use crate::run::sampling::sums::{Sums, TreeSums};
use crate::run::sampling::{Held, Sample};
use crate::run::tree::{ChildSeen, Contribution, Key, LiveInterval, ProcessId, RunContext, TaskId, Tree};

const S: u64 = 1_000_000_000;
const MB: u64 = 1_000_000;
const MAIN: u32 = 101;

fn tree() -> Tree {
    let frame = RunContext::of_test(100, 1, 0);
    let mut tree = Tree::new(frame);
    tree.set_main(MAIN, 0, "main");
    tree
}

fn main_id(tree: &Tree) -> ProcessId {
    tree.alive()[0]
}

/// A window of ten seconds.
fn window() -> Sample {
    Sample { from_ns: 10 * S, at_ns: 20 * S, ..Sample::default() }
}

fn footprint(megabytes: u64) -> Sums {
    Sums { footprint_bytes: megabytes * MB, ..Sums::default() }
}

/// Footprints in megabytes, and how many processes there are.
fn tree_sums(main: u64, descendants: u64, combined: u64, processes: u64) -> TreeSums {
    let (main, descendants) = (footprint(main), footprint(descendants));
    TreeSums { main, descendants, footprint_bytes: combined * MB, processes }
}

fn held(id: ProcessId, bytes: u64) -> Held {
    let contribution = Contribution::private(bytes);
    Held { id, rss_bytes: bytes, contribution, steady_bytes: Some(bytes), unread_bytes: 0, cpu_ns: 0 }
}

/// The memory of a descendant that was there from one second to another.
fn memory(from_s: u64, to_s: u64, megabytes: u64) -> LiveInterval {
    LiveInterval {
        is_process: false,
        is_end_rough: false,
        is_main: false,
        id: ProcessId(1000 + from_s),
        pid: 200 + from_s as u32,
        command: Arc::from("child"),
        task: TaskId::WORKFLOW,
        start_ns: from_s * S,
        likely_start_ns: from_s * S,
        end_ns: to_s * S,
        memory: Contribution::private(megabytes * MB),
        unread_bytes: Some(0),
        rss_bytes: megabytes * MB,
        counted_at_ns: from_s * S,
        cpu_ns: 0,
        threads: 1,
    }
}

/// A descendant: itself, and its memory.
fn child(from_s: u64, to_s: u64, megabytes: u64) -> [LiveInterval; 2] {
    let memory = memory(from_s, to_s, megabytes);
    [LiveInterval { is_process: true, memory: Contribution::default(), ..memory.clone() }, memory]
}

fn added(sample: &Sample) -> RamUsage {
    let mut ram = RamUsage::default();
    ram.add(&tree(), &mut sample.clone());
    ram
}

fn lives<const N: usize>(intervals: [[LiveInterval; 2]; N]) -> Sample {
    Sample { intervals: intervals.into_iter().flatten().collect(), ..window() }
}

// Requirement: RAM-1
#[test]
fn children_one_after_another_never_add_up() {
    let ram = added(&lives([child(11, 13, 200), child(13, 15, 200), child(16, 17, 200)]));
    assert_eq!(
        (ram.max.descendants.footprint_bytes, ram.max_processes),
        (200 * MB, 1),
        "an end at a start comes first"
    );
    assert_eq!(ram.peak.unwrap().at_ns, 11 * S);
}

// Requirement: RAM-1
#[test]
fn overlapping_children_add_up() {
    let ram = added(&lives([child(11, 15, 200), child(12, 13, 300), child(14, 16, 50)]));
    assert_eq!(
        (ram.max.descendants.footprint_bytes, ram.max_processes, ram.threads.descendants),
        (500 * MB, 2, 2)
    );
    let peak = ram.peak.unwrap();
    assert_eq!((peak.at_ns, peak.footprint_bytes, peak.holders.largest.len()), (12 * S, 500 * MB, 2));
    assert_eq!(peak.holders.largest[0].rss_bytes, 300 * MB);
}

#[test]
fn ended_process_does_not_overlap_a_later_one() {
    // One lived long before the window, one still lives.
    let ram = added(&lives([child(1, 12, 200), child(13, 20, 300)]));
    assert_eq!((ram.max.descendants.footprint_bytes, ram.max_processes), (300 * MB, 1));
    let ram = added(&lives([child(1, 14, 200), child(13, 20, 300)]));
    assert_eq!((ram.max.descendants.footprint_bytes, ram.max_processes), (500 * MB, 2));
}

#[test]
fn interval_without_length_counts_for_a_moment() {
    let ram = added(&lives([child(15, 15, 70)]));
    assert_eq!((ram.max.descendants.footprint_bytes, ram.max_processes), (70 * MB, 1));
}

#[test]
fn intervals_add_to_the_steady_processes() {
    let mut sample = lives([child(12, 13, 200)]);
    let main = Sums { private_bytes: 300 * MB, threads: 3, ..footprint(400) };
    sample.steady = TreeSums { main, ..tree_sums(400, 0, 400, 1) };
    let main = Sums { private_bytes: 350 * MB, threads: 3, ..footprint(450) };
    sample.now = TreeSums { main, ..tree_sums(450, 0, 450, 1) };
    let ram = added(&sample);
    assert_eq!(
        (ram.max.main.footprint_bytes, ram.max.combined.footprint_bytes, ram.max_processes),
        (450 * MB, 600 * MB, 2)
    );
    assert_eq!((ram.threads.combined, ram.threads.main), (4, 3));
    assert_eq!(ram.max.combined.shared_bytes, Some(100 * MB));
}

// Requirement: RAM-23
#[test]
fn memory_that_no_sample_saw_has_no_known_private_part() {
    let lives_with = |unread_bytes| {
        let life = LiveInterval { unread_bytes, ..memory(11, 13, 200) };
        Sample { intervals: vec![life], ..window() }
    };
    let descendants = |sample| added(&sample).max.descendants;
    let private_of =
        |unread_bytes| descendants(lives_with(unread_bytes)).private_bytes.map(|bytes| bytes / MB);
    assert_eq!(
        [Some(0), Some(10 * MB), Some(11 * MB), None].map(private_of),
        [Some(200), Some(200), None, None]
    );
    assert_eq!(descendants(lives_with(None)).footprint_bytes, 200 * MB);
    // What was not read of the processes that stay counts, too.
    let descendants_now = Sums { unread_private_bytes: 20 * MB, ..footprint(100) };
    let steady = TreeSums { descendants: descendants_now, ..TreeSums::default() };
    assert_eq!(descendants(Sample { steady, ..lives_with(Some(0)) }).private_bytes, None);
}

// Requirement: RAM-24
#[test]
fn late_records_of_one_window_count_together_though_they_come_one_by_one() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    let steady = tree_sums(10, 0, 10, 1);
    ram.add(&tree, &mut Sample { steady, ..lives([child(12, 15, 50)]) });
    for (from_s, late) in [(20, child(11, 14, 60)), (30, child(13, 15, 70))] {
        let intervals = lives([late]).intervals;
        let (from_ns, at_ns) = (from_s * S, (from_s + 10) * S);
        ram.add(&tree, &mut Sample { from_ns, at_ns, steady, intervals, ..window() });
    }
    assert_eq!((ram.max.combined.footprint_bytes, ram.peak.as_ref().unwrap().at_ns), (190 * MB, 13 * S));
}

// Requirement: RAM-24
#[test]
fn late_records_count_together_though_they_come_over_many_samples() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    // A collector that was stopped reads of the ends of 50 processes of one time in each of the samples after it.
    ram.add(&tree, &mut lives([child(12, 15, 50)]));
    for late in 1..50 {
        let intervals = lives([child(11, 14, 50)]).intervals;
        let (from_ns, at_ns) = ((10 + late * 10) * S, (20 + late * 10) * S);
        ram.add(&tree, &mut Sample { from_ns, at_ns, intervals, ..window() });
    }
    assert_eq!(ram.max.combined.footprint_bytes, 50 * 50 * MB);
}

// Requirement: RAM-26
#[test]
fn survivors_that_grew_count_with_their_smaller_size_for_certain_and_with_the_larger_at_most() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    let (steady, steady_at_most) = (tree_sums(10, 0, 10, 1), tree_sums(90, 0, 90, 1));
    ram.add(&tree, &mut Sample { steady, steady_at_most, ..lives([child(12, 15, 50)]) });
    assert_eq!((ram.max.combined.footprint_bytes, ram.at_most_bytes.combined), (60 * MB, 140 * MB));
    // Of an end that is only known to be no later, the memory is no more than possible.
    let rough = LiveInterval { is_end_rough: true, ..memory(12, 14, 200) };
    ram.add(&tree, &mut Sample { intervals: vec![rough], steady, steady_at_most, ..window() });
    assert_eq!((ram.max.combined.footprint_bytes, ram.at_most_bytes.combined), (60 * MB, 290 * MB));
}

#[test]
fn late_record_of_each_kept_window_is_a_revision_of_its_sample() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    for sample in 1..=40 {
        let intervals = if sample == 2 { lives([child(21, 25, 1000)]).intervals } else { Vec::new() };
        let (from_ns, at_ns) = (sample * 10 * S, (sample + 1) * 10 * S);
        ram.add(&tree, &mut Sample { from_ns, at_ns, intervals, ..Sample::default() });
        ram.largest_by_sample.close(at_ns);
    }
    // The run had more at another time, so this raises no maximum of the run.
    let intervals = lives([child(11, 14, 60)]).intervals;
    ram.add(&tree, &mut Sample { from_ns: 410 * S, at_ns: 420 * S, intervals, ..Sample::default() });
    let revised = ram.largest_by_sample.take_revised();
    let raised: Vec<_> =
        revised.iter().map(|revision| (revision.at_ns, revision.footprint_bytes.combined)).collect();
    assert_eq!(raised, [(20 * S, 60 * MB)]);
}

#[test]
fn late_intervals_count_in_their_own_window() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    let main = tree_sums(400, 0, 400, 1);
    ram.add(&tree, &mut Sample { steady: main, ..lives([child(12, 20, 150)]) });
    // The child of the window before lives on. The records of two children before it come only now.
    let steady = tree_sums(400, 150, 550, 2);
    let late = lives([child(10, 11, 200), child(11, 12, 200)]).intervals;
    ram.add(&tree, &mut Sample { from_ns: 20 * S, at_ns: 30 * S, steady, intervals: late, ..window() });
    assert_eq!((ram.max.descendants.footprint_bytes, ram.max_processes), (200 * MB, 2));
    assert_eq!((ram.max.combined.footprint_bytes, ram.peak.as_ref().unwrap().at_ns), (600 * MB, 10 * S));
    // One lived in both windows: it adds to the steady part of the first, and not to a process that came later.
    let both = lives([child(15, 21, 250), child(22, 23, 100)]).intervals;
    let mut ram_of_both = RamUsage::default();
    ram_of_both.add(&tree, &mut Sample { steady: main, ..window() });
    ram_of_both.add(&tree, &mut Sample { from_ns: 20 * S, at_ns: 30 * S, intervals: both, ..window() });
    assert_eq!((ram_of_both.max.combined.footprint_bytes, ram_of_both.max_processes), (650 * MB, 2));
    // So late that the steady part of its time is no longer known.
    let late = lives([child(5, 6, 300)]).intervals;
    ram.add(&tree, &mut Sample { from_ns: 30 * S, at_ns: 40 * S, steady: main, intervals: late, ..window() });
    assert_eq!(
        (ram.max.descendants.footprint_bytes, ram.max.combined.footprint_bytes, ram.max_processes),
        (300 * MB, 600 * MB, 2)
    );
    let of_others = ram.means(1.0).unwrap().descendants;
    assert_eq!(of_others, (8 * 150 + 2 * 200 + 300) as f64 * MB as f64, "of the lives of all four");
}

// Requirement: RAM-1
#[test]
fn each_figure_is_a_maximum_of_its_own() {
    let mut ram = RamUsage::default();
    let tree = tree();
    for now in [tree_sums(100, 700, 800, 2), tree_sums(500, 200, 700, 2)] {
        ram.add(&tree, &mut Sample { now, ..window() });
    }
    assert_eq!(
        (ram.max.main.footprint_bytes, ram.max.descendants.footprint_bytes, ram.max.combined.footprint_bytes),
        (500 * MB, 700 * MB, 800 * MB)
    );
    assert_eq!((ram.high_water_mark().combined, ram.high_water_mark().descendants), (800 * MB, 700 * MB));
}

#[test]
fn memory_that_main_and_descendants_share_counts_once() {
    let now = tree_sums(400, 420, 430, 2);
    let mut sample = lives([child(12, 13, 50)]);
    (sample.now, sample.steady) = (now, now);
    let ram = added(&sample);
    assert_eq!(
        (ram.max.main.footprint_bytes, ram.max.descendants.footprint_bytes, ram.max.combined.footprint_bytes),
        (400 * MB, 470 * MB, 480 * MB)
    );
}

#[test]
fn means_are_weighted_by_time() {
    let mut sample = lives([child(5, 12, 300), child(15, 40, 100)]);
    sample.steady_mean = tree_sums(50, 0, 50, 0);
    let Groups { main, descendants, combined } = added(&sample).means(10.0).unwrap();
    // 300 MB for seven seconds, five of them before the window and in no sum yet; 100 MB for five.
    assert_eq!((main, descendants), (50e6, (300e6 * 7.0 + 100e6 * 5.0) / 10.0));
    assert_eq!(combined, main + descendants);
    assert_eq!(RamUsage::default().means(0.0), None);
}

#[test]
fn peak_names_its_largest_holders_only() {
    let mut tree = tree();
    let main = main_id(&tree);
    let mut sample = Sample { holders: vec![held(main, 100 * MB)], ..window() };
    for pid in 300..330 {
        let key = Key { pid_ns: 1, pid };
        let found = ChildSeen::of_test(key, main, S);
        sample.holders.push(held(tree.found_in_proc(&found), u64::from(pid) * MB));
    }
    sample.now = tree_sums(100, 9000, 9100, 0);
    let mut ram = RamUsage::default();
    ram.add(&tree, &mut sample);
    let pids: Vec<_> = ram.peak.unwrap().holders.largest.iter().map(|holder| holder.pid).collect();
    assert_eq!(pids, [329, 328, 327, 326, 325, 324, 323, 322, 321, 320]);
}

/// The sums by command of a peak: count and megabytes.
fn commands_of(ram: &RamUsage) -> Vec<(String, u64, u64)> {
    let holders = &ram.peak.as_ref().unwrap().holders;
    let of_name = |held: &CommandHolders| (held.command.clone(), held.count, held.added_bytes / MB);
    holders.by_command.iter().map(of_name).collect()
}

/// The peak's sums by command, those of the names that are not listed included, bytes.
fn held_in_all(ram: &RamUsage) -> u64 {
    let holders = &ram.peak.as_ref().unwrap().holders;
    let others = holders.other_commands.map_or(0, |others| others.added_bytes);
    holders.by_command.iter().map(|held| held.added_bytes).sum::<u64>() + others
}

// Requirement: RAM-27
#[test]
fn all_processes_at_the_peak_are_in_a_sum_by_command() {
    let mut tree = tree();
    let main = main_id(&tree);
    let mut sample = Sample { holders: vec![held(main, 100 * MB)], ..window() };
    for pid in 300..340 {
        let found = ChildSeen::of_test(Key { pid_ns: 1, pid }, main, S);
        let id = tree.found_in_proc(&found);
        // 20 workers, and 20 names with a process each.
        let name = if pid < 320 { "worker".to_owned() } else { format!("tool{pid}") };
        tree.get_mut(id).unwrap().name.command = name.into();
        sample.holders.push(held(id, if pid < 320 { 20 * MB } else { MB }));
    }
    sample.now = tree_sums(100, 420, 520, 41);
    let mut ram = RamUsage::default();
    ram.add(&tree, &mut sample);
    let commands = commands_of(&ram);
    assert_eq!(
        commands[..3],
        [("worker".into(), 20, 400), ("main".into(), 1, 100), ("tool320".into(), 1, 1)]
    );
    let others = ram.peak.as_ref().unwrap().holders.other_commands;
    assert_eq!(others, Some(OtherHolders { commands: 12, count: 12, added_bytes: 12 * MB }));
    assert_eq!((commands.len(), held_in_all(&ram)), (10, 520 * MB));
}

// Requirement: RAM-27
#[test]
fn between_two_samples_each_process_counts_by_command_as_it_does_in_the_sum() {
    let tree = tree();
    // The first process grew from 30 to 400 MB in the window in which two children lived.
    let grown = Held { steady_bytes: Some(30 * MB), ..held(main_id(&tree), 400 * MB) };
    let mut ram = RamUsage::default();
    let steady = tree_sums(30, 0, 30, 1);
    let both = lives([child(11, 15, 200), child(12, 13, 300)]);
    ram.add(&tree, &mut Sample { holders: vec![grown], steady, now: steady, ..both });
    assert_eq!(ram.peak.as_ref().unwrap().footprint_bytes, 530 * MB);
    assert_eq!(commands_of(&ram), [("child".into(), 2, 500), ("main".into(), 1, 30)]);
}

// Requirement: RAM-27
#[test]
fn process_counts_at_a_peak_by_the_name_of_the_program_that_held_the_memory() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    // A child of 200 MB became another program.
    let mut both = lives([child(11, 15, 200), child(12, 13, 300)]);
    let first = both.intervals.iter().position(|interval| !interval.is_process).unwrap();
    let id = both.intervals[first].id;
    for interval in both.intervals.iter_mut().filter(|interval| interval.id == id && interval.is_process) {
        interval.command = "later".into();
    }
    ram.add(&tree, &mut both);
    assert_eq!(commands_of(&ram), [("child".into(), 2, 500)]);
}

// Requirement: RAM-27
#[test]
fn processes_that_have_ended_are_named_at_a_peak_that_a_late_record_sets() {
    let (tree, mut ram) = (tree(), RamUsage::default());
    let holders = vec![held(main_id(&tree), 70 * MB)];
    let steady = tree_sums(70, 0, 70, 1);
    ram.add(&tree, &mut Sample { holders, steady, ..lives([child(12, 15, 50)]) });
    // The record of another child comes when the first process has ended.
    let late = lives([child(11, 14, 60)]).intervals;
    ram.add(&tree, &mut Sample { from_ns: 20 * S, at_ns: 30 * S, intervals: late, ..window() });
    let peak = ram.peak.as_ref().unwrap();
    assert_eq!((peak.footprint_bytes, held_in_all(&ram), ram.max_processes), (180 * MB, 180 * MB, 3));
    assert_eq!(commands_of(&ram), [("child".into(), 2, 110), ("main".into(), 1, 70)]);
    let largest: Vec<_> = peak.holders.largest.iter().map(|holder| holder.rss_bytes / MB).collect();
    assert_eq!(largest, [70, 60, 50]);
}

#[test]
fn spike_of_a_steady_process_adds_to_what_it_had() {
    let tree = tree();
    let mut sample = Sample { holders: vec![held(main_id(&tree), 400 * MB)], ..window() };
    sample.steady = tree_sums(400, 0, 400, 1);
    sample.now = sample.steady;
    let spike = LiveInterval { is_main: true, id: main_id(&tree), pid: MAIN, ..memory(10, 20, 100) };
    sample.intervals = vec![LiveInterval { rss_bytes: 500 * MB, ..spike }];
    let mut ram = RamUsage::default();
    ram.add(&tree, &mut sample);
    let peak = ram.peak.unwrap();
    assert_eq!(peak.footprint_bytes, 500 * MB);
    assert_eq!(peak.holders.largest.iter().map(|holder| holder.rss_bytes).sum::<u64>(), 500 * MB);
}

#[test]
fn no_holder_is_above_the_peak() {
    // A fork child's RSS has pages of its parent, which it is not known to have alone.
    let tree = tree();
    let child = LiveInterval { rss_bytes: 140 * MB, pid: 200, ..memory(11, 12, 100) };
    let mut ram = RamUsage::default();
    ram.add(&tree, &mut Sample { intervals: vec![child], ..window() });
    let peak = ram.peak.unwrap();
    assert_eq!((peak.footprint_bytes, peak.holders.largest[0].rss_bytes), (100 * MB, 100 * MB));
}

#[test]
fn claimed_sizes_saturate() {
    let huge = |pid| {
        let life = memory(11, 12, 0);
        LiveInterval { memory: Contribution::private(u64::MAX), pid, is_main: pid == MAIN, ..life }
    };
    let other = LiveInterval { command: "other".into(), ..huge(201) };
    let sample = Sample { intervals: vec![huge(MAIN), huge(200), other], ..window() };
    let ram = added(&sample);
    assert_eq!((ram.max.descendants.footprint_bytes, ram.max.combined.footprint_bytes), (u64::MAX, u64::MAX));
    let sizes = ram.peak.as_ref().unwrap().holders.by_command.iter().map(|held| u128::from(held.added_bytes));
    assert!(sizes.sum::<u128>() <= u64::MAX.into(), "the commands together have no more");
}

#[test]
fn cpu_time_of_ended_processes_counts_in_its_window() {
    let life = LiveInterval {
        is_process: true,
        memory: Contribution::default(),
        counted_at_ns: 0,
        cpu_ns: 8 * S as i64,
        ..memory(0, 12, 0)
    };
    let mut cpu = CpuUsage::new(S, 8, 10 * S);
    // Two of its twelve seconds are in this window of ten.
    cpu.add(&Sample {
        intervals: vec![life],
        cpu_ns: Groups { main: 5 * S, ..Groups::default() },
        ..window()
    });
    let Groups { main, descendants, combined } = cpu.max_percent.map(Option::unwrap);
    assert_eq!(main, 50.0);
    assert!((descendants - 8.0 * 2.0 / 12.0 * 10.0).abs() < 1e-9, "{descendants}");
    assert!((combined - main - descendants).abs() < 1e-9);
}

#[test]
fn no_window_has_more_than_all_cores() {
    let mut cpu = CpuUsage::new(S, 2, 10 * S);
    cpu.add(&Sample { cpu_ns: Groups { main: 50 * S, descendants: S, combined: 51 * S }, ..window() });
    assert_eq!(cpu.max_percent.values(), [Some(200.0), Some(10.0), Some(200.0)]);
}

#[test]
fn cpu_time_of_an_unseen_first_process_is_unknown() {
    let totals_of = |mut tree: Tree| {
        tree.finalize_all(10 * S);
        let mut totals = Totals::new(1);
        tree.take_summaries().iter().for_each(|process| totals.add(process));
        totals
    };
    assert_eq!(totals_of(tree()).main, None);
    let mut seen = tree();
    let main = main_id(&seen);
    seen.get_mut(main).unwrap().observed.cpu_ns = Some(5_000_000);
    assert_eq!(totals_of(seen).main.map(|usage| usage.user_us + usage.system_us), Some(5000));
}
