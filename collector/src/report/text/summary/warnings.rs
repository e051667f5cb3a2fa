//! Warnings and remarks: the most important ones, and how many more there are.

use super::super::look::Tone;
use super::context::Context;
use crate::model::report::{Topic, Warning};
use crate::report::quote;
use crate::run::cause::Cause;

/// Most warnings that are shown.
const MOST: usize = 2;
/// Most lines of each.
const LINES: usize = 2;

impl Context<'_> {
    /// A text that is marked by `!`, in at most so many lines.
    pub(super) fn remark(&self, tone: Tone, text: &str, most_lines: usize) -> Vec<String> {
        let width = self.look.width() - 4;
        let mut lines = self.look.wrap(text, width);
        if lines.len() > most_lines {
            lines.truncate(most_lines);
            if let Some(last) = lines.last_mut() {
                *last = quote::cut(&format!("{last} ..."), width);
            }
        }
        let mark = self.look.paint(tone, "!");
        let line = |(i, line)| if i == 0 { format!("  {mark} {line}") } else { format!("    {line}") };
        lines.into_iter().enumerate().map(line).collect()
    }
}

pub(super) fn warnings(context: &Context) -> Vec<String> {
    let all = &context.report.warnings;
    // What other lines of the summary say is not said again.
    let is_said = |warning: &&Warning| match warning.topic {
        Topic::IdleGpu => true,
        Topic::OutOfMemory => matches!(context.report.ending.cause, Some(Cause::OutOfMemory(_))),
        Topic::Tracking | Topic::Command | Topic::Figures => false,
    };
    let mut unsaid: Vec<&Warning> = all.iter().filter(|warning| !is_said(warning)).collect();
    unsaid.sort_by_key(|warning| warning.topic);
    let (shown, others) = unsaid.split_at(unsaid.len().min(MOST));
    let remark = |warning: &&Warning| context.remark(Tone::Caution, essence(context, &warning.text), LINES);
    let mut lines: Vec<String> = shown.iter().flat_map(remark).collect();
    if !others.is_empty() {
        let plural = if others.len() == 1 { "" } else { "s" };
        lines.push(format!("    and {} more warning{plural}: --full", others.len()));
    }
    lines
}

/// The whole text where there is room for it, else its first sentence.
fn essence<'a>(context: &Context, text: &'a str) -> &'a str {
    if text.len() <= LINES * (context.look.width() - 10) {
        return text;
    }
    text.find(". ").and_then(|end| text.get(..=end)).unwrap_or(text)
}
