//! Every process is counted. The expected number is known, or it comes from the kernel.

use crate::support::truth::KernelRecorder;
use crate::support::{or_skip, program, tracked};

// Requirement: SEE-1, SEE-17
#[test]
fn two_thousand_shell_children_are_all_exact() {
    let run = tracked(["sh", "-c", "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done"]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(2001);
    assert_eq!(report.command("true").unwrap()["count"], 2000);
}

// Requirement: SEE-17
#[test]
fn five_thousand_forks_are_all_exact() {
    let run = tracked([program("fork_bomb"), "5000".into()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(5000);
    assert!(report.u64("processes.max_concurrent") <= 5000);
}

/// The collector competes for the cores with all of the loops.
// Requirement: SEE-17
#[test]
fn twenty_parallel_loops_of_an_ordinary_user_are_exact() {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
        sh -c 'j=0; while [ $j -lt 100 ]; do /bin/true; j=$((j+1)); done' & done; wait";
    let run = or_skip!(tracked(["sh", "-c", script]).by_an_ordinary_user()).run();
    run.assert_clean(0).assert_all_exact(1 + 20 * 101);
}

// Requirement: SEE-1
#[test]
fn single_process_is_counted_once() {
    let run = tracked(["/bin/true"]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(1);
    assert_eq!(report.u64("processes.still_running"), 0);
    assert_eq!(report.command("true").unwrap()["count"], 1);
}

// Requirement: SEE-1
#[test]
fn shell_pipeline_matches_the_kernel_count() {
    let recorder = or_skip!(KernelRecorder::open());
    let script = "for i in 1 2 3; do seq 100 | sort | (cat; (true); /bin/true) | wc -l; done; x=$(echo $(date)); exit 0";
    let run = tracked(recorder.wrap(["sh", "-c", script])).run();
    let truth = recorder.close();
    run.assert_clean(0).assert_all_exact(truth.processes());
}
