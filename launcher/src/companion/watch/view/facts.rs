//! Alerts that are on, GPUs with the run's processes on them, how figures are known, and what happened.

use gpu_track_collector::model::gpu::gpu_figure::GpuFigure;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::report::quote;

use super::canvas::{Canvas, Look};
use super::text::{UNKNOWN, percent, some_bytes};
use crate::companion::watch::gpus::{Gpu, names};
use crate::companion::watch::model::Model;

/// Columns of the head before coverage and events.
const HEAD_WIDTH: usize = 9;
/// Most columns of a GPU's product name, which is last in its line. The names of MIG instances differ at their ends.
const GPU_NAME_WIDTH: usize = 24;
/// The columns of a GPU's figures: the head, how wide it is, and the figure. `None`: its capacity.
const COLUMNS: [(&str, usize, Option<GpuFigure>); 6] = [
    ("UTIL", 5, Some(GpuFigure::Utilization)),
    ("RUN'S", 8, Some(GpuFigure::MemoryRun)),
    ("IN USE", 8, Some(GpuFigure::MemoryUsed)),
    ("OF", 8, None),
    ("POWER", 6, Some(GpuFigure::Power)),
    ("TEMP", 5, Some(GpuFigure::Temperature)),
];

/// How many rows the GPUs want: a head, one for each, and one for the run's processes on them. 0 without GPUs.
pub(super) fn gpu_rows(model: &Model) -> u16 {
    let rows = match model.frame.gpus.len() {
        0 => 0,
        gpus => 1 + gpus + usize::from(!gpu_users(model).is_empty()),
    };
    u16::try_from(rows).unwrap_or(u16::MAX)
}

/// The run's processes that have GPU memory: the bytes of each, and a text of the process and its bytes. Those with most come
/// first.
fn gpu_users(model: &Model) -> Vec<(u64, String)> {
    let user = |process: &crate::companion::watch::frame::Process| {
        let bytes = process.gpu_bytes.filter(|bytes| *bytes > 0)?;
        let pid = process.pid.map_or(UNKNOWN.into(), |pid| pid.to_string());
        Some((bytes, format!("{} [{pid}] {}", process.command, some_bytes(Some(bytes), model.unit))))
    };
    let mut users: Vec<(u64, String)> = model.frame.listed.iter().filter_map(user).collect();
    users.order_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    users
}

/// Draws the GPUs in at most so many rows. The head says how many have no room.
pub(super) fn gpus(model: &Model, rows: u16, canvas: &mut Canvas<'_>) {
    if rows == 0 {
        return;
    }
    let users: Vec<String> = gpu_users(model).into_iter().map(|(_, told)| told).collect();
    // The row of the processes has room only if the head and one GPU have theirs.
    let has_user_row = !users.is_empty() && rows > 2;
    let rows_for_gpus = rows - 1 - u16::from(has_user_row);
    let shown = usize::from(rows_for_gpus).min(model.frame.gpus.len());
    let hidden = model.frame.gpus.len() - shown;
    let more = if hidden > 0 { format!("({hidden} more)") } else { String::new() };
    let head = gpu_columns("GPUS", COLUMNS.map(|(head, ..)| head.to_owned()), &more);
    canvas.line(&head, Look::Head);
    for (name, gpu) in names(&model.frame.gpus).iter().zip(&model.frame.gpus).take(shown) {
        canvas.line(&gpu_line(model, name, gpu), Look::Plain);
    }
    if has_user_row {
        canvas.line(&format!("  on all of them: {}", users.join(", ")), Look::Plain);
    }
}

/// Makes the line of a GPU. `short_name`: that among the others.
fn gpu_line(model: &Model, short_name: &str, gpu: &Gpu) -> String {
    let bytes = |value| some_bytes(value, model.unit);
    let cell = |figure: GpuFigure| match (figure.row().unit, gpu.figures[figure]) {
        (None, value) => bytes(value.map(|bytes| bytes as u64)),
        (Some("%"), value) => percent(value),
        (Some(unit), Some(value)) => format!("{value:.0} {unit}"),
        (Some(_), None) => UNKNOWN.into(),
    };
    let cells = COLUMNS.map(|(.., figure)| figure.map_or_else(|| bytes(gpu.total_bytes), cell));
    let name = if gpu.name.is_empty() { &gpu.id } else { &gpu.name };
    gpu_columns(&format!("  {short_name}"), cells, name)
}

/// Makes a line of the table of GPUs: the head's, or that of a GPU. `last`: what stands in the last column.
fn gpu_columns(first: &str, cells: [String; COLUMNS.len()], last: &str) -> String {
    let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width, _))| format!(" {cell:>width$}"));
    format!("{first:<8}{}  {}", cells.collect::<String>(), quote::cut_middle(last, GPU_NAME_WIDTH))
}

/// How many rows a section of these lines wants, in so many columns.
pub(super) fn rows_of(lines: &[String], width: usize) -> u16 {
    u16::try_from(wrapped(lines, width).len()).unwrap_or(u16::MAX)
}

/// Breaks lines between words, so that each fits beside the head of its section.
fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    let room = width.saturating_sub(HEAD_WIDTH).max(1);
    let parts = lines.iter().flat_map(|line| {
        let wrapped = quote::wrap(quote::escape(line).split_whitespace(), room);
        // The further lines of a text are indented.
        wrapped.into_iter().enumerate().map(|(at, part)| if at == 0 { part } else { format!("  {part}") })
    });
    parts.collect()
}

/// Writes lines in at most so many rows, with `head` before the first one. If some have no room, the last row says how many.
pub(super) fn section(head: &str, lines: &[String], rows: u16, look: Look, canvas: &mut Canvas<'_>) {
    let shown = usize::from(rows);
    let lines = wrapped(lines, canvas.width());
    let hidden = lines.len().saturating_sub(shown);
    for (at, line) in lines.iter().take(shown).enumerate() {
        let head = if at == 0 { head } else { "" };
        let more = match at + 1 == shown && hidden > 0 {
            true => format!("  (and {hidden} more)"),
            false => String::new(),
        };
        // The count is not cut: the line gets the room that is left.
        let room = canvas.width().saturating_sub(HEAD_WIDTH + more.len());
        let line = quote::cut(line, room);
        canvas.pieces(&[(format!("{head:<HEAD_WIDTH$}"), Look::Head), (line, look), (more, Look::Dim)]);
    }
}
