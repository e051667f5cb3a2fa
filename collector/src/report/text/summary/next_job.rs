//! What to ask a batch system for next time, as options of Slurm.

use super::super::next_job::{slurm_memory, slurm_time};
use super::context::Context;
use crate::model::report::Hints;

/// Most lines.
const MOST_LINES: usize = 3;

/// Nothing where the run says little, or what it was given fits; all of it where the user asked.
pub(super) fn next_job(context: &Context) -> Vec<String> {
    let hints = &context.report.hints;
    if hints.withheld.is_some() && !context.shows_hints {
        return Vec::new();
    }
    let options = options(hints, context.shows_hints);
    if options.is_empty() {
        return Vec::new();
    }
    let options = options.join(" ");
    let remarks = remarks(context).join("; ");
    let text = if remarks.is_empty() { options } else { format!("{options} ({remarks})") };
    let lines = context.look.wrap(&text, context.room()).into_iter().take(MOST_LINES).enumerate();
    lines.map(|(i, line)| context.row(if i == 0 { "Next job" } else { "" }, &line)).collect()
}

/// The options, without those for what fits unless all are wanted.
fn options(hints: &Hints, wants_all: bool) -> Vec<String> {
    let wanted = |is_fitting: bool| wants_all || !is_fitting;
    let cpus =
        hints.cpus.filter(|of| wanted(of.is_fitting)).map(|of| format!("--cpus-per-task={}", of.count));
    let memory =
        hints.memory.filter(|of| wanted(of.is_fitting)).map(|of| format!("--mem={}", slurm_memory(of.bytes)));
    let time =
        hints.time.filter(|of| wanted(of.is_fitting)).map(|of| format!("--time={}", slurm_time(of.time_s)));
    let gpus =
        hints.gpus.as_ref().filter(|of| wanted(of.is_fitting)).map(|of| format!("--gpus={}", of.count));
    [cpus, gpus, memory, time].into_iter().flatten().collect()
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
