//! What a merged report has.

mod agents;
mod hostile;
mod sums;
mod truth;

use super::*;
use gpu_track_core::samples;

/// Merges a single report as if there were more of them.
fn as_merged(report: Report) -> Report {
    let source = Source { file: "only.json".into(), head: Head::of(&report), content: None };
    let mut merger = Merger::new(Plan::new(vec![source], Vec::new()));
    merger.add(0, ReadReport { report, note: None });
    merger.only = None;
    merger.finish().unwrap().report
}

/// Merges reports, each in a file with a number.
fn merged(reports: &[Report]) -> Report {
    let named = reports.iter().enumerate().map(|(at, report)| (format!("{at:02}.json"), report.clone()));
    merge(&named.collect::<Vec<_>>()).unwrap().report
}

/// A report of this node.
fn of_node(node: &str) -> Report {
    let mut report = samples::full();
    report.host.hostname = Some(node.to_owned());
    report.host.boot_id = Some(format!("boot-{node}"));
    report.warnings.clear();
    report
}
