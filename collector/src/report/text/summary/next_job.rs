//! What to ask a batch system for next time, as options of Slurm.

use super::context::Context;
use crate::report::sections::next_job::slurm_options;

/// Most lines.
const MOST_LINES: usize = 3;

/// Nothing where the run says little, or what it was given fits; all of it where the user asked.
pub(super) fn next_job(context: &Context) -> Vec<String> {
    let hints = &context.report.hints;
    if hints.withheld.is_some() && !context.shows_hints {
        return Vec::new();
    }
    let options = slurm_options(hints, context.shows_hints);
    if options.is_empty() {
        return Vec::new();
    }
    let remarks = remarks(context).join("; ");
    let text = if remarks.is_empty() { options } else { format!("{options} ({remarks})") };
    let lines = context.look.wrap(&text, context.room()).into_iter().take(MOST_LINES).enumerate();
    lines.map(|(i, line)| context.row(if i == 0 { "Next job" } else { "" }, &line)).collect()
}

/// What the options can't say.
fn remarks(context: &Context) -> Vec<String> {
    let hints = &context.report.hints;
    let mut remarks = Vec::new();
    if hints.memory.is_some_and(|of| of.is_lower_bound) || hints.time.is_some_and(|of| of.is_lower_bound) {
        remarks.push("at least: how much it needs is not known".to_owned());
    }
    if hints.cpus.is_some_and(|of| of.is_serial) {
        remarks.push(format!("it ran serially on {} cores", context.report.usable.cores.count));
    }
    match hints.gpus.as_ref().map_or(0, |of| of.held_idle.len()) {
        0 => {}
        1 => remarks.push("1 GPU held memory and was never busy".to_owned()),
        idle => remarks.push(format!("{idle} GPUs held memory and were never busy")),
    }
    if let Some(reason) = &hints.withheld {
        remarks.push(reason.clone());
    }
    remarks
}
