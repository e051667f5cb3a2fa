//! What is known of some reports of a node, or of some nodes.

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
