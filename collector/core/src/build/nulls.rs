//! A RAM or CPU figure that is null has its reason in the report.

use super::{Inputs, report};
use crate::model::config::Config;
use crate::model::host_info::HostInfo;
use crate::model::io_calls::IoCalls;
use crate::model::report::Report;
use crate::model::report::{Allowed, SetRam};
use crate::model::run_end::{CommandExit, RunEnd};
use crate::run::random_trees::random_runs;

/// Null figures of which no warning speaks.
fn unexplained(report: &Report) -> Vec<&'static str> {
    let ram = |name: &'static str, set: &SetRam| {
        let is_sharing_known = set.private_bytes.is_some() && set.shared_bytes.is_some();
        let is_explained = set.footprint_bytes.is_some() && report.coverage.private_ram_reason.is_some();
        (name, "RAM", is_sharing_known || is_explained)
    };
    let (max, mean, time, cpu) = (&report.max_ram, &report.mean_ram_bytes, &report.cpu_time, &report.cpu);
    let figures = [
        ram("max_ram.main", &max.main),
        ram("max_ram.descendants", &max.descendants),
        ram("max_ram.combined", &max.combined),
        ("mean_ram.main", "RAM", mean.main.is_some()),
        ("mean_ram.descendants", "RAM", mean.descendants.is_some()),
        ("mean_ram.combined", "RAM", mean.combined.is_some()),
        ("peak", "RAM", report.peak.is_some()),
        ("cpu_time.total_s", "CPU", time.total_s.is_some()),
        ("cpu_time.user_s", "CPU", time.user_s.is_some()),
        ("cpu_time.system_s", "CPU", time.system_s.is_some()),
        ("cpu_time.unattributed_s", "CPU", time.unattributed_s.is_some()),
        ("cpu_time.kernel_s", "CPU", time.kernel_s.is_some() || time.kernel_s_reason.is_some()),
        ("cpu.main", "CPU", cpu.main.mean_sum.is_some()),
        ("cpu.descendants", "CPU", cpu.descendants.mean_sum.is_some()),
        ("cpu.combined", "CPU", cpu.combined.mean_sum.is_some()),
    ];
    let pss = &report.max_ram_proportional;
    let is_pss_known = pss.bytes.values().iter().all(Option::is_some);
    assert_eq!(is_pss_known, pss.reason.is_none(), "{pss:?}");
    let is_said = |topic: &str| report.warnings.iter().any(|warning| warning.text.contains(topic));
    figures
        .into_iter()
        .filter(|(_, topic, is_known)| !is_known && !is_said(topic))
        .map(|(name, ..)| name)
        .collect()
}

pub(super) fn report_of(run: &crate::run::RunState, at_ns: u64) -> Report {
    let host_info = HostInfo {
        host: crate::fixtures::full().host,
        ticks_per_second: 100,
        page_bytes: 4096,
        allowed: Allowed::default(),
        own_ranks: Vec::new(),
    };
    let exit = CommandExit {
        status: Some(0),
        runs_on: false,
        is_wait_interrupted: false,
        at_ns,
        children_cpu_us: 0,
        helper_calls: IoCalls::default(),
    };
    let end = RunEnd::of_exit(at_ns, Some(exit));
    let mut config = Config::of_test();
    (config.start.pid_ns, config.report.most_heaviest) = (10, 1000);
    report(&Inputs { config: &config, host_info: &host_info, run, end: &end })
}

// Requirement: OUT-14
#[test]
fn null_figures_of_goldens_have_a_reason() {
    for (name, report) in crate::fixtures::all() {
        assert_eq!(unexplained(&report), [] as [&str; 0], "{name}");
    }
}

// Requirement: OUT-14, RAM-20
#[test]
fn random_trees_have_no_null_without_a_reason_and_no_total_below_a_known_peak() {
    let mut nulls = 0;
    for (number, (run, at_ns)) in random_runs(600).enumerate() {
        let report = report_of(&run, at_ns);
        assert_eq!(unexplained(&report), [] as [&str; 0], "run {number}: {:?}", report.max_ram);
        let max = &report.max_ram;
        nulls += u32::from(max.main.footprint_bytes.is_none());
        let (main, combined) =
            (max.main.footprint_bytes.unwrap_or(0), max.combined.footprint_bytes.unwrap_or(0));
        let descendants = max.descendants.footprint_bytes.unwrap_or(0);
        assert!(main <= combined && descendants <= combined, "run {number}: {max:?}");
        let bounds = report.coverage.peaks.bound;
        let peaks = report.processes.heaviest.iter().filter_map(|process| process.usage.peak_rss_bytes);
        let largest = peaks.max().filter(|_| bounds == 0).unwrap_or(0);
        assert!(largest <= combined, "run {number}: {largest} above {max:?}");
    }
    assert!(nulls > 0, "some have nulls");
}

// Requirement: CPU-9
#[test]
fn cpu_time_above_the_kernels_sum_is_in_the_warnings() {
    let (run, at_ns) =
        random_runs(50).find(|(run, _)| run.totals.own_usage.cpu_us() > 100_000).expect("a long run");
    let report = report_of(&run, at_ns);
    // The launcher of this run reaped nothing that used CPU time.
    let is_said =
        report.warnings.iter().any(|warning| warning.text.contains("more than the kernel's own sum"));
    assert_eq!(is_said, report.cpu_time.kernel_s.is_some(), "{:?}", report.cpu_time);
}

// Requirement: OUT-23
#[test]
fn reports_of_random_runs_are_the_same_when_read_back() {
    for (number, (run, at_ns)) in random_runs(60).enumerate() {
        let report = report_of(&run, at_ns);
        let json = serde_json::to_string(&report).unwrap();
        assert!(serde_json::from_str::<Report>(&json).unwrap() == report, "run {number}: {json}");
    }
}
