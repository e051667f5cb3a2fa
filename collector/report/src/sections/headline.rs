//! The first line: the command, how it ended, and after what time.

use super::{cause, crashes, nodes};
use crate::document::{Block, Tone};
use crate::figures::{duration, readable, short, signal_name};
use crate::model::report::{Exit, Report, Stage};
use crate::units::Units;

/// Makes the first line of the full text, with the time to the millisecond.
pub(super) fn full(report: &Report, units: Units) -> Block {
    let end = end(report);
    let title = title(report).map(str::to_lowercase);
    headline(report, end.tone, &end.full, &duration(report.wall_s), with_first_failed(report, title, units))
}

/// Makes the first line for a glance, in the unit of time that the user asked for.
pub(super) fn brief(report: &Report, units: Units) -> Block {
    let end = end(report);
    let time = match units.asked_time {
        Some(unit) => format!("{} {}", short(unit.convert(report.wall_s)), unit.symbol()),
        None => readable(report.wall_s),
    };
    let title = title(report).map(str::to_owned);
    headline(report, end.tone, &end.brief, &time, with_first_failed(report, title, units))
}

/// Says for a glance how the command ended, and why if that is known.
pub(crate) fn brief_end(report: &Report) -> String {
    let title = title(report).map(|title| format!(": {title}")).unwrap_or_default();
    format!("{}{title}", end(report).brief.trim_end_matches(','))
}

/// Makes the first line from its parts. `end`: how the command ended, perhaps with a comma at its end, because the time follows.
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

/// The name of the cause, such as `OUT OF MEMORY`; `None` if none is known, or the signal says it.
fn title(report: &Report) -> Option<&'static str> {
    report.ending.cause.as_ref().and_then(cause::title)
}

/// The title of the cause, and which rank or node failed first. `None`: neither is known.
fn with_first_failed(report: &Report, title: Option<String>, units: Units) -> Option<String> {
    let parts: Vec<String> = title.into_iter().chain(nodes::first_failed(report, units)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// How the command ended, in words. Each text can end with a comma, because the time follows.
struct EndInWords {
    tone: Tone,
    /// For a glance: `FAILED, exit 1`.
    brief: String,
    /// In a sentence about the command: `exited with code 1`.
    full: String,
}

impl EndInWords {
    fn new(tone: Tone, brief: impl Into<String>, full: impl Into<String>) -> Self {
        Self { tone, brief: brief.into(), full: full.into() }
    }
}

/// Says how the command ended, and whether `--wait-all` was interrupted after that.
fn end(report: &Report) -> EndInWords {
    let end = unknown_end(report).unwrap_or_else(|| known_end(report));
    if report.ending.wait_interrupted != Some(true) {
        return end;
    }
    let (brief, full) = (end.brief.trim_end_matches(','), end.full.trim_end_matches(','));
    // The command may have succeeded, but the wait for the processes that it left was interrupted.
    let brief = brief.strip_prefix("OK, ").unwrap_or(brief);
    let tone = if end.tone == Tone::Good { Tone::Caution } else { end.tone };
    EndInWords::new(
        tone,
        format!("{brief}, WAIT INTERRUPTED"),
        format!("{full}, and --wait-all was interrupted,"),
    )
}

/// Says why the report does not have the end of the command. `None`: it has the end.
fn unknown_end(report: &Report) -> Option<EndInWords> {
    let is_over = report.stage == Stage::Over;
    let is_merged = report.merged.is_some();
    // Launcher and collector were killed. The command's end is unknown, but with no process left it does not still run.
    if report.stage == Stage::Recovered && report.processes.still_running == Some(0) {
        return Some(EndInWords::new(Tone::Caution, "TRACKING KILLED", "tracking was killed"));
    }
    if !is_over && is_merged && report.ending.exit == Exit::default() {
        return Some(EndInWords::new(Tone::Caution, "NOT ALL REPORTS FINAL", "not all reports were final"));
    }
    if is_over && report.attached.as_ref().is_some_and(|process| process.runs_on) {
        return Some(EndInWords::new(Tone::Good, "RUNS ON", "runs on"));
    }
    if !is_over && !is_merged {
        return Some(EndInWords::new(Tone::Caution, "STILL RUNNING", "still running"));
    }
    None
}

/// Says how the command itself ended.
fn known_end(report: &Report) -> EndInWords {
    match report.ending.exit {
        Exit { code: Some(0), .. } if report.ending.is_by_limit() => {
            EndInWords::new(Tone::Bad, "ENDED, exit 0", "exited with code 0")
        }
        Exit { code: Some(0), .. } => match crashes::in_headline(report) {
            Some(but) => {
                EndInWords::new(Tone::Caution, format!("OK, exit 0{but}"), format!("exited with code 0{but}"))
            }
            None => EndInWords::new(Tone::Good, "OK, exit 0", "exited with code 0"),
        },
        Exit { code: Some(code), .. } => {
            EndInWords::new(Tone::Bad, format!("FAILED, exit {code}"), format!("exited with code {code}"))
        }
        Exit { signal: Some(signal), .. } => {
            let name = signal_name(signal);
            EndInWords::new(Tone::Bad, format!("KILLED by {name}"), format!("killed by {name}"))
        }
        Exit { code: None, signal: None } => {
            EndInWords::new(Tone::Caution, "ENDED, exit status unknown,", "ended in an unknown way")
        }
    }
}
