//! What is known of some reports of a node, or of some nodes.

use std::time::Duration;

use gpu_track_core::fixtures;

use super::{merged, of_node, steady, warns};
use crate::model::report::*;
use crate::model::style::Style;

/// Makes figures unknown that earlier versions did not have, or that could not be read.
fn without_figures(report: &mut Report) {
    report.io = Io::default();
    report.faults = Faults { minor: None, major: None };
    report.context_switches = ContextSwitches { voluntary: None, involuntary: None };
    report.mean_ram_bytes.combined = None;
    report.cpu.combined = Percent { max_sum: None, mean_sum: None };
    report.series = Series::default();
    report.cpu_time.user_s = None;
    report.max_ram.system_bytes = None;
    report.processes.max_concurrent = None;
}

// Requirement: NODE-3
#[test]
fn figures_that_a_report_lacks_are_named_or_unknown() {
    let mut lacking = of_node("n2");
    without_figures(&mut lacking);
    let (one, report) = (of_node("n1"), merged(&[of_node("n1"), lacking]));
    assert_eq!((report.mean_ram_bytes.combined, report.cpu.combined.mean_sum), (None, None));
    assert_eq!(report.cpu_time.user_s, None);
    assert_eq!(report.cpu_time.system_s, one.cpu_time.system_s.map(|system_s| system_s * 2.0));
    // These are of the other report.
    let of_storage = Io {
        read_bytes: one.io.read_bytes,
        write_bytes: one.io.write_bytes,
        cancelled_write_bytes: one.io.cancelled_write_bytes,
        calls_reason: Some("a report of an older version does not have it".into()),
        ..Io::default()
    };
    assert_eq!(report.io, of_storage);
    assert_eq!((&report.faults, &report.context_switches), (&one.faults, &one.context_switches));
    assert_eq!(report.max_ram.system_bytes, one.max_ram.system_bytes);
    assert!(
        warns(
            &report,
            "Unknown in some of 2 reports, and in no sum: I/O (in 1 report), page faults (in 1 report), context switches (in 1 \
             report), largest CPU utilization (in 1 report), processes at one time (in 1 report), memory in use by all programs (in \
             1 report). "
        ),
        "{:?}",
        report.warnings
    );
    assert!(!warns(&merged(&[of_node("n1"), of_node("n2")]), "Unknown"));
}

// Requirement: IO-6
#[test]
fn io_by_calls_is_the_sum_of_all_reports_or_null_with_a_reason() {
    let both = merged(&[of_node("n1"), of_node("n2")]);
    assert_eq!(both.io.read_calls, of_node("n1").io.read_calls.map(|calls| calls * 2));
    assert_eq!((both.io.calls_reason, both.io.read_call_bytes.is_some()), (None, true));
    let mut agent = of_node("n2");
    agent.io = Io { calls_reason: Some("there was no command".into()), ..Io::default() };
    let lacking = merged(&[of_node("n1"), agent]);
    assert_eq!(lacking.io.calls_reason.as_deref(), Some("n2: there was no command"));
    assert_eq!((lacking.io.read_calls, lacking.io.write_call_bytes), (None, None));
}

// Requirement: NODE-3
#[test]
fn cpu_time_of_a_node_is_unknown_if_that_of_a_report_is() {
    let mut unknown = steady("n1", 0, 10.0, 1000);
    unknown.cpu_time.total_s = None;
    let report = merged(&[steady("n1", 0, 10.0, 1000), unknown, steady("n2", 0, 10.0, 1000)]);
    let of_nodes: Vec<_> = report.nodes.iter().map(|node| (node.cpu_s, node.busy_cores)).collect();
    assert_eq!(of_nodes, [(None, None), (Some(10.0), Some(1.0))]);
    assert_eq!((report.cpu_time.total_s, report.cpu_time.usable_percent), (Some(20.0), None));
}

// Requirement: NODE-2
#[test]
fn largest_ram_is_shown_as_a_lower_bound_if_that_of_a_node_is_unknown() {
    let peak = |reports: &[Report]| {
        let text = crate::text::text(&merged(reports), &Style::default());
        text.lines().find(|line| line.contains("RAM peak")).unwrap().to_owned()
    };
    let (one, mut unknown) = (steady("n1", 0, 10.0, 1000), steady("n2", 0, 10.0, 1000));
    assert!(!peak(&[one.clone(), unknown.clone()]).contains("at least"));
    (unknown.max_ram, unknown.series) = (MaxRam::default(), Series::default());
    unknown.max_ram_at_most.combined = None;
    let row = peak(&[one, unknown]);
    assert!(row.ends_with("at least"), "{row}");
}

// Requirement: NODE-5
#[test]
fn forged_number_of_cores_leaves_a_number() {
    let forged = |count: f64| {
        let mut report = steady("n2", 0, 10.0, 1000);
        report.usable.cores.count = count;
        merged(&[steady("n1", 0, 10.0, 1000), report.clone(), report]).usable.cores.count
    };
    let own = steady("n1", 0, 10.0, 1000).usable.cores.count;
    assert_eq!(forged(f64::MAX), own + 1e6);
    assert!(forged(-f64::MAX) <= 2.0 * own);
}

// Requirement: NODE-5
#[test]
fn files_whose_names_are_alike_are_all_read() {
    let named = [("n1", 3.0), ("n2", 5.0)]
        .map(|(node, wall_s)| ("a\\xff.json".to_owned(), steady(node, 0, wall_s, 1000)));
    let report = crate::merge::merge(&named).unwrap().report;
    let nodes: Vec<_> = report.nodes.iter().map(|node| (node.node.as_str(), node.cpu_s)).collect();
    assert_eq!(nodes, [("n1", Some(3.0)), ("n2", Some(5.0))]);
}

/// A report of a node with 8 cores for 20 s, on which so many cores were busy.
fn busy(node: &str, cores: f64) -> Report {
    let mut report = steady(node, 0, 20.0, 1000);
    report.usable.cores.count = 8.0;
    report.cpu_time.total_s = Some(20.0 * cores);
    report.coverage.uncounted_reason = None;
    report.coverage.nodes = None;
    report
}

fn idle(reports: &[Report]) -> Vec<String> {
    merged(reports).merged.unwrap().idle_nodes
}

// Requirement: NODE-41
#[test]
fn nodes_that_did_next_to_nothing_are_named_if_all_of_them_is_known() {
    let others = [busy("n1", 7.0), busy("n2", 6.0)];
    let with = |change: &dyn Fn(&mut Report)| {
        let mut report = busy("n3", 0.07);
        change(&mut report);
        idle(&[&others[..], &[report]].concat())
    };
    assert_eq!(with(&|_| ()), ["n3"]);
    assert!(with(&|report| report.cpu_time.total_s = Some(20.0 * 0.09)).is_empty(), "above 1 %");
    assert!(with(&|report| report.cpu_time.total_s = None).is_empty(), "unknown");
    assert!(with(&|report| report.stage = Stage::SoFar).is_empty(), "not final");
    assert!(with(&|report| report.coverage.untracked_reason = Some("lost".into())).is_empty());
    assert!(with(&|report| report.coverage.uncounted_reason = Some("lost".into())).is_empty());
    assert!(with(&|report| report.started_at += Duration::from_secs(10_000)).is_empty(), "of another time");
    // One busy process is less than 1 % of many cores.
    let one_of_many = |report: &mut Report| {
        report.usable.cores.count = 128.0;
        report.cpu_time.total_s = Some(20.0);
    };
    assert!(with(&one_of_many).is_empty());
    let mut report = busy("n3", 0.07);
    report.wall_s = 5.0;
    assert!(idle(&[Report { wall_s: 5.0, ..busy("n1", 28.0) }, report]).is_empty(), "too short");
    assert!(idle(&[busy("n1", 0.07), busy("n2", 0.01)]).is_empty(), "none worked, so none waited for it");
    let text = crate::text::text(&merged(&[busy("n1", 7.0), busy("n3", 0.07)]), &Style::default());
    assert!(text.contains("Idle nodes     1 of 2, below 1 % of CPU: n3"), "{text}");
    let full = Style { full: true, ..Style::default() };
    let text = crate::text::text(&merged(&[busy("n1", 7.0), busy("n3", 0.07)]), &full);
    let states = text.lines().filter_map(|line| line.rsplit_once("  n")?.0.rsplit_once("  "));
    let states: Vec<&str> = states.map(|(_, state)| state.trim()).collect();
    assert_eq!(states[..2], ["idle", "final"], "{text}");
}

// Requirement: NODE-41
#[test]
fn node_whose_gpu_worked_is_not_idle_nor_is_a_login_node() {
    let gpu = |used: Option<bool>, percent: Option<f64>| {
        let mut gpus = fixtures::killed().gpus;
        gpus.truncate(1);
        gpus[0].used = used;
        gpus[0].utilization.mean_percent = percent;
        idle(&[busy("n1", 7.0), Report { gpus, ..busy("n3", 0.07) }])
    };
    assert_eq!(gpu(Some(true), Some(0.4)), ["n3"]);
    assert_eq!(gpu(Some(false), Some(90.0)), ["n3"], "another run's work");
    assert!(gpu(Some(true), Some(1.5)).is_empty());
    assert!(gpu(None, None).is_empty(), "unknown");
    let part =
        |is_agent: bool| Some(NodePart { is_agent, clock_ahead_s: None, ready_s: None, directory: None });
    let launcher = |job: Option<&str>| {
        let mut report = Report { node_part: part(false), ..busy("n1", 0.01) };
        report.allowed.slurm.clear();
        report.allowed.slurm.extend(job.map(|job| ("SLURM_JOB_ID".to_owned(), job.to_owned())));
        report
    };
    let agents = [
        Report { node_part: part(true), ..busy("n2", 7.0) },
        Report { node_part: part(true), ..busy("n3", 0.01) },
    ];
    let of = |launcher: Report| idle(&[&[launcher], &agents[..]].concat());
    assert_eq!(of(launcher(None)), ["n3"], "mpirun runs on a login node");
    assert_eq!(of(launcher(Some("7"))), ["n1", "n3"], "Slurm gave the launcher's node to the job");
}

// Requirement: NODE-41
#[test]
fn node_without_processes_is_not_idle_if_ranks_have_no_figures() {
    let mut empty = busy("n3", 0.0);
    empty.processes.total = 0;
    empty.cpu_time.total_s = None;
    let with_ranks = |of: u32| {
        let mut report = busy("n1", 7.0);
        report.rank = Some(OwnRank { job: 0, rank: 0, of, pid: None });
        idle(&[report, empty.clone()])
    };
    assert_eq!((with_ranks(1), with_ranks(2)), (vec!["n3".to_owned()], Vec::new()));
}

// Requirement: NODE-42
#[test]
fn many_nodes_are_summed_up_by_largest_median_and_smallest_and_by_the_last_to_end() {
    let node = |name: &str, cores: f64, ram_bytes: u64, wall_s: f64| {
        let mut report = steady(name, 0, wall_s, ram_bytes);
        report.cpu_time.total_s = Some(cores * wall_s);
        report
    };
    let text = |last_s: f64| {
        let nodes = [
            node("n1", 7.0, 5_000_000, 20.0),
            node("n2", 6.0, 9_000_000, last_s),
            node("n3", 0.5, 1_000_000, 20.0),
            node("n4", 6.5, 7_000_000, 20.5),
            node("n5", 5.0, 6_000_000, 20.0),
        ];
        crate::text::text(&merged(&nodes), &Style::default())
    };
    let late = text(30.0);
    for row in [
        "  Nodes          5\n",
        "  Node RAM       max 9.00 MB (n2), median 6.00 MB (n5), min 1.00 MB (n3)\n",
        "  Node CPU       max 7.00 cores (n1), median 6.00 cores (n2), min 0.50 cores (n3)\n",
        "  Node end       max 30.0 s (n2), median 20.0 s (n1), min 20.0 s (n5)\n",
    ] {
        assert!(late.contains(row), "{row}: {late}");
    }
    assert!(!text(20.5).contains("Node end"), "all ended at about the same time");
}
