//! Every process is counted. The expected number is known, or it comes from the kernel.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::truth::KernelRecorder;
use crate::support::{assert_within, or_skip, program, tracked};

/// Unpacks the source of GNU hello, which scripts/test has fetched.
fn unpack_hello(into: &Path) -> Result<(), String> {
    let archive =
        std::env::var("GPU_TRACK_TEST_HELLO").map_err(|_| "GPU_TRACK_TEST_HELLO names no archive")?;
    let tar = Command::new("tar").args(["-xzf", &archive, "--strip-components=1", "-C"]).arg(into).status();
    match tar {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("cannot unpack {archive}: {other:?}")),
    }
}

// Requirement: SEE-1
#[test]
fn building_gnu_hello_matches_the_kernel_count_and_cpu() {
    let source = tempfile::tempdir().unwrap();
    or_skip!(unpack_hello(source.path()));
    let recorder = or_skip!(KernelRecorder::open());
    let directory = source.path().to_owned();
    // Without this variable configure refuses to run as root.
    let build = recorder.wrap(["sh", "-c", "FORCE_UNSAFE_CONFIGURE=1 ./configure && make -j4"]);
    let run = tracked(build)
        .options(&["--layers", "preload,wait,subreaper,scan"])
        .with(move |command| command.current_dir(directory))
        .watchdog(Duration::from_secs(300))
        .run();
    let truth = recorder.close();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(source.path().join("hello").is_file());
    let report = run.report();
    assert!(truth.processes() > 3000, "configure has thousands of processes, not {}", truth.processes());
    assert_eq!(report.u64("processes.total"), truth.processes());
    assert_eq!(report.u64("coverage.dropped_events"), 0);
    assert_within("cpu_time.total_s", report.f64("cpu_time.total_s"), truth.cpu_s, 1.0);
    assert_within("cpu_time.kernel_s", report.f64("cpu_time.kernel_s"), truth.cpu_s, 1.0);
}

// Requirement: SEE-1, SEE-17
#[test]
fn ten_thousand_shell_children_are_all_exact() {
    let run = tracked(["sh", "-c", "i=0; while [ $i -lt 10000 ]; do /bin/true; i=$((i+1)); done"]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(10_001);
    assert_eq!(report.command("true").unwrap()["count"], 10_000);
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
