//! The first line: the command, how it ended, and after what time.

use super::cause;
use crate::model::report::{Exit, Stage};
use crate::report::Report;
use crate::report::document::Headline;
use crate::report::figures::{duration, signal_name};

pub(super) fn headline(report: &Report) -> Headline {
    let end = match report.ending.exit {
        _ if report.stage == Stage::Recovered && report.processes.still_running == 0 => {
            "tracking was killed".to_owned()
        }
        _ if report.stage != Stage::Over => "still running".to_owned(),
        Exit { code: Some(code), .. } => format!("exited with code {code}"),
        Exit { signal: Some(signal), .. } => format!("killed by {}", signal_name(signal)),
        Exit { code: None, signal: None } => "ended in an unknown way".to_owned(),
    };
    let title = report.ending.cause.as_ref().and_then(cause::title);
    let title = title.map(|title| format!(": {}", title.to_lowercase())).unwrap_or_default();
    let verdict = format!("{end} after {}{title}", duration(report.wall_s));
    Headline { command: report.command.clone(), verdict }
}
