//! The report as text: a headline, gpu_tracker's sections in its words and nesting, then the other sections. Unknown is
//! `n/a`.

mod cause;
mod coverage;
mod environment;
mod format;
pub(super) mod gpu_list;
mod gpu_tracker;
mod gpus;
mod headline;
mod next_job;
mod page;
mod processes;
mod summary;
mod units;
mod usage;

use page::Page;
use units::Units;

use super::quote;
use crate::model::report::Report;
use crate::model::report::{Topic, Warning};
use crate::model::style::Style;

/// The report as text, with a newline at its end.
pub(super) fn text(report: &Report, style: &Style) -> String {
    if style.as_gpu_tracker {
        let mut page = Page::of_gpu_tracker();
        gpu_tracker::sections(&mut page, report, Units::choose(report, style));
        return page.into_text();
    }
    match style {
        Style { quiet: true, .. } => damage(report),
        Style { full: true, .. } => full(report, style),
        _ => summary::summary(report, style),
    }
}

/// What went wrong with tracking, a line for each warning.
fn damage(report: &Report) -> String {
    let of_tracking = report.warnings.iter().filter(|warning| warning.topic == Topic::Tracking);
    of_tracking.map(|warning| format!("gpu-track-run: {}\n", quote::escape(&warning.text))).collect()
}

/// Every section. What is zero, unknown, or as it should be has no line.
fn full(report: &Report, style: &Style) -> String {
    let units = Units::choose(report, style);
    let mut page = Page::default();
    page.line(0, headline::headline(report));
    if let Some(evidence) = report.ending.cause.as_ref().and_then(|of| cause::evidence(of, units)) {
        page.list(0, "Evidence", &[evidence]);
    }
    gpu_tracker::sections(&mut page, report, units);
    usage::cpu_time(&mut page, &report.cpu_time, units);
    usage::mean_ram(&mut page, report.mean_ram_bytes, units);
    usage::max_ram_proportional(&mut page, &report.max_ram_proportional, units);
    usage::peak(&mut page, report.peak.as_ref(), units);
    usage::io(&mut page, &report.io, units);
    usage::faults_and_switches(&mut page, report);
    processes::processes(&mut page, &report.processes, units);
    environment::cgroup(&mut page, report.cgroup.as_ref(), units);
    gpus::gpus(&mut page, &report.gpus, units.gpu_ram, units.time);
    environment::host(&mut page, report);
    environment::limits(&mut page, &report.limits, &report.usable, units);
    next_job::next_job(&mut page, &report.hints, units);
    coverage::coverage(&mut page, &report.coverage);
    let warnings: Vec<_> = report.warnings.iter().map(|Warning { text, .. }| text.clone()).collect();
    page.list(0, "Warnings", &warnings);
    let text = page.into_text();
    if style.console.is_unicode { text } else { quote::ascii(&text) }
}
