//! Peaks of RAM between two samples are found, and counted once.

use std::time::Duration;

use crate::support::{assert_within, program, static_program, tracked};

const MIB: u64 = 1 << 20;

fn run(words: &[&str], options: &[&str]) -> crate::support::Run {
    let mut command = vec![program(words[0])];
    command.extend(words[1..].iter().map(|word| (*word).to_owned()));
    tracked(command).options(options).run()
}

// Requirement: RAM-1
#[test]
fn forty_sequential_fork_children_peak_at_200_mb() {
    let run = run(&["touch", "forks", "40", "200000000", "30"], &[]);
    let report = run.assert_clean(0);
    report.assert_all_exact(41);
    assert_within("descendants", report.f64("max_ram.descendants.total_rss"), 200e6, 2.0);
}

// Requirement: RAM-1
#[test]
fn static_children_one_after_another_without_the_connector_peak_at_50_mb() {
    // The shell makes them by vfork, so that only a scan of /proc shows their starts, in clock ticks.
    let children = "0 1 2 3 4 5 6 7 8 9 ".repeat(2);
    let script = format!("for i in {children}; do {} hold 50000000 5; done", static_program("touch"));
    for _ in 0..5 {
        let run = tracked(["sh", "-c", &script]).options(&["--layers", "preload,wait,subreaper,scan"]).run();
        let report = run.assert_clean(0);
        assert_eq!(report.u64("processes.total"), 21);
        let descendants = report.f64("max_ram.descendants.total_rss");
        assert_within("descendants", descendants, 50.5e6, 3.0);
        let combined = report.f64("max_ram.combined.total_rss");
        assert!((descendants..60e6).contains(&combined), "combined is {combined}");
    }
}

// Requirement: RAM-2
#[test]
fn forty_exec_children_between_samples_peak_at_200_mb() {
    let run = run(&["touch", "execs", "40", "200000000", "30"], &["--st", "1"]);
    let report = run.assert_clean(0);
    report.assert_all_exact(41);
    assert_within("descendants", report.f64("max_ram.descendants.total_rss"), 200e6, 2.0);
}

// Requirement: RAM-2
#[test]
fn forty_fork_children_between_samples_peak_at_200_mb() {
    let run = run(&["touch", "forks", "40", "200000000", "30"], &["--st", "1"]);
    let report = run.assert_clean(0);
    assert_within("descendants", report.f64("max_ram.descendants.total_rss"), 200e6, 2.0);
    let peak = report.command("touch").unwrap()["peak_rss_bytes"].as_f64().unwrap();
    assert_within("peak of the largest", peak, 200e6, 2.0);
}

// Requirement: RAM-2
#[test]
fn eight_concurrent_children_peak_at_1600_mb() {
    for interval in ["0.1", "1"] {
        let run = run(&["touch", "together", "8", "200000000", "30"], &["--st", interval]);
        let report = run.assert_clean(0);
        report.assert_all_exact(9);
        assert_within("descendants", report.f64("max_ram.descendants.total_rss"), 1.6e9, 2.0);
        assert_within("combined", report.f64("max_ram.combined.total_rss"), 1.6e9, 2.0);
        assert_within("peak", report.f64("peak.combined_rss_bytes"), 1.6e9, 2.0);
        assert!(report.u64("processes.max_concurrent") == 9);
    }
}

// Requirement: RAM-72
#[test]
fn children_that_end_in_turn_peak_at_their_sum() {
    // The time of a sample is chance. On a busy machine one may fall between the exits, when only some children live.
    let descendants = |_| {
        let run = run(&["touch", "in_turn", "8", "50000000", "6"], &[]);
        let report = run.assert_clean(0);
        report.assert_all_exact(9);
        report.f64("max_ram.descendants.total_rss")
    };
    let seen: Vec<f64> = (0..20).map(descendants).collect();
    let right = seen.iter().filter(|bytes| (0.96 * 400e6..1.02 * 400e6).contains(*bytes)).count();
    assert!(right >= 15, "{seen:?} are not 400 MB");
    assert!(seen.iter().all(|bytes| *bytes < 1.02 * 400e6), "{seen:?} are more than 400 MB");
}

// Requirement: RAM-8
#[test]
fn memory_counts_on_after_the_main_thread_exits() {
    let run = run(&["touch", "threads", "100000000", "300"], &["--tu", "seconds"]);
    let report = run.assert_clean(0);
    report.assert_all_exact(1);
    assert_within("main", report.f64("max_ram.main.total_rss"), 200e6, 2.0);
    let held = 100e6 * 0.3 + 200e6 * 0.3;
    let mean = report.f64("mean_ram.main") * report.f64("compute_time.time");
    assert!(mean >= 0.9 * held, "{mean} byte-seconds, at least {held} were held");
    assert_eq!(report.u64("cpu_utilization.main_n_threads"), 3);
}

// Requirement: RAM-4
#[test]
fn short_children_do_not_inherit_a_large_parents_rss() {
    let bytes = 400 * MIB;
    // A fork copies the page tables of 400 MiB, which takes 10 ms on a busy machine.
    let command = [program("big_parent"), bytes.to_string(), "300".into()];
    let run = tracked(command).watchdog(Duration::from_secs(300)).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(301);
    assert_within("combined", report.f64("max_ram.combined.total_rss"), bytes as f64, 2.0);
    assert_within("main", report.f64("max_ram.main.total_rss"), bytes as f64, 2.0);
    // The peak must be that of /bin/true, not the parent's RSS that ru_maxrss inherits.
    let peak = report.command("true").unwrap()["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak < 10_000_000, "peak RSS of /bin/true is {peak}");
}

// Requirement: RAM-3
#[test]
fn memory_shared_copy_on_write_counts_once() {
    let (parent, child) = ((400 * MIB).to_string(), (100 * MIB).to_string());
    let run = run(&["share", "private", &parent, "3", &child, "10"], &[]);
    let report = run.assert_clean(0);
    report.assert_all_exact(4);
    assert_within("combined", report.f64("max_ram.combined.total_rss"), (700 * MIB) as f64, 3.0);
}

// Requirement: RAM-3
#[test]
fn shared_mappings_count_once() {
    let run = run(&["share", "maps", "5", &(100 * MIB).to_string(), "4", "10"], &[]);
    let report = run.assert_clean(0);
    report.assert_all_exact(5);
    assert_within("combined", report.f64("max_ram.combined.total_rss"), (500 * MIB) as f64, 3.0);
}

// Requirement: RAM-3
#[test]
fn growing_shared_mappings_count_once() {
    let run = run(&["share", "growing", "5", &(100 * MIB).to_string(), "4", "2"], &[]);
    let report = run.assert_clean(0);
    // Program, loader and libc have 1.4 MB in all, and each process some pages of its own.
    let beside = report.f64("max_ram.combined.total_rss") - (500 * MIB) as f64;
    assert!((0.0..2.6e6).contains(&beside), "{beside} bytes beside the mappings");
}

// Requirement: RAM-3
#[test]
fn proportional_sizes_divide_what_processes_share() {
    let run = run(&["share", "maps", "1", &(100 * MIB).to_string(), "3", "3"], &[]);
    let report = run.assert_clean(0);
    // Four processes have a quarter each. Program and libc are others', too.
    let proportional = |set: &str| report.f64(&format!("max_ram_proportional.{set}"));
    assert_within("descendants", proportional("descendants"), (75 * MIB) as f64, 10.0);
    assert_within("combined", proportional("combined"), (100 * MIB) as f64, 10.0);
}

// Requirement: RAM-3
#[test]
fn proportional_size_of_a_child_that_no_sample_saw_is_unknown_and_not_0() {
    let run = tracked(["sh", "-c", "/bin/true; exit 0"]).run();
    let report = run.report();
    assert!(report.f64("max_ram.descendants.total_rss") > 0.0);
    let proportional = report.at("max_ram_proportional.descendants");
    // A sample may see the child all the same.
    let is_known = proportional.as_f64().is_some_and(|bytes| bytes > 0.0);
    let reason = report.at("max_ram_proportional.reason");
    assert!(is_known || (proportional.is_null() && reason.is_string()), "{proportional}, {reason}");
}

// Requirement: RAM-24, RAM-26
#[test]
fn processes_killed_together_count_together() {
    let held = (4 * 60 * MIB) as f64;
    for how in ["kill", "abort", "segv"].repeat(3) {
        let run = run(&["killed_together", how, "4", "60"], &[]);
        let report = run.assert_clean(0);
        let total = report.f64("max_ram.combined.total_rss");
        let at_most = report.f64("max_ram_at_most.combined");
        // On a busy machine a sample can come between two ends.
        assert!(at_most >= held * 0.98, "{how}: at most {at_most} of {held}");
        let is_said = report.warnings().contains("The largest RAM can have been up to");
        assert!(total >= held * 0.89 || is_said, "{how}: {total} of {held}, without a warning");
    }
}

// Requirement: RAM-25
#[test]
fn memory_held_for_milliseconds_by_a_process_that_lives_on_counts_with_that_of_others() {
    for _ in 0..3 {
        let run = run(&["spikes", "100", "60"], &[]);
        let report = run.assert_clean(0);
        let held = (160 * MIB) as f64;
        assert_within("combined", report.f64("max_ram.combined.total_rss"), held, 3.0);
    }
}

// Requirement: RAM-5
#[test]
fn exec_chain_peak_is_that_of_its_largest_image() {
    for interval in ["0.1", "10"] {
        let run = run(&["exec_chain", "300000000"], &["--st", interval]);
        let report = run.assert_clean(0);
        report.assert_all_exact(1);
        assert_within("main", report.f64("max_ram.main.total_rss"), 300e6, 2.0);
        let peak = report.f64("processes.heaviest.0.peak_rss_bytes");
        assert_within("peak of the process", peak, 300e6, 2.0);
    }
}

// Requirement: RAM-11
#[test]
fn steady_memory_has_its_mean_near_its_peak() {
    let run = run(&["touch", "hold", "100000000", "2000"], &["--st", "0.01", "--tu", "seconds"]);
    let report = run.assert_clean(0);
    assert_within("main", report.f64("max_ram.main.total_rss"), 100e6, 3.0);
    assert_within("private", report.f64("max_ram.main.private_rss"), 100e6, 3.0);
    // The memory is fully resident for two seconds of the run; before that it grows.
    let held = 100e6 * 2.0 / report.f64("compute_time.time");
    let mean = report.f64("mean_ram.main");
    assert!((0.95 * held..=1.03 * 100e6).contains(&mean), "mean is {mean}, at least {held} were held");
}

/// At a sample, and between two: then the exact peaks of the children's ends make the sum.
// Requirement: RAM-27
#[test]
fn all_processes_at_the_peak_are_in_the_sums_by_command() {
    for interval in ["0.01", "1"] {
        // Where no sample saw a child, the megabyte of program and libraries that it has with the others counts in full.
        let run = run(&["touch", "together", "12", "70000000", "30"], &["--st", interval]);
        let report = run.assert_clean(0);
        let (held, found) = (report.at("peak.by_command.0"), report.f64("peak.combined_rss_bytes"));
        assert_within("held by name", report.held_at_peak() as f64, found, 2.0);
        assert_eq!(
            (&held["command"], report.array("peak.processes").len()),
            (&"touch".into(), 10),
            "{report}"
        );
        // Where the collector came too late to see the memory of all children together, the upper bound has it.
        assert_within("at most", report.f64("max_ram_at_most.combined"), 840e6, 2.0);
        assert!(held["count"] == 13 || found < 0.98 * 840e6, "--st {interval}: {report}");
    }
}
