//! What the user's terminal can show: width, characters, colours.

use crate::document::RamSpan;
use crate::document::Tone;
use crate::model::style::Console;
use crate::quote;

/// Columns of a page.
pub(super) const WIDTH: usize = 100;
/// Maximum number of columns of the summary.
const MOST_WIDTH: usize = 120;
/// The fewest columns that the summary is laid out for; lines of a narrower terminal wrap.
const LEAST_WIDTH: usize = 60;

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) console: Console,
}

impl Look {
    /// The columns of the summary.
    pub(super) fn width(&self) -> usize {
        usize::from(self.console.columns).clamp(LEAST_WIDTH, MOST_WIDTH)
    }

    /// Makes untrusted text harmless: nothing in it moves the cursor, and it is ASCII if the terminal shows only that.
    pub(super) fn text(&self, text: &str) -> String {
        self.ascii(quote::escape(text))
    }

    /// Renders the beginning of a command, in at most `width` columns.
    pub(super) fn command<S: AsRef<str>>(&self, words: &[S], width: usize) -> String {
        let mut line = String::new();
        for word in words {
            if quote::width(&line) > width {
                break;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += &self.ascii(quote::word(&quote::cut(word.as_ref(), width)));
        }
        quote::cut(&line, width)
    }

    /// Escapes what is not ASCII, if the terminal shows only ASCII.
    fn ascii(&self, text: String) -> String {
        if self.console.is_unicode { text } else { quote::ascii(&text) }
    }

    /// Puts `text` in the colour of `tone`, if the terminal has colours.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.console.has_colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Good => "1;32",
            Tone::Bad => "1;31",
            Tone::Caution => "33",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Draws a part of a whole, as the filled and the empty cells of a bar. More than the whole fills it.
    pub(super) fn bar(&self, part: f64, cells: usize) -> (String, String) {
        let filled = (part.clamp(0.0, 1.0) * cells as f64).round() as usize;
        let [full, empty] = if self.console.is_unicode { ["█", "·"] } else { ["#", "-"] };
        (full.repeat(filled), empty.repeat(cells - filled))
    }

    /// Draws heights over time, a character for each, as parts of the largest. A height that is not known is a blank.
    pub(super) fn sparkline(&self, heights: &[Option<u64>]) -> String {
        const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
        let levels = if self.console.is_unicode { UNICODE } else { ASCII };
        let largest = heights.iter().flatten().copied().max().unwrap_or(0).max(1);
        let cell = |height: &Option<u64>| {
            // One less, so that the largest height is in the last level and not above it.
            let level = (*height)?.saturating_sub(1) as f64 / largest as f64 * levels.len() as f64;
            levels.get(level as usize)
        };
        heights.iter().map(|height| cell(height).copied().unwrap_or(' ')).collect()
    }

    /// Breaks text into lines of at most `width` columns, between words; longer words are cut.
    pub(super) fn wrap(&self, text: &str, width: usize) -> Vec<String> {
        quote::wrap(self.text(text).split_whitespace().map(|word| quote::cut(word, width)), width)
    }
}

/// The largest RAM in each of `parts` equal parts of the run, bytes. `None` where no span reaches.
pub(super) fn heights(spans: &[RamSpan], wall_s: f64, parts: usize) -> Vec<Option<u64>> {
    let mut heights = vec![None; parts];
    let part_of = |at_s: f64| (at_s / wall_s * parts as f64).max(0.0);
    for span in spans {
        let first = part_of(span.start_s) as usize;
        // A span that ends where a part begins is not in it.
        let end = (part_of(span.end_s).ceil() as usize).max(first.saturating_add(1));
        for height in heights.iter_mut().take(end).skip(first) {
            *height = Some(height.unwrap_or(0).max(span.max_bytes as u64));
        }
    }
    heights
}

/// Aligns text to the left in `width` columns. Wider text stays as it is.
pub(crate) fn left(text: &str, width: usize) -> String {
    text.to_owned() + &blanks(text, width)
}

/// Aligns text to the right in `width` columns. Wider text stays as it is.
pub(crate) fn right(text: &str, width: usize) -> String {
    blanks(text, width) + text
}

/// The blanks that fill `text` up to `width` columns. `format!` is not used for that, because it panics for widths above 65,535.
fn blanks(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(quote::width(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(is_unicode: bool) -> Look {
        Look { console: Console { is_unicode, ..Console::default() } }
    }

    #[test]
    fn bars_show_a_part_of_a_whole() {
        let bar = |is_unicode, part, cells| {
            let (filled, empty) = look(is_unicode).bar(part, cells);
            filled + &empty
        };
        assert_eq!(bar(true, 0.65, 20), "█████████████·······");
        assert_eq!(bar(false, 0.65, 20), "#############-------");
        assert_eq!([bar(false, 7.0, 4), bar(false, f64::NAN, 4)], ["####", "----"]);
    }

    #[test]
    fn each_part_of_the_run_has_the_largest_of_its_spans() {
        let span = |start_s, end_s, max_bytes| RamSpan { start_s, end_s, max_bytes: f64::from(max_bytes) };
        let spans = [span(0.0, 1.0, 5), span(1.0, 1.5, 9), span(1.5, 3.0, 2)];
        assert_eq!(heights(&spans, 4.0, 4), [Some(5), Some(9), Some(2), None]);
        assert_eq!(heights(&spans, 3.0, 2), [Some(9), Some(2)]);
        assert_eq!(heights(&[span(0.0, 0.0, 1)], 0.0, 2), [Some(1), None]);
    }

    #[test]
    fn sparkline_begins_at_zero_and_ends_at_the_maximum() {
        let heights = [Some(0), Some(1), Some(100), Some(50), None, Some(101)];
        assert_eq!(look(true).sparkline(&heights), "▁▁█▄ █");
        assert_eq!(look(false).sparkline(&heights), "__#- #");
        assert_eq!(look(true).sparkline(&[]), "");
    }

    #[test]
    fn text_is_wrapped_by_columns() {
        assert_eq!(look(true).wrap("one two  three数据\x1b", 9), ["one two", "three..."]);
        assert_eq!(look(false).wrap("é", 9), [r"\u00e9"]);
        assert_eq!(look(true).wrap("", 9), [""]);
    }

    #[test]
    fn command_is_cut_where_its_room_ends() {
        let words = ["sh", "-c", "echo a much too long line", "last"];
        assert_eq!(look(true).command(&words, 20), "sh -c 'echo a muc...");
        assert_eq!(look(true).command(&words[..2], 20), "sh -c");
        assert_eq!(look(false).command(&["é", "x y"], 20), r"\u00e9 'x y'");
        assert_eq!(look(true).command(&vec!["x"; 1 << 20], 8), "x x x...");
    }

    #[test]
    fn columns_are_padded_by_width() {
        assert_eq!([left("数", 4), right("数", 4), left("long", 2)], ["数  ", "  数", "long"]);
        // More than `format!` can.
        assert_eq!([left("a", 70_000), right("a", 70_000)].map(|text| text.len()), [70_000; 2]);
    }
}
