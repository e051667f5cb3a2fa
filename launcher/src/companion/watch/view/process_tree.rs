//! The process tree.

use gpu_track_collector::report::quote;

use super::canvas::{Canvas, Look};
use super::text::{UNKNOWN, column, count, percent, some_bytes};
use crate::companion::watch::frame::{Frame, Stage};
use crate::companion::watch::model::Model;
use crate::companion::watch::tree::Row;

/// Least columns of a name. On a narrower terminal, figures are cut.
const LEAST_NAME_WIDTH: usize = 8;

/// Draws the processes from the canvas's row on, above the row `end`: a title, the head of the table, and as many rows as fit.
pub(super) fn draw(model: &Model, end: u16, canvas: &mut Canvas<'_>) {
    let head =
        |rss: &str| figures(model, ["LIVE", rss, "CPU", "CPU s", "GPU MEM", "ENDED"].map(String::from));
    let name_width = canvas.width().saturating_sub(head("").len()).max(LEAST_NAME_WIDTH);
    if canvas.row >= end {
        return;
    }
    canvas.line(&quote::cut(&title(model), canvas.width()), Look::Head);
    if canvas.row >= end {
        return;
    }
    // A tracking file has no RSS of a moment, but the peak of each process's whole life.
    let rss = if model.run.length_s.is_some() { "PEAK RSS" } else { "RSS" };
    canvas.line(&format!("{}{}", column("COMMAND", name_width), head(rss)), Look::Dim);
    let room = usize::from(end.saturating_sub(canvas.row));
    // The selected row stays in sight.
    let first = if model.is_interactive { (model.selected + 1).saturating_sub(room) } else { 0 };
    // A text can't be scrolled: its last row counts those that have no room.
    let is_cut = !model.is_interactive && model.rows.len() > room;
    let shown = if is_cut { room.saturating_sub(1) } else { room };
    for (at, row) in model.rows.iter().enumerate().skip(first).take(shown) {
        let look = if model.is_interactive && at == model.selected {
            Look::Selected
        } else if row.live == 0 {
            Look::Dim
        } else {
            Look::Plain
        };
        canvas.line(&line(model, row, name_width), look);
    }
    if is_cut {
        canvas.line(&format!("(and {} more rows)", model.rows.len() - shown), Look::Dim);
    }
}

/// Says how many processes there are, and what is not in the list.
fn title(model: &Model) -> String {
    let Frame { stage, processes, threads, others, ended, .. } = &model.frame;
    let live = count(*processes);
    let mut parts = vec![match stage {
        // The most of the sample; the rows are those of the moment, which can have fewer.
        Stage::Replayed => {
            // Not every form of tracking file has threads.
            let threads = threads.map_or(String::new(), |threads| format!(" and {threads} threads"));
            format!("PROCESSES up to {live} live{threads} in this sample")
        }
        _ => format!("PROCESSES {live} live, {} threads", count(*threads)),
    }];
    // `others` are not in the frame's list. The unlisted ones are, but have no row.
    if *others > 0 {
        parts.push(format!("{others} smaller ones not listed"));
    }
    if model.unlisted > 0 {
        parts.push(format!("{} more not listed", model.unlisted));
    }
    parts.push(format!("{} ended", count(ended.as_ref().map(|ended| ended.count))));
    if let Some(left_out) = ended.as_ref().map(|ended| ended.other_commands).filter(|count| *count > 0) {
        parts.push(format!("{left_out} commands of these not listed"));
    }
    if !model.shape.filter.is_empty() {
        parts.push(format!("with \"{}\"", model.shape.filter));
    }
    if model.is_interactive {
        parts.push(format!("by {}", model.shape.sort.name()));
    }
    parts.join(", ")
}

/// Makes the line of a row: its name, indented by its depth, and its figures. They are of the live processes, or of the ended ones
/// if none lives.
fn line(model: &Model, row: &Row, name_width: usize) -> String {
    let mark = match (row.has_children, row.is_folded) {
        (true, true) => "+ ",
        (true, false) => "- ",
        (false, _) => "  ",
    };
    // The indent is at most a third of the column, so that names deep in the tree have room.
    let indent = " ".repeat((2 * row.depth).min(name_width / 3)) + mark;
    let name = match row.pid {
        Some(pid) => format!("{indent}{} [{pid}]", row.command),
        None => format!("{indent}{}", row.command),
    };
    let ended = row.ended.map_or(String::new(), |ended| ended.count.to_string());
    let figures = match row.live {
        // Of ended processes, only the largest peak and the sum of CPU time are known.
        0 => {
            let of_ended = row.ended.unwrap_or_default();
            figures(
                model,
                [
                    "0".into(),
                    some_bytes(of_ended.peak_rss_bytes, model.unit),
                    String::new(),
                    cpu_seconds(of_ended.cpu_s),
                    String::new(),
                    ended,
                ],
            )
        }
        live => figures(
            model,
            [
                live.to_string(),
                some_bytes(row.rss_bytes, model.unit),
                percent(row.cpu_percent),
                cpu_seconds(row.cpu_s),
                some_bytes(row.gpu_bytes, model.unit),
                ended,
            ],
        ),
    };
    format!("{}{figures}", column(&name, name_width))
}

/// Writes seconds of CPU time that may be unknown.
fn cpu_seconds(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.into(), gpu_track_collector::report::figures::short)
}

/// Writes figures in their columns. Those of GPUs are left out if there is no GPU. CPU utilization is left out in a finished run,
/// because its file has only the CPU time of processes.
fn figures(model: &Model, [live, rss, cpu, cpu_s, gpu, ended]: [String; 6]) -> String {
    let cpu = if model.run.length_s.is_some() { String::new() } else { format!(" {cpu:>6}") };
    let gpu = if model.frame.gpus.is_empty() { String::new() } else { format!(" {gpu:>8}") };
    format!("{live:>6} {rss:>8}{cpu} {cpu_s:>7}{gpu} {ended:>6}")
}
