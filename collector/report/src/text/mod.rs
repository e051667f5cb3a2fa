//! The report as text: its sections, laid out for a page or a terminal. Unknown is `n/a`.

pub(super) mod gpu_list;
pub(super) mod gpus_line;
pub(super) mod gpus_now;
mod layout;
pub(super) mod smi_monitors;
pub(crate) mod table;
pub(crate) mod terminal;

use layout::{Arrangement, lay_out};
use terminal::Look;

use super::document::Block;
use super::units::Units;
use super::{quote, sections};
use crate::model::report::{Report, Topic};
use crate::model::style::{Console, Style};

/// Maximum number of lines of the summary.
const MOST_LINES: usize = 30;

/// Renders the report as text, with a newline at its end.
pub(super) fn text(report: &Report, style: &Style) -> String {
    match style {
        Style { quiet: true, .. } => tracking_warnings(report),
        Style { full: true, .. } => full(report, style),
        _ => summary(report, style),
    }
}

/// Renders every section. What is zero, unknown, or as it should be has no line.
fn full(report: &Report, style: &Style) -> String {
    let blocks = sections::full(report, Units::choose(report, style));
    let look = Look { console: Console { has_colour: false, ..style.console } };
    lay_out(&blocks, look, Arrangement::Outline).join("\n") + "\n"
}

/// Renders the default text. It begins with an empty line: the command's output may lack its last newline.
fn summary(report: &Report, style: &Style) -> String {
    let units = Units::choose(report, style);
    let lines = |free_lines| {
        let mut blocks = sections::summary(report, units, style, free_lines);
        let lay_out =
            |blocks: &[Block]| lay_out(blocks, Look { console: style.console }, Arrangement::Columns);
        let lines = lay_out(&blocks);
        if lines.len() < MOST_LINES {
            return lines;
        }
        // The picture of RAM says least of what must not be missing.
        blocks.retain(|block| !block.is_ram_over_time());
        let lines = lay_out(&blocks);
        if lines.len() < MOST_LINES {
            return lines;
        }
        blocks.iter_mut().for_each(Block::shorten_caution);
        lay_out(&blocks)
    };
    // The summary is laid out twice: first without free lines, to see how many are left. The 1 is the empty line at its beginning.
    let free_lines = MOST_LINES.saturating_sub(1 + lines(0).len());
    format!("\n{}\n", lines(free_lines).join("\n"))
}

/// The text of `--quiet`: a line for each warning about the tracking itself, or nothing.
fn tracking_warnings(report: &Report) -> String {
    let of_tracking = report.warnings.iter().filter(|warning| warning.topic == Topic::Tracking);
    of_tracking.map(|warning| format!("gpu-track-run: {}\n", quote::escape(&warning.text))).collect()
}
