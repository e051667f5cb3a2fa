//! The commands that used most CPU time, in a table.

use super::super::look::{Tone, left, right};
use super::context::Context;
use crate::model::report::CommandUsage;
use crate::report::figures::{UNKNOWN, column, percent, thousands};
use crate::report::quote;

/// Most commands in the table.
const MOST: usize = 5;
/// Columns of the command names.
const NAME: usize = 20;
/// Columns of a figure.
const CELL: usize = 10;
/// Columns of a count.
const COUNT: usize = 8;
/// Columns of a percentage.
const PERCENT: usize = " >999 %".len();

/// At most so many lines. Nothing for a single process: the figures above it are its own.
pub(super) fn commands(context: &Context, most_lines: usize) -> Vec<String> {
    let all = &context.report.processes.by_command;
    if context.report.processes.total <= 1 || all.is_empty() || most_lines < 3 {
        return Vec::new();
    }
    let most = MOST.min(most_lines - 2);
    // A line for "1 other" is better spent on that one.
    let shown = if all.len() <= most + 1 { all.len().min(most_lines - 1) } else { most };
    let (shown, others) = all.split_at(shown);
    let mut rows = shown.to_vec();
    if !others.is_empty() {
        rows.push(sum(others));
    }
    table(context, &rows)
}

fn table(context: &Context, rows: &[CommandUsage]) -> Vec<String> {
    let Context { report, units, look, .. } = context;
    let head = [
        left("Command", NAME),
        right("count", COUNT),
        right(&format!("CPU {}", units.time.symbol()), CELL),
        right(&format!("peak {}", units.ram.symbol()), CELL),
        right(&format!("wall {}", units.time.symbol()), CELL),
    ];
    let mut lines = vec![format!("  {}", look.paint(Tone::Faint, &head.concat()))];
    let time = |s: f64| units.time.convert(s);
    let cpu = column(&rows.iter().map(|row| row.cpu_s.map(time)).collect::<Vec<_>>());
    let peak: Vec<_> =
        rows.iter().map(|row| row.peak_rss_bytes.map(|b| units.ram.convert(b as f64))).collect();
    let wall = column(&rows.iter().map(|row| Some(time(row.wall_s))).collect::<Vec<_>>());
    let total_s = report.cpu_time.total_s.filter(|total_s| *total_s > 0.0);
    for (((row, cpu), peak), wall) in rows.iter().zip(cpu).zip(column(&peak)).zip(wall) {
        let count = if row.count == 0 { UNKNOWN.to_owned() } else { thousands(row.count as f64) };
        let name = left(&quote::cut(&look.text(&row.command), NAME - 1), NAME);
        let cells = [(count, COUNT), (cpu, CELL), (peak, CELL), (wall, CELL)];
        // A longer one pushes the others to the right.
        let cells = cells.map(|(text, width)| right(&format!(" {text}"), width)).concat();
        let line = quote::cut(&(name + &cells), look.width() - 2);
        let part = Option::zip(row.cpu_s, total_s).map(|(cpu_s, total_s)| cpu_s / total_s);
        let left = look.width().saturating_sub(2 + quote::width(&line) + 2 + PERCENT);
        lines.push(format!("  {line}  {}", share(context, part, left)));
    }
    lines
}

/// A bar of at most so many cells and a percentage, from 1% on; nothing where there is no room.
fn share(context: &Context, part: Option<f64>, left_cells: usize) -> String {
    const MOST_CELLS: usize = 12;
    const LEAST_CELLS: usize = 4;
    let cells = left_cells.min(MOST_CELLS);
    match part.filter(|part| *part >= 0.005 && cells >= LEAST_CELLS) {
        Some(part) => {
            let percent = percent(part);
            left(&context.look.bar(part, cells), cells) + &right(&percent, PERCENT)
        }
        None => String::new(),
    }
}

/// Sums over several, and the largest peak of any process of theirs.
fn sum(others: &[CommandUsage]) -> CommandUsage {
    let cpu_s: Vec<f64> = others.iter().filter_map(|of| of.cpu_s).collect();
    CommandUsage {
        command: format!("{} others", thousands(others.len() as f64)),
        count: others.iter().fold(0, |sum, of| sum.saturating_add(of.count)),
        cpu_s: (!cpu_s.is_empty()).then(|| cpu_s.iter().sum()),
        peak_rss_bytes: others.iter().filter_map(|of| of.peak_rss_bytes).max(),
        wall_s: others.iter().map(|of| of.wall_s).sum(),
        gpu: None,
    }
}
