//! The default text: a summary of at most 30 lines. It says whether the command worked and what ended it, how much it used
//! of what it might use, what used it, and what to ask for next time.

mod commands;
mod context;
mod gpus;
mod headline;
mod next_job;
mod usage;
mod warnings;

use super::look::Look;
use context::Context;

use crate::model::style::Style;
use crate::report::Report;
use crate::report::units::Units;

/// Most lines.
const MOST_LINES: usize = 30;

/// The summary, with a newline at its end. It begins with an empty line: the command's output may lack its last newline.
pub(super) fn summary(report: &Report, style: &Style) -> String {
    let units = Units::choose(report, style);
    let context = Context { report, units, look: Look::new(style.console), shows_hints: style.hints };
    let mut lines = vec![String::new()];
    lines.extend(headline::headline(&context));
    lines.extend(usage::usage(&context));
    lines.extend(gpus::gpus(&context));
    lines.extend(usage::io_and_processes(&context));
    let after: Vec<_> =
        next_job::next_job(&context).into_iter().chain(warnings::warnings(&context)).collect();
    let left = MOST_LINES.saturating_sub(lines.len() + after.len());
    lines.extend(commands::commands(&context, left));
    lines.extend(after);
    let lines = lines.into_iter().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}
