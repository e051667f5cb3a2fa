//! The view: a pure function of the model, onto a buffer of any size.
//!
//! From top to bottom: title, alerts, bars, RAM over time, processes, GPUs, coverage, events, keys.
//! What has no room is left out: the chart first, then events, coverage and GPUs.

mod bars;
mod canvas;
mod chart;
mod facts;
mod help;
mod process_tree;
#[cfg(test)]
mod tests;
pub(super) mod text;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use self::canvas::{Canvas, Look};
use super::frame::Frame;
use super::model::Model;

/// Least rows for the processes, with their head.
const LEAST_PROCESS_ROWS: u16 = 3;
/// Most rows of the chart in a text, and on a terminal.
const MOST_CHART_ROWS: (u16, u16) = (8, 40);
/// A chart with so many rows has another one of CPU below it.
const ROWS_WITH_CPU: u16 = 6;
/// The chart of CPU gets one of so many rows.
const PART_OF_CPU: u16 = 3;
/// Rows of the processes beside the list: title and head.
const PROCESS_FRAME_ROWS: usize = 2;
/// Rows of the chart beside the chart itself: its head, its axis and its legend.
const CHART_FRAME_ROWS: u16 = 4;
/// Most rows of the alerts. On a small terminal, also the most rows each of GPUs, coverage and events.
const MOST_FACT_ROWS: u16 = 3;
/// A terminal with fewer rows is small.
const SMALL_BELOW_ROWS: u16 = 40;
/// Rows of a text for all but its lists: more than title, alerts, bars, chart and heads take. Empty ones are cut off.
const OTHER_TEXT_ROWS: usize = 64;

/// Draws the model onto the whole buffer.
pub(super) fn view(model: &Model, buffer: &mut Buffer) {
    let area = buffer.area;
    buffer.reset();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut canvas = Canvas::new(buffer, model.console);
    if model.has_help {
        help::draw(model, &mut canvas);
        return;
    }
    bars::title(model, &mut canvas);
    facts::section("ALERTS", &model.frame.alerts, MOST_FACT_ROWS, Look::Bad, &mut canvas);
    bars::draw(model, &mut canvas);
    let key_rows = u16::from(model.is_interactive);
    let left = area.height.saturating_sub(canvas.row + key_rows);
    let wanted = rows_below_wanted(model, area.width.into());
    let [gpu_rows, coverage_rows, event_rows] =
        shares(left.saturating_sub(LEAST_PROCESS_ROWS), wanted, is_small(area.height));
    let rows_below = gpu_rows + coverage_rows + event_rows;
    // The chart gets half of what is left, or more if the processes need less than the other half.
    let left = left.saturating_sub(rows_below);
    let processes = u16::try_from(model.rows.len() + PROCESS_FRAME_ROWS).unwrap_or(u16::MAX);
    let most = if model.is_interactive { MOST_CHART_ROWS.1 } else { MOST_CHART_ROWS.0 };
    let of_chart = (left / 2).max(left.saturating_sub(processes));
    let chart_rows = of_chart.saturating_sub(CHART_FRAME_ROWS).min(most);
    // The head of the chart of CPU is one of its rows.
    let cpu_rows = if chart_rows >= ROWS_WITH_CPU { chart_rows / PART_OF_CPU } else { 0 };
    if chart_rows > 0 {
        chart::draw(model, chart_rows - cpu_rows, cpu_rows.saturating_sub(1), &mut canvas);
    }
    let processes_end = area.height.saturating_sub(key_rows + rows_below);
    process_tree::draw(model, processes_end, &mut canvas);
    // On a terminal the rest is at the lower edge. As text, it follows the processes.
    if model.is_interactive {
        canvas.row = processes_end;
    }
    facts::gpus(model, gpu_rows, &mut canvas);
    facts::section("COVERAGE", &model.frame.coverage, coverage_rows, Look::Plain, &mut canvas);
    facts::section("EVENTS", &model.frame.events, event_rows, Look::Plain, &mut canvas);
    if model.is_interactive {
        canvas.row = area.height - 1;
        help::keys(model, &mut canvas);
    }
}

/// How many rows the parts below the processes want: GPUs, coverage and events.
fn rows_below_wanted(model: &Model, width: usize) -> [u16; 3] {
    let Frame { coverage, events, .. } = &model.frame;
    [facts::gpu_rows(model), facts::rows_of(coverage, width), facts::rows_of(events, width)]
}

/// Shares out `rows`: each part, in the order of the parts, gets the rows that it wants, until none is left. On a small terminal a
/// part gets at most [`MOST_FACT_ROWS`].
fn shares(mut rows: u16, wanted: [u16; 3], is_small: bool) -> [u16; 3] {
    wanted.map(|wanted| {
        let most = if is_small { wanted.min(MOST_FACT_ROWS) } else { wanted };
        let share = most.min(rows);
        rows -= share;
        share
    })
}

/// Whether this is the height of a small terminal, on which [`shares`] gives each part few rows. A text is always higher.
const fn is_small(height: u16) -> bool {
    height < SMALL_BELOW_ROWS
}

/// Draws the model as text of so many columns, with as many lines as it takes; about 65,000 cells at most.
pub(super) fn text(model: &Model, columns: u16) -> String {
    let below = rows_below_wanted(model, columns.into()).map(usize::from);
    let listed = model.rows.len() + below.iter().sum::<usize>();
    let height = u16::try_from(listed.saturating_add(OTHER_TEXT_ROWS)).unwrap_or(u16::MAX);
    // The buffer counts its cells in 16 bits.
    let height = height.min(u16::MAX / columns.max(1));
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height));
    view(model, &mut buffer);
    canvas::lines(&buffer)
}
