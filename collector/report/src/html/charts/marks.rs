//! Words on a stacked chart: names on areas, the limit, the peak.

use super::figure::{ABOVE, Panel, percent};
use super::time::Time;
use crate::html::colours;
use crate::html::escape::escape;
use crate::quote;

/// Height of the plot, pixels.
pub(super) const HEIGHT: f64 = 180.0;
/// Width of a plot on a wide page, pixels. On a narrow page, the style leaves names out.
const PLOT_WIDTH: f64 = 1000.0;
/// About the width of a letter, pixels.
const LETTER_WIDTH: f64 = 7.0;
/// Least height of an area that has its name on it, pixels.
const NAME_HEIGHT: f64 = 15.0;
/// From the middle of a line of text down to its baseline, pixels.
const MIDDLE_TO_BASELINE: f64 = 4.0;
/// From the line of a limit up to the baseline of its words, pixels.
const WORDS_ABOVE_LIMIT: f64 = 5.0;
/// From the middle of a dot up to the baseline of its words, pixels.
const WORDS_ABOVE_DOT: f64 = 8.0;
/// Attributes of words: a white outline keeps them readable on areas.
const HALO: &str = "class=\"halo\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";
/// Maximum number of columns of a name on an area. A longer one is in the legend alone.
const NAME_COLUMNS: usize = 24;

/// Writes the name of an area where the area is highest. `None`: the name is too long, or fits nowhere.
///
/// `lower` and `upper` are the area's edges at each point of `time`; without `lower`, the area stands on zero. `top`: the value at
/// the top of the plot.
pub(super) fn name(
    time: &Time,
    name: &str,
    lower: Option<&Vec<Option<f64>>>,
    upper: &[Option<f64>],
    top: f64,
) -> Option<String> {
    let name = quote::escape(name);
    let columns = quote::width(&name);
    if columns > NAME_COLUMNS {
        return None;
    }
    let width = (columns as f64 + 1.0) * LETTER_WIDTH / PLOT_WIDTH;
    let room = highest_room(time, lower, upper, width)?;
    if room.height / top * HEIGHT < NAME_HEIGHT {
        return None;
    }
    let baseline = Panel::y_of(room.value, top, HEIGHT) + MIDDLE_TO_BASELINE;
    Some(format!(
        "<text class=\"name\" x=\"{}%\" y=\"{baseline:.1}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
        percent(room.middle),
        colours::ON_AREA,
        escape(&name)
    ))
}

/// A rectangle within an area.
struct Room {
    /// Height, in the unit of the values.
    height: f64,
    /// Where its middle is, as a part of the run.
    middle: f64,
    /// The value at half its height.
    value: f64,
}

/// Finds the highest rectangle in an area that is at least `width` wide, a part of the run. `lower` and `upper` are as in
/// [`name`]. `None`: nowhere are both edges known for so long.
fn highest_room(
    time: &Time,
    lower: Option<&Vec<Option<f64>>>,
    upper: &[Option<f64>],
    width: f64,
) -> Option<Room> {
    let lower_at = |at: usize| lower.map_or(Some(0.0), |lower| lower.get(at).copied().flatten());
    let upper_at = |at: usize| upper.get(at).copied().flatten();
    let count = time.start_s.len().min(time.end_s.len());
    // Takes points from `first` on until they are wide enough.
    let room_from = |first: usize| {
        let left = time.part(time.start_s[first]);
        let (mut low, mut high) = (lower_at(first)?, upper_at(first)?);
        for at in first..count {
            (low, high) = (low.max(lower_at(at)?), high.min(upper_at(at)?));
            let right = time.part(time.end_s[at]);
            if right - left >= width {
                let (middle, value) = ((left + right) / 2.0, (high + low) / 2.0);
                return Some(Room { height: high - low, middle, value });
            }
        }
        None
    };
    let rooms = (0..count).filter_map(room_from);
    rooms.reduce(|best, other| if other.height > best.height { other } else { best })
}

/// Draws a limit as a line, with words above its right end, or above its left one if `is_left`. `top`: the value at the top of
/// the plot.
pub(super) fn limit(value: f64, words: &str, top: f64, is_left: bool) -> String {
    let y = Panel::y_of(value, top, HEIGHT);
    let (x, anchor) = if is_left { ("4", "start") } else { ("100%", "end") };
    format!(
        "<line class=\"lm\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"6 3\"/><text x=\"{x}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {HALO}>{}</text>\n",
        colours::LIMIT,
        y - WORDS_ABOVE_LIMIT,
        escape(words)
    )
}

/// Marks the moment at which a lack of memory ended a process, with a line and words beside its foot. `part`: the moment, from 0
/// to 1 of the run; `tip`: the tooltip.
pub(super) fn end(part: f64, words: &str, tip: &str) -> String {
    let x = percent(part);
    let (dx, anchor) = if part < 0.5 { (6, "start") } else { (-6, "end") };
    format!(
        "<g class=\"mc\"><title>{}</title><line class=\"lm\" x1=\"{x}%\" x2=\"{x}%\" y1=\"{ABOVE}\" y2=\"{}\" stroke=\"{}\" \
         stroke-width=\"2\"/><text x=\"{x}%\" dx=\"{dx}\" y=\"{}\" text-anchor=\"{anchor}\" font-weight=\"600\" {HALO}>{}</text></g>\n",
        escape(tip),
        ABOVE + HEIGHT,
        colours::LIMIT,
        ABOVE + HEIGHT - WORDS_ABOVE_DOT,
        escape(words)
    )
}

/// Marks a value at a moment with a dot, and words above it. `part`: the moment, from 0 to 1 of the run; `top`: the value at the
/// top of the plot.
pub(super) fn moment(part: f64, value: f64, words: &str, top: f64) -> String {
    let y = Panel::y_of(value, top, HEIGHT);
    // Near an end of the plot, the words reach from the dot towards its middle.
    let anchor = match part {
        ..0.2 => "start",
        0.8.. => "end",
        _ => "middle",
    };
    let x = percent(part);
    format!(
        "<circle cx=\"{x}%\" cy=\"{y:.1}\" r=\"3.5\"/><text x=\"{x}%\" y=\"{:.1}\" text-anchor=\"{anchor}\" \
         font-weight=\"600\" {HALO}>{}</text>\n",
        y - WORDS_ABOVE_DOT,
        escape(words)
    )
}
