//! The first line: the command, how it ended, and after what time.

use super::cause;
use super::format::{duration, signal_name};
use super::page::WIDTH;
use crate::model::report::Report;
use crate::model::report::{Exit, Stage};
use crate::quote;

pub(super) fn headline(report: &Report) -> String {
    let end = match report.ending.exit {
        _ if report.stage == Stage::Recovered && report.processes.still_running == 0 => {
            "tracking was killed".to_owned()
        }
        _ if report.stage != Stage::Over => "still running".to_owned(),
        Exit { code: Some(code), .. } => format!("exited with code {code}"),
        Exit { signal: Some(signal), .. } => format!("killed by {}", signal_name(signal)),
        Exit { code: None, signal: None } => "ended in an unknown way".to_owned(),
    };
    let title = report
        .ending
        .cause
        .as_ref()
        .and_then(cause::title)
        .map(|title| format!(": {}", title.to_lowercase()));
    let end = format!(": {end} after {}{}", duration(report.wall_s), title.unwrap_or_default());
    quote::cut(&quote::command(&report.command, WIDTH.saturating_sub(end.len())), WIDTH) + &end
}
