//! Words on a stacked chart: names on areas, the limit, the peak.

use super::figure::{Panel, percent};
use super::time::Time;
use crate::html::colours;
use crate::html::escape::escape;
use crate::quote;

/// Height of the plot, pixels.
pub(super) const HEIGHT: f64 = 180.0;
/// Pixels of a plot on a wide page; on a narrow one, the style leaves names out.
const PAGE: f64 = 1000.0;
/// Pixels that a letter takes about.
const LETTER: f64 = 7.0;
/// Least height of the area behind a name, pixels.
const NAME_HEIGHT: f64 = 15.0;
/// What keeps words readable on areas.
const HALO: &str = "class=\"halo\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";
/// A longer name is in the legend alone.
const NAME: usize = 24;

/// Writes a name where its area is highest. `None`: it fits nowhere.
pub(super) fn name(
    time: &Time,
    name: &str,
    below: Option<&Vec<Option<f64>>>,
    above: &[Option<f64>],
    top: f64,
) -> Option<String> {
    let name = quote::escape(name);
    let columns = quote::width(&name);
    if columns > NAME {
        return None;
    }
    let part = (columns as f64 + 1.0) * LETTER / PAGE;
    let lower = |at: usize| below.map_or(Some(0.0), |below| below.get(at).copied().flatten());
    let band = |at: usize| {
        Some((time.part(time.start_s[at]), time.part(time.end_s[at]), lower(at)?, (*above.get(at)?)?))
    };
    let count = time.start_s.len().min(time.end_s.len());
    // From each point on, as many as the name is wide: where all of them have an area, and that is the highest.
    let candidate = |first: usize| {
        let (left, _, mut low, mut high) = band(first)?;
        for at in first.. {
            let (_, right, lower, upper) = (at < count).then(|| band(at)).flatten()?;
            (low, high) = (low.max(lower), high.min(upper));
            if right - left >= part {
                return Some((high - low, (left + right) / 2.0, (high + low) / 2.0));
            }
        }
        None
    };
    let best =
        (0..count).filter_map(candidate).reduce(|best, other| if other.0 > best.0 { other } else { best });
    let (_, middle, value) = best.filter(|(height, ..)| height / top * HEIGHT >= NAME_HEIGHT)?;
    let y = Panel::y_of(value, top, HEIGHT) + 4.0;
    Some(format!(
        "<text class=\"name\" x=\"{}%\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
        percent(middle),
        colours::ON_AREA,
        escape(&name)
    ))
}

/// Draws a limit, with words at its right end, or at its left one.
pub(super) fn limit(value: f64, words: &str, top: f64, is_left: bool) -> String {
    let y = Panel::y_of(value, top, HEIGHT);
    let (x, anchor) = if is_left { ("4", "start") } else { ("100%", "end") };
    format!(
        "<line class=\"lm\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"6 3\"/><text x=\"{x}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {HALO}>{}</text>\n",
        colours::LIMIT,
        y - 5.0,
        escape(words)
    )
}

/// Marks a moment, with words above it.
pub(super) fn moment(part: f64, value: f64, words: &str, top: f64) -> String {
    let y = Panel::y_of(value, top, HEIGHT);
    let anchor = match part {
        ..0.2 => "start",
        0.8.. => "end",
        _ => "middle",
    };
    let x = percent(part);
    format!(
        "<circle cx=\"{x}%\" cy=\"{y:.1}\" r=\"3.5\"/><text x=\"{x}%\" y=\"{:.1}\" text-anchor=\"{anchor}\" \
         font-weight=\"600\" {HALO}>{}</text>\n",
        y - 8.0,
        escape(words)
    )
}
