//! RAM from the start of the run, stacked by command. Each command has a letter, so the chart needs no colours.

use gpu_track_collector::{figures, quote};

use super::canvas::{Canvas, Look};
use super::text::{UNKNOWN, bytes, column};
use crate::companion::watch::history::Column;
use crate::companion::watch::model::Model;

/// Letters of the commands with most RAM.
const LETTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// What stands for all other commands, and for RAM whose commands are not known.
const OTHERS: &str = ".";
const UNSPLIT: &str = ":";
/// Columns of the labels on the left.
const LABEL_WIDTH: usize = 8;
/// Most columns of a name in the legend.
const NAME_WIDTH: usize = 14;

/// Draws the chart with so many rows, and its head, axis and legend.
pub(super) fn draw(model: &Model, rows: u16, canvas: &mut Canvas<'_>) {
    let names = model.history.largest_commands(LETTERS.len());
    // A finished run is shown as a whole.
    let end_s = model.run.length_s.unwrap_or(model.frame.at_s);
    let width = canvas.width().saturating_sub(LABEL_WIDTH + 1);
    let columns = model.history.columns(end_s, width, &names);
    let top = columns.iter().flatten().map(|column| column.ram_bytes).max().unwrap_or(0);
    let top_label = if columns.iter().all(Option::is_none) { UNKNOWN.into() } else { bytes(top, model.unit) };
    canvas.pieces(&[("RAM over time", Look::Head), (&known(model), Look::Dim)]);
    let stacks: Vec<Vec<Option<usize>>> =
        columns.iter().map(|column| stack(column.as_ref(), top, rows.into())).collect();
    for row in (0..usize::from(rows)).rev() {
        let label = match row + 1 == usize::from(rows) {
            true => top_label.as_str(),
            false => "",
        };
        let mut pieces = vec![(pad_left(label) + " ", Look::Dim)];
        for stack in &stacks {
            pieces.push(match stack.get(row) {
                None => (" ".into(), Look::Plain),
                Some(None) => (UNSPLIT.into(), Look::Dim),
                Some(Some(rank)) => match LETTERS.get(*rank) {
                    Some(letter) => ((*letter).into(), Look::Command(*rank)),
                    None => (OTHERS.into(), Look::Dim),
                },
            });
        }
        canvas.pieces(&pieces);
    }
    axis(model, end_s, width, canvas);
    legend(model, &names, canvas);
}

/// Says of what time nothing is known.
fn known(model: &Model) -> String {
    if model.run.length_s.is_some() {
        return "  by what each command adds".into();
    }
    // The first stretch can begin a little after the start.
    let is_late = |since_s: &f64| *since_s > 1.0;
    let since = model.history.since_s().filter(is_late);
    let commands = model.history.commands_since_s().filter(is_late);
    let since = since.map(|s| format!("  unknown before {}", figures::readable(s)));
    let commands = commands.map(|s| format!("  commands unknown before {}", figures::readable(s)));
    since.into_iter().chain(commands).collect::<Vec<_>>().join(",")
}

fn pad_left(label: &str) -> String {
    format!("{label:>LABEL_WIDTH$}")
}

/// Gives what stands in a column from below: the rank of a command, that after the last letter for all others, and `None` where
/// commands are not known.
fn stack(column: Option<&Column>, top: u64, rows: usize) -> Vec<Option<usize>> {
    let Some(column) = column.filter(|column| column.ram_bytes > 0) else { return Vec::new() };
    let height = |bytes: u64| (bytes as f64 / top.max(1) as f64 * rows as f64).round() as usize;
    let full = height(column.ram_bytes).clamp(1, rows);
    let Some(commands) = &column.by_command else { return vec![None; full] };
    // What several commands add can be of different moments of a sample: together more than the largest.
    let sums: Vec<f64> = commands
        .iter()
        .scan(0.0, |sum, bytes| {
            *sum += *bytes as f64;
            Some(*sum)
        })
        .collect();
    let largest = (0..commands.len()).max_by_key(|rank| (commands[*rank], std::cmp::Reverse(*rank)));
    // A cell is of the command in its middle.
    let command = |row: usize| {
        let middle = (row as f64 + 0.5) / rows as f64 * top as f64;
        let is_smaller = row == 0 && sums.last().is_some_and(|sum| *sum < middle && *sum > 0.0);
        let rank = sums.iter().position(|sum| *sum >= middle).or(largest.filter(|_| is_smaller));
        Some(rank.unwrap_or(LETTERS.len()))
    };
    (0..full).map(command).collect()
}

/// Draws the axis: its ends, and the moment that is shown of a finished run.
fn axis(model: &Model, end_s: f64, width: usize, canvas: &mut Canvas<'_>) {
    let end = figures::readable(end_s);
    let mut line = vec![if canvas.is_unicode() { "─" } else { "-" }; width];
    if model.run.length_s.is_some() && end_s > 0.0 {
        let at = (model.frame.at_s / end_s * width as f64) as usize;
        if let Some(place) = line.get_mut(at.min(width.saturating_sub(1))) {
            *place = "^";
        }
    }
    let start = pad_left("0 s");
    let kept = width.saturating_sub(quote::width(&end) + 1);
    let line: String = line.into_iter().take(kept).collect();
    canvas.line(&format!("{start} {line} {end}"), Look::Dim);
}

/// Draws the legend, with the RAM of each command at the moment that is shown, those with most first.
fn legend(model: &Model, names: &[&str], canvas: &mut Canvas<'_>) {
    let now = model.frame.ram_by_command.as_deref().unwrap_or_default();
    let of = |name: &str| now.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes);
    let mut entries: Vec<(usize, &str, Option<u64>)> =
        names.iter().enumerate().map(|(rank, name)| (rank, *name, of(name))).collect();
    entries.sort_by_key(|(rank, _, bytes)| (std::cmp::Reverse(*bytes), *rank));
    let mut pieces = vec![(format!("at {}", figures::readable(model.frame.at_s)), Look::Dim)];
    for (rank, name, bytes) in entries {
        let name = column(name, quote::width(&quote::escape(name)).min(NAME_WIDTH));
        // A command that is not among those with most RAM of this moment has little or none.
        let bytes = bytes.map_or("-".into(), |value| super::text::bytes(value, model.unit));
        pieces.push((format!("  {}", LETTERS[rank]), Look::Command(rank)));
        pieces.push((format!(" {name} {bytes}"), Look::Plain));
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
            stack(Some(&Column { ram_bytes, by_command: by_command.map(<[u64]>::to_vec) }), 100, 4)
        };
        assert_eq!(column(100, Some(&[50, 25])), [Some(0), Some(0), Some(1), Some(6)]);
        assert_eq!(column(100, Some(&[0, 100])), [Some(1); 4]);
        assert_eq!(column(1, Some(&[0, 1])), [Some(1)], "the smallest one is shown, too");
        assert_eq!(column(50, Some(&[90, 90])), [Some(0); 2]);
        assert_eq!(column(50, None), [None; 2]);
        assert_eq!(column(100, Some(&[u64::MAX, u64::MAX])), [Some(0); 4]);
        assert!(column(0, None).is_empty() && stack(None, 100, 4).is_empty());
    }
}
