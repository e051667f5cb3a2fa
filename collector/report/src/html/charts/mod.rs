//! The charts of a page, which share one time axis.

mod axis;
mod by_command;
mod figure;
mod gantt;
mod gpus;
mod io;
mod lines;
mod marks;
mod path;
mod samples;
mod stack;
mod time;

use crate::model::report::Report;
use crate::units::Units;
use time::Time;

/// Renders all charts of which anything is known; nothing if none is.
pub(super) fn charts(report: &Report, units: Units) -> String {
    let time = Time::new(&report.series, report.wall_s, units);
    let figures = [
        by_command::ram(report, units, &time),
        by_command::cpu(report, &time),
        io::io(report, units, &time),
        gantt::count(report, &time),
        gantt::heaviest(report, &time),
    ];
    let figures = figures.into_iter().flatten().chain(gpus::gpus(report, units, &time));
    let figures: String = figures.map(|figure| figure.html(&time)).collect();
    if figures.is_empty() {
        return figures;
    }
    let (unit, unit_s) = time.unit();
    format!(
        "<section class=\"charts\" data-span=\"{}\" data-unit=\"{unit}\">\n<h2>Over time</h2>\n{figures}</section>\n",
        report.wall_s / unit_s
    )
}
