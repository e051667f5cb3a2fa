//! A merged report in its forms: the reports of some nodes, as `gpu-track merge` makes one of them.

use gpu_track_core::fixtures::{containers, nodes, tasks};

use super::{compare, full_style};
use crate::html::html;
use crate::json::json;
use crate::merge::{Head, Merger, Plan, Source, note_left_reports};
use crate::model::report::{Crash, LeftReport, OTHER_TASKS, Report, TaskUsage};
use crate::model::style::Style;
use crate::read::{self, ReadReport};
use crate::runs;
use crate::text::text;

/// The report of all nodes, of files that could not be read, and of a report that stayed on its node.
pub(super) fn merged() -> Report {
    let mut reports = nodes();
    // A process that crashed on one of the nodes.
    if let Some((_, report)) = reports.last_mut() {
        report.crashes = Some(vec![Crash {
            command: Some("app".into()),
            signal: 11,
            signal_name: "SIGSEGV".into(),
            count: 1,
            is_probe: false,
            places: Vec::new(),
        }]);
        report.tasks = tasks();
        report.containers = containers();
        let rest = report.tasks[2].clone();
        let others = TaskUsage { id: 1, name: OTHER_TASKS.into(), tasks: Some(1200), ..rest };
        report.tasks.insert(2, others);
    }
    let source = |(file, report): &(String, Report)| Source {
        file: file.clone(),
        head: Head::from_report(report),
        content: None,
    };
    let unread = [("run.09.json".to_owned(), "it is no JSON".to_owned())];
    let plan = Plan::new(reports.iter().map(source).collect(), unread.into());
    let order: Vec<(usize, String)> = plan.order().map(|(number, file)| (number, file.to_owned())).collect();
    let mut merger = Merger::new(plan);
    for (number, file) in order {
        let (_, report) = reports.iter().find(|(name, _)| *name == file).unwrap();
        merger.add(number, ReadReport { report: report.clone(), note: None });
    }
    let mut report = merger.finish().unwrap().report;
    let path = "/home/me/.local/state/gpu-track/nodes/usage.json.d/n3.4711.json".to_owned();
    let left = LeftReport { node: "n3".into(), path, is_certain: true };
    note_left_reports(&mut report, vec![left], "/home/me/usage.json.d", "/usr/bin/gpu-track-run");
    report
}

// Requirement: NODE-1
#[test]
fn golden_merged() {
    let (report, style) = (merged(), full_style());
    let golden = include_str!("../../../../tests/golden/merged.txt");
    compare(&text(&report, &style), "merged.txt", golden);
    let golden = include_str!("../../../../tests/golden/merged.json");
    compare(&json(&report, &style), "merged.json", golden);
    let golden = include_str!("../../../../tests/golden/summary_merged.txt");
    compare(&text(&report, &Style::default()), "summary_merged.txt", golden);
}

// Requirement: NODE-7
#[test]
fn merged_report_is_read_back() {
    let report = merged();
    let read = read::read(&json(&report, &Style::default())).unwrap();
    assert!(read.report == report && read.note.is_none());
    let row = runs::row("merged.json".into(), &report);
    assert_eq!(row.ram_bytes.used, report.max_ram.combined.footprint_bytes.map(|bytes| bytes as f64));
}

// Requirement: NODE-7
#[test]
fn page_of_a_merged_report_has_its_nodes_and_ranks() {
    let page = html(&merged(), &Style::default());
    for part in ["2, 12 ranks: n2 ", "Imbalance of ranks", "With figures"] {
        assert!(page.contains(part), "{part}");
    }
}
