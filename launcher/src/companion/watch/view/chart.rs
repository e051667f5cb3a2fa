//! RAM from the start of the run, stacked by command, and CPU below it. On a terminal with colours a command has a colour, elsewhere a
//! letter.

use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::report::{figures, quote};

use super::canvas::{Canvas, Look};
use super::text::{UNKNOWN, bytes, column, cores};
use crate::companion::watch::history::Column;
use crate::companion::watch::model::Model;

/// Letters of the commands with most RAM.
const LETTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Stands for all other commands.
const OTHERS: &str = ".";
/// Stands for RAM of which the commands are not known.
const UNSPLIT: &str = ":";
/// Columns of the labels on the left.
const LABEL_WIDTH: usize = 8;
/// The history is late if it begins more than this after the start of the run, seconds.
const LATE_S: f64 = 1.0;
/// Columns for how many commands have no room in the legend.
const MORE_WIDTH: usize = 5;
/// Cells that are filled from below: by no eighth, by one, and so on to all eight.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Most columns of a name in the legend.
const NAME_WIDTH: usize = 14;

/// Draws the chart's head, `rows` rows of RAM, its axis and legend, and `cpu_rows` rows of CPU. [`super::CHART_FRAME_ROWS`] is at least
/// what the other lines take.
pub(super) fn draw(model: &Model, rows: u16, cpu_rows: u16, canvas: &mut Canvas<'_>) {
    let names = model.history.largest_commands(LETTERS.len());
    let is_coloured = is_coloured(model);
    // A finished run is shown as a whole.
    let end_s = model.run.length_s.unwrap_or(model.frame.at_s);
    let width = canvas.width().saturating_sub(LABEL_WIDTH + 1);
    let columns = model.history.columns(end_s, width, &names);
    let top = columns.iter().flatten().map(|column| column.ram_bytes).max().unwrap_or(0);
    let top_label = if columns.iter().all(Option::is_none) { UNKNOWN.into() } else { bytes(top, model.unit) };
    canvas.pieces(&[("RAM over time", Look::Head), (&head_note(model), Look::Dim)]);
    let stacks: Vec<Vec<Cell>> =
        columns.iter().map(|column| stack(column.as_ref(), top, rows.into())).collect();
    // From the top row to the lowest one, which is 0 in a stack.
    for row in (0..usize::from(rows)).rev() {
        let label = if row + 1 == usize::from(rows) { top_label.as_str() } else { "" };
        let mut pieces = vec![(pad_left(label) + " ", Look::Dim)];
        for stack in &stacks {
            pieces.push(match stack.get(row) {
                None => (" ".into(), Look::Plain),
                Some(Cell::Unsplit) => (if is_coloured { "▒" } else { UNSPLIT }.into(), Look::Dim),
                Some(Cell::Others) => (if is_coloured { "░" } else { OTHERS }.into(), Look::Dim),
                Some(Cell::Command(rank)) => (mark(*rank, is_coloured).into(), Look::Command(*rank)),
            });
        }
        canvas.pieces(&pieces);
    }
    axis(model, end_s, width, canvas);
    legend(model, &names, canvas);
    if cpu_rows > 0 {
        cpu(model, &columns, cpu_rows, canvas);
    }
}

/// Whether commands have colours. A text has none.
fn is_coloured(model: &Model) -> bool {
    model.is_interactive && model.console.has_colour && model.console.is_unicode
}

/// What stands for a command.
fn mark(rank: usize, is_coloured: bool) -> &'static str {
    if is_coloured { EIGHTHS[8] } else { LETTERS[rank] }
}

/// Draws CPU utilization: its head, and `rows` rows. The top is what the run may use, or what it used most.
fn cpu(model: &Model, columns: &[Option<Column>], rows: u16, canvas: &mut Canvas<'_>) {
    let percents: Vec<Option<f64>> = columns.iter().map(|column| column.as_ref()?.cpu_percent).collect();
    let most = percents.iter().flatten().copied().fold(0.0, f64::max);
    let usable = model.run.usable.as_ref().map_or(0.0, |usable| usable.cores.count * 100.0);
    let peak = model.peaks.cpu_percent.unwrap_or(0.0);
    let top = if usable > 0.0 { usable } else { most.max(peak) };
    let of = format!("  up to {} cores", cores(Some(top)));
    canvas.pieces(&[("CPU over time", Look::Head), (&of, Look::Dim)]);
    let is_unicode = canvas.is_unicode();
    for row in (0..rows).rev() {
        let label = if row + 1 == rows { cores(Some(top)) } else { String::new() };
        let cell = |percent: &Option<f64>| {
            // How many rows the value fills, and how much of this row.
            let height = percent.filter(|_| top > 0.0).map_or(0.0, |percent| percent / top * f64::from(rows));
            let eighths = ((height - f64::from(row)).clamp(0.0, 1.0) * 8.0).round() as usize;
            // Even the smallest utilization is shown.
            let eighths = if row == 0 && height > 0.0 { eighths.max(1) } else { eighths };
            match eighths {
                eighths if is_unicode => EIGHTHS[eighths],
                0 => " ",
                1..=4 => ".",
                _ => "#",
            }
        };
        let line: String = percents.iter().map(cell).collect();
        canvas.pieces(&[(pad_left(&label) + " ", Look::Dim), (line, Look::Plain)]);
    }
}

/// What stands after the chart's title. Of a finished run whose commands are known, it says that the stack shows what each adds to the
/// RAM: a recording tells that. In a run that goes on, only the RSS of each process is known, by which the RAM is split. There it says
/// for what time RAM or commands are unknown.
fn head_note(model: &Model) -> String {
    if model.run.length_s.is_some() {
        let has_commands = model.history.commands_since_s().is_some();
        return if has_commands { "  by what each command adds".into() } else { String::new() };
    }
    // The first stretch can begin a little after the start, which is not worth a word.
    let is_late = |since_s: &f64| *since_s > LATE_S;
    let since = model.history.since_s().filter(is_late);
    let commands = model.history.commands_since_s().filter(is_late);
    let since = since.map(|s| format!("  unknown before {}", figures::readable(s)));
    let commands = commands.map(|s| format!("  commands unknown before {}", figures::readable(s)));
    since.into_iter().chain(commands).collect::<Vec<_>>().join(",")
}

/// Writes a label at the right edge of the labels' columns.
fn pad_left(label: &str) -> String {
    format!("{label:>LABEL_WIDTH$}")
}

/// What a cell of the chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// RAM of the command with this rank among those with a letter.
    Command(usize),
    /// RAM of all other commands.
    Others,
    /// RAM of which the commands are not known.
    Unsplit,
}

/// The cells of a column from below, as many as its RAM takes. There are none if the RAM is 0 or unknown. `top`: the RAM of a
/// full column of `rows` cells, bytes.
fn stack(column: Option<&Column>, top: u64, rows: usize) -> Vec<Cell> {
    let Some(column) = column.filter(|column| column.ram_bytes > 0) else { return Vec::new() };
    let cells = (column.ram_bytes as f64 / top.max(1) as f64 * rows as f64).round() as usize;
    // Even the smallest RAM is shown.
    let cells = cells.clamp(1, rows);
    let Some(commands) = &column.by_command else { return vec![Cell::Unsplit; cells] };
    // The upper end of each command in the stack, bytes. What commands add can be of different moments of a sample, so together
    // they can have more than the largest RAM.
    let mut ends: Vec<f64> = Vec::new();
    let mut end = 0.0;
    for bytes in commands {
        end += *bytes as f64;
        ends.push(end);
    }
    let largest = (0..commands.len()).max_by_key(|rank| (commands[*rank], std::cmp::Reverse(*rank)));
    // A cell is of the command in its middle.
    let cell = |row: usize| {
        let middle = (row as f64 + 0.5) / rows as f64 * top as f64;
        // If all commands end below the middle of the lowest cell, that cell is of the largest command.
        let are_small = row == 0 && end < middle && end > 0.0;
        let rank = ends.iter().position(|end| *end >= middle).or(largest.filter(|_| are_small));
        rank.map_or(Cell::Others, Cell::Command)
    };
    (0..cells).map(cell).collect()
}

/// Draws the axis, from 0 to `end_s`, in `width` columns. Of a finished run it marks the moment that is shown.
fn axis(model: &Model, end_s: f64, width: usize, canvas: &mut Canvas<'_>) {
    let end = figures::readable(end_s);
    let mut line = vec![if canvas.is_unicode() { "─" } else { "-" }; width];
    if model.run.length_s.is_some() && end_s > 0.0 {
        let at = (model.frame.at_s / end_s * width as f64) as usize;
        if let Some(mark) = line.get_mut(at.min(width.saturating_sub(1))) {
            *mark = "^";
        }
    }
    let start = pad_left("0 s");
    let kept = width.saturating_sub(quote::width(&end) + 1);
    let line: String = line.into_iter().take(kept).collect();
    canvas.line(&format!("{start} {line} {end}"), Look::Dim);
}

/// Draws the legend: the letter of each command, and its RAM at the moment that is shown. The commands with most RAM at that moment
/// come first. If some have no room, their number stands at the end. `names`: the commands in the order of their letters.
fn legend(model: &Model, names: &[&str], canvas: &mut Canvas<'_>) {
    let now = model.frame.ram_by_command.as_deref().unwrap_or_default();
    let bytes_of = |name: &str| now.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes);
    let mut entries: Vec<(usize, &str, Option<u64>)> =
        names.iter().enumerate().map(|(rank, name)| (rank, *name, bytes_of(name))).collect();
    entries.order_by_key(|(rank, _, bytes)| (std::cmp::Reverse(*bytes), *rank));
    let at = format!("at {}", figures::readable(model.frame.at_s));
    let mut left = canvas.width().saturating_sub(quote::width(&at));
    let mut pieces = vec![(at, Look::Dim)];
    let count = entries.len();
    for (position, (rank, name, bytes)) in entries.into_iter().enumerate() {
        let name = column(name, quote::width(&quote::escape(name)).min(NAME_WIDTH));
        // `-`: the command has little RAM at this moment or none, or the RAM by command is unknown.
        let bytes = bytes.map_or("-".into(), |value| super::text::bytes(value, model.unit));
        let (letter, told) = (format!("  {}", mark(rank, is_coloured(model))), format!(" {name} {bytes}"));
        let width = quote::width(&letter) + quote::width(&told);
        let kept_for_count = if position + 1 < count { MORE_WIDTH } else { 0 };
        if width + kept_for_count > left {
            pieces.push((format!("  +{}", count - position), Look::Dim));
            break;
        }
        left -= width;
        pieces.push((letter, Look::Command(rank)));
        pieces.push((told, Look::Plain));
    }
    canvas.pieces(&pieces);
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WATCH-2
    #[test]
    fn column_is_stacked_by_command_and_what_is_not_known_is_not_split() {
        let column = |ram_bytes, by_command: Option<&[u64]>| {
            stack(
                Some(&Column { ram_bytes, by_command: by_command.map(<[u64]>::to_vec), ..Column::default() }),
                100,
                4,
            )
        };
        let [a, b] = [Cell::Command(0), Cell::Command(1)];
        assert_eq!(column(100, Some(&[50, 25])), [a, a, b, Cell::Others]);
        assert_eq!(column(100, Some(&[0, 100])), [b; 4]);
        assert_eq!(column(1, Some(&[0, 1])), [b], "the smallest one is shown, too");
        assert_eq!(column(50, Some(&[90, 90])), [a; 2]);
        assert_eq!(column(50, None), [Cell::Unsplit; 2]);
        assert_eq!(column(100, Some(&[u64::MAX, u64::MAX])), [a; 4]);
        assert!(column(0, None).is_empty() && stack(None, 100, 4).is_empty());
    }
}
