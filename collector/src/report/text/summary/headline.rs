//! The first lines: the command, how it ended, and the evidence of what ended it.

use super::super::look::Tone;
use super::context::Context;
use crate::model::report::{Exit, Stage};
use crate::report::Report;
use crate::report::figures::{readable, short, signal_name};
use crate::report::quote;
use crate::report::sections::cause;

/// The end of the line, where the terminal is wide enough. Longer commands reach further.
const USUAL_WIDTH: usize = 80;
/// A command in fewer columns says nothing; the verdict gets a line of its own then.
const LEAST_COMMAND: usize = 16;
/// Most lines of evidence.
const MOST_EVIDENCE: usize = 3;

pub(super) fn headline(context: &Context) -> Vec<String> {
    let Context { report, look, .. } = context;
    let (tone, verdict) = verdict(context);
    let most = look.width().saturating_sub(verdict.len() + " ... ".len());
    let mut lines = if most < LEAST_COMMAND {
        let command = look.command(&report.command, look.width());
        let verdict = quote::cut(&verdict, look.width() - 2);
        vec![look.paint(Tone::Strong, &command), format!("  {}", look.paint(tone, &verdict))]
    } else {
        let command = look.command(&report.command, most);
        let taken = quote::width(&command) + verdict.len() + 2;
        let dots = look.width().min(USUAL_WIDTH).saturating_sub(taken).max(3);
        let dots = look.paint(Tone::Faint, &".".repeat(dots));
        vec![format!("{} {dots} {}", look.paint(Tone::Strong, &command), look.paint(tone, &verdict))]
    };
    if let Some(evidence) = report.ending.cause.as_ref().and_then(|of| cause::evidence(of, context.units)) {
        lines.extend(context.remark(Tone::Bad, &evidence, MOST_EVIDENCE));
    }
    lines
}

/// How the command ended, in ASCII.
fn verdict(context: &Context) -> (Tone, String) {
    let Context { report, units, .. } = context;
    let time = match units.asked_time {
        Some(unit) => format!("{} {}", short(unit.convert(report.wall_s)), unit.symbol()),
        None => readable(report.wall_s),
    };
    let (tone, end) = end(report);
    let cause = report.ending.cause.as_ref().and_then(cause::title).map(|title| format!(": {title}"));
    (tone, format!("{end} after {time}{}", cause.unwrap_or_default()))
}

fn end(report: &Report) -> (Tone, String) {
    match report.ending.exit {
        _ if report.stage == Stage::Recovered && report.processes.still_running == 0 => {
            (Tone::Caution, "TRACKING KILLED".into())
        }
        _ if report.stage != Stage::Over => (Tone::Caution, "STILL RUNNING".into()),
        Exit { code: Some(0), .. } => (Tone::Good, "OK, exit 0".into()),
        Exit { code: Some(code), .. } => (Tone::Bad, format!("FAILED, exit {code}")),
        Exit { signal: Some(signal), .. } => (Tone::Bad, format!("KILLED by {}", signal_name(signal))),
        Exit { code: None, signal: None } => (Tone::Caution, "ENDED, exit status unknown,".into()),
    }
}
