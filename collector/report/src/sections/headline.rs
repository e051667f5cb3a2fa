//! The first line: the command, how it ended, and after what time.

use super::{cause, crashes};
use crate::document::{Block, Tone};
use crate::figures::{duration, readable, short, signal_name};
use crate::model::report::{Exit, Report, Stage};
use crate::units::Units;

/// With the time as exact as it is known.
pub(super) fn full(report: &Report) -> Block {
    let (tone, _, end) = end(report);
    let title = title(report).map(str::to_lowercase);
    headline(report, tone, &end, &duration(report.wall_s), title)
}

/// For a glance, in the unit of time that the user asked for.
pub(super) fn brief(report: &Report, units: Units) -> Block {
    let (tone, end, _) = end(report);
    let time = match units.asked_time {
        Some(unit) => format!("{} {}", short(unit.convert(report.wall_s)), unit.symbol()),
        None => readable(report.wall_s),
    };
    headline(report, tone, &end, &time, title(report).map(str::to_owned))
}

/// Says for a glance how the command ended, and why if that is known.
pub(crate) fn brief_end(report: &Report) -> String {
    let (_, end, _) = end(report);
    let title = title(report).map(|title| format!(": {title}")).unwrap_or_default();
    format!("{}{title}", end.trim_end_matches(','))
}

/// Makes the first line from its parts.
fn headline(report: &Report, tone: Tone, end: &str, time: &str, title: Option<String>) -> Block {
    let title = title.map(|title| format!(": {title}")).unwrap_or_default();
    let untracked = if report.coverage.untracked_reason.is_some() { ", UNTRACKED" } else { "" };
    let tone = if untracked.is_empty() || tone != Tone::Good { tone } else { Tone::Caution };
    Block::Headline {
        command: report.command.clone(),
        verdict: match &report.attached {
            Some(attached) => {
                let end = end.trim_end_matches(',');
                format!("{end}, attached to pid {} for {time}{title}{untracked}", attached.pid)
            }
            None => format!("{end} after {time}{title}{untracked}"),
        },
        tone,
    }
}

/// Gives the name of the cause, such as `OUT OF MEMORY`; `None` if none is known, or the signal says it.
fn title(report: &Report) -> Option<&'static str> {
    report.ending.cause.as_ref().and_then(cause::title)
}

/// How the command ended: for a glance, and in a sentence. A text can end with a comma, because the
/// time follows.
fn end(report: &Report) -> (Tone, String, String) {
    let (tone, brief, full) = exit(report);
    if report.ending.wait_interrupted != Some(true) {
        return (tone, brief, full);
    }
    let (brief, full) = (brief.trim_end_matches(','), full.trim_end_matches(','));
    let brief = brief.strip_prefix("OK, ").unwrap_or(brief);
    let tone = if tone == Tone::Good { Tone::Caution } else { tone };
    (tone, format!("{brief}, WAIT INTERRUPTED"), format!("{full}, and --wait-all was interrupted,"))
}

/// How the command itself ended, in both forms, whatever became of `--wait-all`.
fn exit(report: &Report) -> (Tone, String, String) {
    let (tone, brief, full) = match report.ending.exit {
        _ if report.stage == Stage::Recovered && report.processes.still_running == Some(0) => {
            (Tone::Caution, "TRACKING KILLED", "tracking was killed")
        }
        exit if report.stage != Stage::Over && report.merged.is_some() && exit == Exit::default() => {
            (Tone::Caution, "NOT ALL REPORTS FINAL", "not all reports were final")
        }
        _ if report.stage == Stage::Over
            && report.attached.as_ref().is_some_and(|process| process.runs_on) =>
        {
            (Tone::Good, "RUNS ON", "runs on")
        }
        _ if report.stage != Stage::Over && report.merged.is_none() => {
            (Tone::Caution, "STILL RUNNING", "still running")
        }
        Exit { code: Some(0), .. } if report.ending.is_by_limit() => {
            (Tone::Bad, "ENDED, exit 0", "exited with code 0")
        }
        Exit { code: Some(0), .. } => match crashes::in_headline(report) {
            Some(but) => {
                return (Tone::Caution, format!("OK, exit 0{but}"), format!("exited with code 0{but}"));
            }
            None => (Tone::Good, "OK, exit 0", "exited with code 0"),
        },
        Exit { code: Some(code), .. } => {
            return (Tone::Bad, format!("FAILED, exit {code}"), format!("exited with code {code}"));
        }
        Exit { signal: Some(signal), .. } => {
            let name = signal_name(signal);
            return (Tone::Bad, format!("KILLED by {name}"), format!("killed by {name}"));
        }
        Exit { code: None, signal: None } => {
            (Tone::Caution, "ENDED, exit status unknown,", "ended in an unknown way")
        }
    };
    (tone, brief.to_owned(), full.to_owned())
}
