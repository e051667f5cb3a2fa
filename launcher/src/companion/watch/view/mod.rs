//! The view: a pure function of the model, onto a buffer of any size.
//!
//! From top to bottom: title, bars, RAM over time, processes, GPUs, coverage, events, keys. Alarms belong between title and bars.
//! What has no room is left out: the chart first, then events, coverage and GPUs.

mod bars;
mod canvas;
mod chart;
mod facts;
mod help;
mod processes;
#[cfg(test)]
mod tests;
pub(super) mod text;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use self::canvas::Canvas;
use super::model::Model;

/// Least rows for the processes, with their head.
const LEAST_PROCESS_ROWS: u16 = 3;
/// Most rows of the chart itself.
const MOST_CHART_ROWS: u16 = 8;
/// Rows of the chart beside the chart itself: its head, its axis and its legend.
const CHART_FRAME_ROWS: u16 = 4;
/// Most rows of GPUs, of what is known, and of events where the terminal is small.
const FEW: u16 = 3;

/// Draws the model.
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
    bars::draw(model, &mut canvas);
    let last_rows = u16::from(model.is_interactive);
    let left = area.height.saturating_sub(canvas.row() + last_rows);
    let wanted = [facts::gpu_rows(model), facts::coverage_rows(model), facts::event_rows(model)];
    let below = shares(left.saturating_sub(LEAST_PROCESS_ROWS), wanted, is_small(area.height));
    let left = left.saturating_sub(below.iter().sum());
    // Processes have at least half of what the chart could take.
    let chart = (left / 2).saturating_sub(CHART_FRAME_ROWS).min(MOST_CHART_ROWS);
    if chart > 0 {
        chart::draw(model, chart, &mut canvas);
    }
    let end = area.height.saturating_sub(last_rows + below.iter().sum::<u16>());
    processes::draw(model, end, &mut canvas);
    // Without keys there is nothing to align with the lower edge.
    if model.is_interactive {
        canvas.go_to(end);
    }
    facts::gpus(model, below[0], &mut canvas);
    facts::coverage(model, below[1], &mut canvas);
    facts::events(model, below[2], &mut canvas);
    if model.is_interactive {
        canvas.go_to(area.height - 1);
        help::keys(model, &mut canvas);
    }
}

/// Shares rows out: each part gets what it wants, in order, or few rows where the terminal is small.
fn shares(mut rows: u16, wanted: [u16; 3], is_small: bool) -> [u16; 3] {
    wanted.map(|wanted| {
        let most = if is_small { wanted.min(FEW) } else { wanted };
        let share = most.min(rows);
        rows -= share;
        share
    })
}

/// Whether a terminal of this height is small.
const fn is_small(height: u16) -> bool {
    height < 40
}

/// Draws the model as text of so many columns, with as many lines as it takes.
pub(super) fn text(model: &Model, columns: u16) -> String {
    let listed =
        model.rows.len() + model.frame.gpus.len() * 2 + model.frame.events.len() + model.frame.coverage.len();
    let height = u16::try_from(listed.saturating_add(64)).unwrap_or(u16::MAX);
    // A buffer has at most as many cells as a number of 16 bits.
    let height = height.min(u16::MAX / columns.max(1));
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, height));
    view(model, &mut buffer);
    canvas::lines(&buffer)
}
