//! A RAM or CPU figure that is null has its reason in the report.

use std::path::PathBuf;

use super::build;
use super::golden::golden_reports;
use super::inputs::Inputs;
use crate::model::config::{Config, Layers};
use crate::model::gpu::GpuConfig;
use crate::model::host::{CommandExit, HostInfo, RunEnd};
use crate::model::policy::SamplingPolicy;
use crate::model::report::{Limits, Report, Rss, Stage};
use crate::model::style::{Output, Style};
use crate::run::random_trees::random_runs;

/// Null figures of which no warning speaks.
fn unexplained(report: &Report) -> Vec<&'static str> {
    let ram = |name: &'static str, rss: &Rss| {
        let all = [rss.total_bytes, rss.private_bytes, rss.shared_bytes];
        (name, "RAM", all.iter().all(Option::is_some))
    };
    let (max, mean, time, cpu) = (&report.max_ram, &report.mean_ram, &report.cpu_time, &report.cpu);
    let figures = [
        ram("max_ram.main", &max.main),
        ram("max_ram.descendants", &max.descendants),
        ram("max_ram.combined", &max.combined),
        ("mean_ram.main", "RAM", mean.main_bytes.is_some()),
        ("mean_ram.descendants", "RAM", mean.descendants_bytes.is_some()),
        ("mean_ram.combined", "RAM", mean.combined_bytes.is_some()),
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
    let is_said = |of: &str| report.warnings.iter().any(|warning| warning.text.contains(of));
    figures.into_iter().filter(|(_, of, is_known)| !is_known && !is_said(of)).map(|(name, ..)| name).collect()
}

fn config() -> Config {
    Config {
        launcher_pid: 100,
        pid_ns: 10,
        restarts: 0,
        running_pid: None,
        command: vec!["prog".into()],
        started_monotonic_ns: 0,
        started_realtime_ns: 0,
        forks_before: None,
        interval_ns: 100_000_000,
        expected_cores: None,
        most_heaviest: 1000,
        layers: Layers { preload: true, wait: true, subreaper: true, scan: true, connector: true },
        shim_directory: None,
        connector_absent: None,
        cgroup: None,
        oom: None,
        memory_limits: Vec::new(),
        output: Output::Stderr,
        style: Style::default(),
        disable_logs: false,
        gpu: GpuConfig { root: PathBuf::from("/nonexistent"), ..GpuConfig::default() },
        policy: SamplingPolicy::default(),
        journal: None,
        warnings: Vec::new(),
    }
}

fn report_of(run: &crate::run::RunState, at_ns: u64) -> Report {
    let host_info = HostInfo {
        host: super::golden::full_report().host,
        ticks_per_second: 100,
        page_bytes: 4096,
        limits: Limits::default(),
    };
    let end = RunEnd {
        at_ns,
        stage: Stage::Over,
        status: Some(0),
        command_exit: Some(CommandExit { at_ns, children_cpu_us: 0 }),
        dropped_events: 0,
        unreachable_programs: 0,
        is_truncated: false,
        oom_kills: None,
        memory_limits: Vec::new(),
        full_disks: Vec::new(),
        cgroup: None,
    };
    build::report(&Inputs { config: &config(), host_info: &host_info, run, end: &end })
}

// Requirement: OUT-14
#[test]
fn null_figures_of_goldens_have_a_reason() {
    for (name, report) in golden_reports() {
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
        nulls += u32::from(max.main.total_bytes.is_none());
        let (main, combined) = (max.main.total_bytes.unwrap_or(0), max.combined.total_bytes.unwrap_or(0));
        let descendants = max.descendants.total_bytes.unwrap_or(0);
        assert!(main <= combined && descendants <= combined, "run {number}: {max:?}");
        let bounds = report.coverage.peaks.bound;
        let peaks = report.processes.heaviest.iter().filter_map(|process| process.peak_rss_bytes);
        let largest = peaks.max().filter(|_| bounds == 0).unwrap_or(0);
        assert!(largest <= combined, "run {number}: {largest} above {max:?}");
    }
    assert!(nulls > 0, "some have nulls");
}
