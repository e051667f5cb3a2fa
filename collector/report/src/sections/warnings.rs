//! Warnings: all of them, or the most important ones.

use crate::document::{Block, Section, Tone};
use crate::model::report::{Cause, Report, Topic, Warning};
use crate::model::sorting::Sorting;

/// Maximum number of warnings that the summary shows.
const MAX_WARNINGS: usize = 2;
/// Maximum number of lines of each.
const MOST_LINES: usize = 2;

pub(super) fn warnings(report: &Report) -> Section {
    Section::list("Warnings", report.warnings.iter().map(|warning| warning.text.clone()).collect())
}

/// Makes remarks of the most important warnings, and one that says how many more there are. Warnings that other lines of the
/// summary say are left out. `is_kept`: a line below says how the full report is read, so no remark does.
pub(super) fn remarks(report: &Report, is_kept: bool) -> Vec<Block> {
    let is_said_elsewhere = |warning: &&Warning| match warning.topic {
        Topic::IdleGpu => true,
        Topic::OutOfMemory => matches!(report.ending.cause, Some(Cause::OutOfMemory(_))),
        Topic::Tracking | Topic::Command | Topic::OtherNodes | Topic::Elsewhere | Topic::Figures => false,
    };
    let mut unsaid: Vec<_> = report.warnings.iter().filter(|warning| !is_said_elsewhere(warning)).collect();
    unsaid.order_by_key(|warning| warning.topic);
    let (shown, others) = unsaid.split_at(unsaid.len().min(MAX_WARNINGS));
    let remark = |tone, text| Block::Remark { tone, text, most_lines: MOST_LINES };
    let mut remarks: Vec<_> =
        shown.iter().map(|warning| remark(Tone::Caution, warning.text.clone())).collect();
    if !others.is_empty() {
        let plural = if others.len() == 1 { "" } else { "s" };
        let how = if is_kept { "" } else { ": --full" };
        remarks.push(remark(Tone::Plain, format!("and {} more warning{plural}{how}", others.len())));
    }
    remarks
}
