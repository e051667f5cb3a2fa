//! What a merged report has.

mod agents;
mod hostile;
mod machines;
mod nodes;
mod rank_jobs;
mod sums;
mod times;
mod truth;

use std::time::Duration;

use super::*;
use crate::model::report::*;
use gpu_track_core::fixtures;

/// Merges a single report as if there were more of them.
fn as_merged(report: Report) -> Report {
    let source = Source { file: "only.json".into(), head: Head::from_report(&report), content: None };
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
    let mut report = fixtures::full();
    report.host.hostname = Some(node.to_owned());
    report.host.boot_id = Some(format!("boot-{node}"));
    report.warnings.clear();
    report
}

/// A report of this node whose command started `start_s` seconds after a fixed time and ran for `wall_s`. It was busy on one core
/// and held `ram_bytes`, which all programs of the machine held, too.
fn steady(node: &str, start_s: u64, wall_s: f64, ram_bytes: u64) -> Report {
    let mut report = of_node(node);
    report.started_at += Duration::from_secs(start_s);
    report.wall_s = wall_s;
    let track = |value: f64| {
        let list = vec![Some(value)];
        Track { min: list.clone(), mean: list.clone(), max: list }
    };
    let sets = |value: f64| SetTracks {
        main: track(value),
        descendants: track(0.0),
        combined: track(value),
        system: track(value),
    };
    report.series = Series {
        start_s: vec![0.0],
        end_s: vec![wall_s],
        ram_bytes: sets(ram_bytes as f64),
        cpu_percent: sets(100.0),
        processes: track(1.0),
        io_bytes_per_s: IoTracks { read: track(0.0), written: track(0.0) },
        ..Series::default()
    };
    let percent = Percent { max_sum: Some(100.0), mean_sum: Some(100.0) };
    for of in [&mut report.cpu.system, &mut report.cpu.main, &mut report.cpu.combined] {
        *of = percent;
    }
    report.cpu_time.total_s = Some(wall_s);
    report.max_ram.combined.footprint_bytes = Some(ram_bytes);
    report.max_ram_at_most.combined = Some(ram_bytes);
    report.max_ram.system_bytes = Some(ram_bytes);
    report.mean_ram_bytes.combined = Some(ram_bytes as f64);
    report
}

/// Whether a warning begins so.
fn warns(report: &Report, begin: &str) -> bool {
    report.warnings.iter().any(|warning| warning.text.starts_with(begin))
}
