//! The keys.

use super::canvas::{Canvas, Look};
use crate::companion::watch::model::{Model, Prompt};

/// What each key does.
const KEYS: [(&str, &str); 12] = [
    ("q, Ctrl-C", "end"),
    ("up, down", "select a row; PgUp and PgDn pass ten"),
    ("Enter", "hide the children of the row, or show them"),
    ("c", "a row for each process, or for siblings of one command"),
    ("s", "sort by RSS, CPU, GPU memory, name"),
    ("/", "show commands whose name contains a text; Esc shows all"),
    ("f, space", "freeze, and go on"),
    ("u", "unit of memory"),
    ("?", "these lines"),
    ("left, right", "a finished run: a hundredth of it back or forward"),
    ("Home, End", "a finished run: its start or its end"),
    ("t", "a finished run: the second to go to"),
];

/// Draws the help, which takes the place of all else.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    canvas.line("Keys of gpu-track watch", Look::Head);
    for (key, meaning) in KEYS {
        canvas.pieces(&[(format!("  {key:<12}"), Look::Head), (meaning.into(), Look::Plain)]);
    }
    canvas.line("", Look::Plain);
    let figures = match model.run.length_s {
        Some(_) => {
            "RSS and CPU time of a process are those of its whole life; RAM is the largest of the sample."
        }
        None => {
            "RAM counts shared memory once; RSS counts it in each process. Commands share RAM by their RSS."
        }
    };
    canvas.line(figures, Look::Plain);
    canvas.line(
        "| in a bar is the peak: of RAM in the whole run, of the rest as far as it was seen. ? is unknown.",
        Look::Plain,
    );
}

/// The line of keys for a run that goes on, and for a finished one.
const KEYS_OF_LIVE: [&str; 8] =
    ["q end", "? keys", "s sort", "c each process", "Enter fold", "/ filter", "f freeze", "u unit"];
const KEYS_OF_FINISHED: [&str; 8] =
    ["q end", "? keys", "left/right/t time", "space stop", "s sort", "c each", "/ filter", "u unit"];

/// As many of the first keys as fit into so many columns.
fn that_fit(keys: &[&str], width: usize) -> String {
    let lines = (1..=keys.len()).map(|count| keys[..count].join("  "));
    lines.take_while(|line| line.len() <= width).last().unwrap_or_default()
}

/// Draws the line of keys, or what is being typed.
pub(super) fn keys(model: &Model, canvas: &mut Canvas<'_>) {
    let line = match &model.prompt {
        Some((Prompt::Filter, text)) => format!("command contains: {text}_"),
        Some((Prompt::Time, text)) => format!("second of the run: {text}_"),
        None if model.run.length_s.is_some() => that_fit(&KEYS_OF_FINISHED, canvas.width()),
        None => that_fit(&KEYS_OF_LIVE, canvas.width()),
    };
    canvas.line(&line, Look::Dim);
}
