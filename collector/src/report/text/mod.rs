//! The report as text: a headline, gpu_tracker's sections in its words and nesting, then the other sections. Unknown is
//! `n/a`.

mod coverage;
mod environment;
mod format;
mod gpu_tracker;
mod gpus;
mod headline;
mod page;
mod processes;
mod units;
mod usage;

use page::Page;
use units::Units;

use crate::model::report::Report;
use crate::model::style::{Style, TimeUnit};

/// The report as text, with a newline at its end.
pub(super) fn text(report: &Report, style: &Style) -> String {
    let units = Units::choose(report, style);
    // Most processes of a long run are short: their times read well in seconds only.
    let of_processes = style.time_unit.unwrap_or(TimeUnit::Seconds);
    if style.as_gpu_tracker {
        let mut page = Page::with_short_numbers();
        gpu_tracker::sections(&mut page, report, units);
        return page.into_text();
    }
    let mut page = Page::default();
    page.line(0, headline::headline(report));
    gpu_tracker::sections(&mut page, report, units);
    usage::cpu_time(&mut page, &report.cpu_time, units.time);
    usage::mean_ram(&mut page, &report.mean_ram, units.ram);
    usage::max_ram_proportional(&mut page, &report.max_ram_proportional, units.ram);
    usage::peak(&mut page, report.peak.as_ref(), units.ram, of_processes);
    usage::io(&mut page, &report.io, style);
    usage::faults_and_switches(&mut page, report);
    processes::processes(&mut page, &report.processes, units, of_processes);
    environment::cgroup(&mut page, report.cgroup.as_ref(), units);
    gpus::gpus(&mut page, &report.gpus, units.gpu_ram, of_processes);
    environment::host(&mut page, report);
    environment::limits(&mut page, &report.limits);
    coverage::coverage(&mut page, &report.coverage);
    page.list(0, "Warnings", &report.warnings);
    page.into_text()
}
