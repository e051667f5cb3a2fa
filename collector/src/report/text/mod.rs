//! The report as text: its sections, laid out for a page or a terminal. Unknown is `n/a`.

pub(super) mod gpu_list;
mod gpu_tracker;
mod layout;
mod look;
mod summary;

use look::Look;

use super::quote;
use super::sections::full;
use super::units::Units;
use crate::model::report::Topic;
use crate::model::style::{Console, Style};
use crate::report::Report;

/// The report as text, with a newline at its end.
pub(super) fn text(report: &Report, style: &Style) -> String {
    if style.as_gpu_tracker {
        return gpu_tracker::text(report, style);
    }
    match style {
        Style { quiet: true, .. } => damage(report),
        Style { full: true, .. } => {
            let look = Look::new(Console { has_colour: false, ..style.console });
            layout::lay_out(&full(report, Units::choose(report, style)), look).join("\n") + "\n"
        }
        _ => summary::summary(report, style),
    }
}

/// What went wrong with tracking, a line for each warning.
fn damage(report: &Report) -> String {
    let of_tracking = report.warnings.iter().filter(|warning| warning.topic == Topic::Tracking);
    of_tracking.map(|warning| format!("gpu-track-run: {}\n", quote::escape(&warning.text))).collect()
}
