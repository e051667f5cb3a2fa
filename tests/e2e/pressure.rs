//! Pressure and CPU quota of a run, compared with the kernel's own counts.

use crate::support::cgroup::Group;
use crate::support::report::Report;
use crate::support::{or_skip, program, skip, tracked};

/// The `total` of the line of this kind in the machine's file of pressure, microseconds. `None`: the kernel keeps none.
fn total_us(resource: &str, kind: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    line.split_once("total=")?.1.trim().parse().ok()
}

const COUNTS: [(&str, &str); 5] =
    [("cpu", "some"), ("memory", "some"), ("memory", "full"), ("io", "some"), ("io", "full")];

// Requirement: STALL-1, STALL-52
#[test]
fn pressure_of_the_machine_is_within_what_the_kernel_counted() {
    let totals = || COUNTS.map(|(resource, kind)| total_us(resource, kind));
    let before = totals();
    if before.contains(&None) {
        skip!("no /proc/pressure here");
    }
    // Two threads more than there are cores wait for a core.
    let burners = std::thread::available_parallelism().unwrap().get() + 2;
    let burn = program("burn");
    let script = format!("for i in $(seq {burners}); do {burn} 0.3 & done; wait");
    let run = tracked(["sh", "-c", &script]).run();
    let report = run.assert_clean(0);
    for ((resource, kind), (before, after)) in COUNTS.into_iter().zip(before.into_iter().zip(totals())) {
        let most_s = (after.unwrap() - before.unwrap()) / 1e6;
        let counted_s = report.f64(&format!("pressure.machine.{resource}.{kind}_s"));
        assert!((0.0..=most_s).contains(&counted_s), "{resource} {kind}: {counted_s} of {most_s} s");
    }
    assert!(report.f64("pressure.machine.cpu.some_s") > 0.1, "{report}");
    assert!(report.f64("pressure.since_s") >= 0.05);
    let [since_s, measured_s] = ["since_s", "measured_s"].map(|key| report.f64(&format!("pressure.{key}")));
    assert!(since_s + measured_s >= report.f64("wall_s") - 0.001, "{report}");
}

// Requirement: STALL-2, STALL-4
#[test]
fn quota_has_what_the_kernel_counted_and_the_summary_tells_it() {
    let group = or_skip!(Group::with_cpu_quota());
    let enter = group.enter();
    let run = tracked([program("burn"), "0.2".into()])
        .through(&enter.each_ref().map(String::as_str))
        .options(&["--summary"])
        .run();
    let report = run.report();
    let stat = std::fs::read_to_string(group.file("cpu.stat")).unwrap();
    let count = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.parse::<u64>().ok());
    let [periods, throttled] = ["nr_periods ", "nr_throttled "].map(|key| count(key).unwrap());
    assert_eq!(report.at("pressure.quota.cgroup").as_str().unwrap(), group.name());
    let counted = report.u64("pressure.quota.throttled_periods");
    // What was throttled before the first reading, and after the run, is missing.
    assert!(counted >= 3 && counted <= throttled, "{counted} of {throttled} in {periods} periods");
    assert!(report.u64("pressure.quota.periods") <= periods);
    assert!(report.f64("pressure.quota.throttled_s") > 0.1, "{report}");
    assert!(run.stderr.contains("CPU quota used up in "), "{}", run.stderr);
}

// Requirement: STALL-3
#[test]
fn short_run_has_no_pressure() {
    let run = tracked(["true"]).run();
    let report: &Report = run.assert_clean(0);
    if report.f64("wall_s") < 0.05 {
        assert!(report.at("pressure.since_s").is_null() && report.at("pressure.machine.io.some_s").is_null());
        assert_eq!(report.at("pressure.reason"), "it is read from 50 ms on, and at the end");
    }
}
