//! The alerts of the run, and how many events there were.

use crate::document::{Block, Section, Tone};
use crate::figures::readable;
use crate::model::counts_in_words::times;
use crate::model::report::{AlertUse, Report};
use crate::units::Units;

/// Maximum number of lines of the remark.
const MOST_LINES: usize = 2;

/// Makes a row for each alert, and one that counts the events by kind if the run wrote them.
pub(super) fn section(report: &Report, units: Units) -> Section {
    let row = |alert: &AlertUse| match (&alert.reason, alert.first_at_s) {
        (Some(reason), _) => format!("could not go on: {reason}"),
        (None, None) => "did not go on".to_owned(),
        (None, Some(at_s)) => {
            let until = if alert.is_on { ", and at the end" } else { "" };
            let (times, on) = (times(alert.times), units.seconds(alert.on_s));
            format!("went on {times}, first {}; on for {on}{until}", units.after_the_start(at_s))
        }
    };
    let alerts = report.alerts.iter();
    let section =
        alerts.fold(Section::new("Alerts"), |section, alert| section.text(&alert.alert, row(alert)));
    let Some(events) = &report.events else { return section };
    let kinds: Vec<String> =
        events.by_kind.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
    section.text("Events", format!("{}: {}", events.count, kinds.join(", ")))
}

/// Makes a line that names the alerts which went on. `None`: none did.
pub(super) fn remark(report: &Report, units: Units) -> Option<Block> {
    let time = |seconds: f64| match units.asked_time {
        Some(_) => units.seconds(seconds),
        None => readable(seconds),
    };
    let name = |alert: &AlertUse| {
        let at = time(alert.first_at_s?);
        let on = match alert.is_on {
            true => "on at the end".to_owned(),
            false => format!("on for {}", time(alert.on_s)),
        };
        let again = if alert.times > 1 { format!(" ({})", times(alert.times)) } else { String::new() };
        Some(format!("{} {on}{again}, first {at} after the start", alert.alert))
    };
    let on: Vec<String> = report.alerts.iter().filter_map(name).collect();
    (!on.is_empty()).then(|| Block::Remark {
        tone: Tone::Caution,
        text: format!("alert{} {}", if on.len() == 1 { "" } else { "s" }, on.join("; ")),
        most_lines: MOST_LINES,
    })
}
