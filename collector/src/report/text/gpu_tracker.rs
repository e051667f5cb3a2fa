//! The text that gpu_tracker writes: every row, units in rows of their own, and numbers as Python writes them.

use crate::model::style::Style;
use crate::report::Report;
use crate::report::document::{Block, Cell, Section};
use crate::report::figures::{count, number};
use crate::report::gpu_tracker;
use crate::report::units::Units;

/// The text, with a newline at its end.
pub(super) fn text(report: &Report, style: &Style) -> String {
    let sections = gpu_tracker::sections(report, Units::choose(report, style));
    sections.iter().map(|section| lines_of(section, "")).collect()
}

fn lines_of(section: &Section, indent: &str) -> String {
    let inner = format!("{indent}   ");
    let unit = section.unit.map(|name| format!("{inner}Unit: {name}\n")).unwrap_or_default();
    let lines = section.blocks.iter().map(|block| match block {
        Block::Section(section) => lines_of(section, &inner),
        Block::Row(label, cells) => {
            cells.iter().map(|cell| format!("{inner}{label}: {}\n", value(cell))).collect()
        }
        _ => String::new(),
    });
    let title = section.title.as_deref().unwrap_or_default();
    format!("{indent}{title}:\n{unit}{}", lines.collect::<String>())
}

fn value(cell: &Cell) -> String {
    match cell {
        Cell::Number(value, _) => python(&number(*value)).to_owned(),
        Cell::Count(value) => count(*value),
        Cell::Text(_, text) | Cell::Figure(_, text) | Cell::Note(text) => text.clone(),
        Cell::Part(_) | Cell::RamOverTime(..) => String::new(),
    }
}

/// `1.200` as `1.2`, and `3.000` as `3.0`.
fn python(number: &str) -> &str {
    let digits = number.trim_end_matches('0');
    let is_whole = digits.ends_with('.');
    number.get(..digits.len() + usize::from(is_whole)).unwrap_or(number)
}
