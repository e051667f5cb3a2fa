//! Reports of very different lengths and times: what the figures over time are then.

use std::time::{Duration, UNIX_EPOCH};

use super::{merged, steady, warns};
use crate::merge::{Head, Merger, Plan, Source};
use crate::model::report::Report;
use crate::read::ReadReport;

/// Whether two figures are the same, except for rounding.
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

// Requirement: NODE-9
#[test]
fn clock_that_is_decades_off_is_put_right() {
    let one = steady("n1", 0, 10.0, 1000);
    let mut unset = steady("n2", 0, 10.0, 1000);
    unset.started_at = UNIX_EPOCH + Duration::from_secs(5);
    let offset_s = -one.started_at.duration_since(unset.started_at).unwrap().as_secs_f64();
    let mut of_unset = Head::from_report(&unset);
    of_unset.set_clock_offset(offset_s);
    let sources = [("a", Head::from_report(&one)), ("b", of_unset)].map(|(file, head)| Source {
        file: file.into(),
        head,
        content: None,
    });
    let mut merger = Merger::new(Plan::new(sources.into(), Vec::new()));
    for (number, report) in [one, unset].into_iter().enumerate() {
        merger.add(number, ReadReport { report, note: None });
    }
    let report = merger.finish().unwrap().report;
    assert_eq!((report.wall_s, report.max_ram.combined.footprint_bytes), (10.0, Some(2000)));
    assert_eq!(report.nodes[1].clock_offset_s, Some(offset_s));
}

// Requirement: NODE-5, NODE-9
#[test]
fn offset_of_a_clock_is_the_one_that_was_applied() {
    let report = steady("n1", 0, 10.0, 1000);
    let mut head = Head::from_report(&report);
    head.set_clock_offset(1e300);
    assert_eq!(head.clock_offset_s, Some(3.2e11));
}
