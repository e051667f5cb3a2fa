//! CPU time compared with known work and with the kernel's sum.

use crate::support::truth::KernelRecorder;
use crate::support::{assert_within, installed, or_skip, program, skip, static_program, tracked};

// Requirement: CPU-1, CPU-5
#[test]
fn three_children_have_two_cpu_seconds_each() {
    let run = tracked([program("burn"), "2".into(), "children".into(), "3".into()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(4);
    report.assert_cpu(6.0, 1.0);
    assert_within("kernel_s", report.f64("cpu_time.kernel_s"), 6.0, 1.0);
    let heaviest = report.array("processes.heaviest");
    for process in &heaviest[..3] {
        assert_within("cpu_s of a child", process["cpu_s"].as_f64().unwrap(), 2.0, 1.0);
    }
}

// Requirement: CPU-1
#[test]
fn cpu_of_eight_threads_is_summed() {
    let run = tracked([program("burn"), "0.5".into(), "threads".into(), "8".into()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(1);
    report.assert_cpu(4.0, 1.0);
    assert_eq!(report.u64("cpu_utilization.main_n_threads"), 9);
    assert_eq!(report.u64("cpu_utilization.combined_n_threads"), 9);
}

// Requirement: CPU-1
#[test]
fn cpu_of_a_mixed_tree_matches_its_cgroup() {
    let recorder = or_skip!(KernelRecorder::open());
    let (burn, fixed, touch) = (program("burn"), static_program("burn"), program("touch"));
    let script = format!(
        "{burn} 0.5 children 2 & {fixed} 0.7; {burn} 0.3 threads 3 | cat; {touch} forks 3 100000000 1;
         i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done; wait"
    );
    let run = tracked(recorder.wrap(["sh", "-c", &script])).run();
    let truth = recorder.close();
    let report = run.assert_clean(0);
    report.assert_all_exact(truth.processes());
    assert!(truth.cpu_s > 2.6, "the known work alone is 2.6 s, not {}", truth.cpu_s);
    assert_within("cpu_time.total_s", report.f64("cpu_time.total_s"), truth.cpu_s, 1.0);
}

// Requirement: CPU-6
#[test]
fn cpu_percent_is_per_core_and_per_expected_cores() {
    let run = tracked([program("burn"), "1".into()]).options(&["--nec", "4"]).run();
    let report = run.assert_clean(0);
    let (time, total) = (report.f64("compute_time.time"), report.f64("cpu_time.total_s"));
    let mean = report.f64("cpu_utilization.main.mean_sum_percent");
    assert_within("mean_sum_percent", mean, total / time * 100.0, 1.0);
    assert_within("hardware", report.f64("cpu_utilization.main.mean_hardware_percent"), mean / 4.0, 0.1);
    let max = report.f64("cpu_utilization.main.max_sum_percent");
    assert!((mean * 0.99..=102.0).contains(&max), "one thread's max_sum_percent is {max}, its mean {mean}");
    assert_eq!(report.u64("cpu_utilization.n_expected_cores"), 4);
}

// Requirement: CPU-6
#[test]
fn one_thread_stays_near_100_percent_at_1_ms_sampling() {
    let run = tracked([program("burn"), "0.5".into()]).options(&["--st", "0.001"]).run();
    let max = run.assert_clean(0).f64("cpu_utilization.combined.max_sum_percent");
    assert!((1.0..=105.0).contains(&max), "max_sum_percent of one thread is {max}");
}

// Requirement: CPU-8
#[test]
fn short_command_has_its_true_wall_and_cpu_time() {
    let start = std::time::Instant::now();
    let run = tracked([program("burn"), "0.02".into()]).run();
    let outside = start.elapsed().as_secs_f64();
    let report = run.assert_clean(0);
    let time = report.f64("compute_time.time");
    assert!((0.02..=outside).contains(&time), "compute_time is {time}, the whole run {outside}");
    report.assert_cpu_between(0.02, 0.01);
}

// Requirement: CPU-10
#[test]
fn static_command_with_a_short_child_has_its_cpu_time() {
    // Samples miss both processes, and the connector tells only that the child existed.
    let touch = static_program("touch");
    for _ in 0..25 {
        let run = tracked([touch.as_str(), "forks", "1", "4096", "0"]).run();
        let report = run.assert_clean(0);
        let time = report.at("cpu_time");
        assert!(!time["kernel_s"].is_null(), "{time}");
        let (total_s, kernel_s) = (report.f64("cpu_time.total_s"), report.f64("cpu_time.kernel_s"));
        assert!((total_s - kernel_s).abs() < 0.0001, "{total_s} s, {kernel_s} by the kernel's sum");
        assert!(report.f64("cpu_utilization.main.mean_sum_percent") > 0.0);
    }
}

// Requirement: CPU-2
#[test]
fn sandboxes_that_outlive_their_maker_count_once() {
    let sandbox = "bwrap --ro-bind / / --unshare-all --dev /dev --proc /proc";
    if installed("bwrap").is_none() {
        skip!("bwrap is not installed");
    }
    let possible =
        std::process::Command::new("sh").args(["-c", &format!("{sandbox} true")]).output().unwrap();
    if !possible.status.success() {
        skip!("no sandboxes here: {}", String::from_utf8_lossy(&possible.stderr).trim());
    }
    // bwrap makes the sandbox's init by a raw clone, and ends before it: the launcher reaps the init. The programs inside can't
    // open the session.
    let one = format!("{sandbox} sh -c '(sleep 0.02; {} 0.1) & true'", program("burn"));
    let script = format!("{one}; {one}; {one}");
    for layers in ["preload,wait,subreaper", "preload,wait,subreaper,scan", "preload,wait,subreaper,scan"] {
        let run = tracked(["sh", "-c", &script]).options(&["--wait-all", "-q", "--layers", layers]).run();
        let report = run.assert_clean(0);
        assert!(report.f64("cpu_time.kernel_s") > 0.3);
        report.assert_cpu(report.f64("cpu_time.kernel_s"), 5.0);
    }
}
