//! Reports of very different lengths and times: what the figures over time are then.

use super::{merged, steady, warns};
use crate::model::report::Report;

/// Whether two figures are the same, but for rounding.
fn is_about(figure: Option<f64>, expected: f64) -> bool {
    figure.is_some_and(|figure| (figure - expected).abs() < 1e-6 * expected)
}

// Requirement: NODE-20
#[test]
fn long_report_that_covers_the_others_makes_the_time_longer() {
    let mut reports: Vec<Report> =
        (0..20).map(|at| steady(&format!("w{at}"), 1000 + at, 20.0, 100_000_000)).collect();
    reports.push(steady("drv", 0, 7200.0, 1_000_000_000));
    let report = merged(&reports);
    assert_eq!((report.wall_s, report.warnings.len()), (7200.0, 0));
    assert!(is_about(report.mean_ram_bytes.combined, 1e9 + 20.0 * 20.0 * 1e8 / 7200.0));
    assert!(is_about(report.cpu.combined.mean_sum, 100.0 * (7200.0 + 400.0) / 7200.0));
    let max = report.cpu.combined.max_sum.unwrap();
    assert!((110.0..=2100.0).contains(&max), "{max}");
    assert_eq!(report.max_ram_at_most.combined, Some(3_000_000_000));
}

// Requirement: NODE-20
#[test]
fn means_are_unknown_where_a_report_is_of_another_time() {
    let report = merged(&[steady("n1", 0, 10.0, 1_000_000_000), steady("n2", 86_400, 100.0, 1_000_000_000)]);
    assert_eq!(report.wall_s, 10.0);
    assert_eq!(report.mean_ram_bytes.values(), [None; 3]);
    assert_eq!((report.cpu.combined.mean_sum, report.cpu.combined.max_sum), (None, Some(100.0)));
    assert_eq!((report.cpu_time.total_s, report.cpu_time.usable_percent), (Some(110.0), None));
    assert!(warns(&report, "The times of 1 report have nothing in common"));
    assert!(warns(
        &report,
        "1 report is too far from the time of the others, or too long for a run (01.json)"
    ));
}

// Requirement: NODE-5, NODE-20
#[test]
fn forged_length_leaves_the_time_of_the_others() {
    let report =
        merged(&[steady("n1", 0, 10.0, 1000), steady("n2", 0, 1e300, 1000), steady("n3", 0, 10.0, 1000)]);
    assert_eq!((report.wall_s, report.mean_ram_bytes.combined), (10.0, None));
    assert!(warns(&report, "1 report is too far from"));
    assert!(!warns(&report, "The times of "), "it overlaps with the others");
    // Even if all are forged, there is a time.
    let all = merged(&["n1", "n2"].map(|node| steady(node, 0, 1e300, 1000)));
    assert!(is_about(all.mean_ram_bytes.combined, 2000.0), "{:?}", all.mean_ram_bytes);
}
