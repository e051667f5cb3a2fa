//! The charts of a page, which share one time axis.

mod alerts;
mod axis;
mod by_command;
mod figure;
mod gantt;
mod gpus;
mod heat_map;
mod io;
mod lines;
mod marks;
mod metrics;
mod path;
mod places;
mod samples;
mod stack;
mod time;
mod time_spent;

use crate::metrics::MetricTrack;
use crate::model::report::Report;
use crate::units::Units;
use figure::Figure;
use time::Time;

/// Renders all charts of which anything is known; nothing if none is. `tracks`: metrics, each with a
/// value for each point of the report's series.
pub(super) fn charts(report: &Report, units: Units, tracks: &[MetricTrack]) -> String {
    let time = Time::new(&report.series, report.wall_s, units);
    let figures: [Vec<Figure>; 11] = [
        time_spent::time_spent(report, &time).into_iter().collect(),
        by_command::ram(report, units, &time).into_iter().collect(),
        places::ram(report, units, &time),
        by_command::cpu(report, &time).into_iter().collect(),
        places::cpu(report, &time),
        io::io(report, units, &time).into_iter().collect(),
        gantt::count(report, &time).into_iter().collect(),
        gantt::tasks(report, &time).into_iter().collect(),
        gantt::heaviest(report, &time).into_iter().collect(),
        gpus::gpus(report, units, &time),
        metrics::metrics(tracks, &time).into_iter().collect(),
    ];
    let figures: String = figures.iter().flatten().map(|figure| figure.html(&time)).collect();
    if figures.is_empty() {
        return figures;
    }
    let (unit, unit_s) = time.unit();
    format!(
        "<section class=\"charts\" data-span=\"{}\" data-unit=\"{unit}\">\n<h2>Over time</h2>\n{figures}</section>\n",
        report.wall_s / unit_s
    )
}
