//! Blocks as lines of text: the one place that knows columns, widths, colours and where a text is broken or cut.

mod table;

use super::terminal::{Look, WIDTH, heights, left, right};
use crate::command_line;
use crate::document::{Block, Cell, Section, Tone};
use crate::figures::percent;
use crate::quote;

/// How lines are arranged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrangement {
    /// `Label: value` in nested sections, on a page. Values of rows are not cut.
    Outline,
    /// Labels and values in columns, on a terminal. What does not fit is cut.
    Columns,
}

/// Columns of one level of nesting in an outline, as in gpu_tracker.
const INDENT: usize = 3;

/// Columns before the rows of the summary.
const MARGIN: usize = 2;
/// Columns of a label.
const LABEL: usize = 15;
/// Columns of a figure, with the space after it.
const FIGURE: usize = 13;
/// Columns of the chart of RAM over time: as many as the two figures above it have.
const SPARKS: usize = 2 * FIGURE - 1;
/// Columns of a percentage.
const PERCENT: usize = " >999 %".len();
/// A bar of fewer cells would show nothing, so it is left out.
const LEAST_CELLS: usize = 4;
/// Cells of a bar after two figures: those of a narrow terminal, and of a wide one.
const BAR_CELLS: (usize, usize) = (8, 20);
/// Maximum number of lines of a paragraph.
const MOST_LINES: usize = 3;

/// Columns of the first line, if the terminal is wide enough and the command is not longer.
const USUAL_WIDTH: usize = 80;
/// If the verdict leaves fewer columns for the command, the verdict gets a line of its own.
const LEAST_COMMAND: usize = 16;

/// Lays blocks out as lines.
pub(super) fn lay_out(blocks: &[Block], look: Look, arrangement: Arrangement) -> Vec<String> {
    let mut page = Page { look, arrangement, lines: Vec::new() };
    page.blocks(0, blocks);
    page.lines
}

/// The lines so far.
struct Page {
    look: Look,
    arrangement: Arrangement,
    lines: Vec<String>,
}

/// Text in one colour.
type Piece = (Tone, String);

impl Page {
    /// Adds the lines of blocks, at this level of nesting.
    fn blocks(&mut self, level: usize, blocks: &[Block]) {
        let indent = if self.arrangement == Arrangement::Outline { level * INDENT } else { MARGIN };
        for block in blocks {
            match block {
                Block::Headline { command, verdict, tone } => self.headline(command, verdict, *tone),
                Block::Section(section) => self.section(level, section),
                Block::Row(label, cells) => self.row(indent, label, cells),
                Block::Heads(heads) => self.heads(heads),
                Block::Table(table) => self.table(indent, table),
                Block::List(items) => items.iter().for_each(|item| self.item(indent, item)),
                Block::Paragraph(label, text) => self.paragraph(indent, label, text),
                Block::Remark { tone, text, most_lines } => self.remark(indent, *tone, text, *most_lines),
            }
        }
    }

    /// Adds a line, indented by `indent` columns.
    fn line(&mut self, indent: usize, line: &str) {
        self.lines.push(format!("{:indent$}{line}", "").trim_end().to_owned());
    }

    /// Adds `command: verdict` in an outline, else `command ......... VERDICT`. A long verdict has lines of its own.
    fn headline(&mut self, command: &[String], verdict: &str, tone: Tone) {
        // It can name a node.
        let verdict = &*self.look.text(verdict);
        if self.arrangement == Arrangement::Outline {
            let end = format!(": {verdict}");
            let command = command_line::command(command, WIDTH.saturating_sub(end.len()).max(WIDTH / 2));
            self.line(0, &(self.look.text(&quote::cut(&command, WIDTH)) + &end));
            return;
        }
        let (look, width) = (self.look, self.look.width());
        let most = width.saturating_sub(verdict.len() + " ... ".len());
        if most < LEAST_COMMAND {
            self.line(0, &look.paint(Tone::Strong, &look.command(command, width)));
            for line in self.wrapped(verdict, width - MARGIN, MOST_LINES) {
                self.line(MARGIN, &look.paint(tone, &line));
            }
            return;
        }
        let command = look.command(command, most);
        // 2: the spaces before and after the dots.
        let taken = quote::width(&command) + verdict.len() + 2;
        let free = width.min(USUAL_WIDTH).saturating_sub(taken);
        // A command that was cut ends with dots already, so it needs no others.
        let least = if command.ends_with("...") { 0 } else { 3 };
        let dots = ".".repeat(if free < 3 { least } else { free });
        let pieces = [(Tone::Strong, command.as_str()), (Tone::Faint, &dots), (tone, verdict)];
        let shown = pieces.iter().filter(|(_, text)| !text.is_empty());
        self.line(0, &shown.map(|(tone, text)| look.paint(*tone, text)).collect::<Vec<_>>().join(" "));
    }

    /// Adds the lines of a section. Its title stands only above lines.
    fn section(&mut self, level: usize, section: &Section) {
        let title_at = self.lines.len();
        if let Some(title) = &section.title {
            self.line(level * INDENT, &format!("{}:", self.look.text(title)));
        }
        let lines_before = self.lines.len();
        self.blocks(level + 1, &section.blocks);
        if self.lines.len() == lines_before {
            self.lines.truncate(title_at);
        }
    }

    /// Adds a row; nothing if its values are unknown or show as zero. In columns, its end is cut.
    fn row(&mut self, indent: usize, label: &str, cells: &[Cell]) {
        let label = self.look.text(label);
        let (mut line, mut room) = match self.arrangement {
            Arrangement::Outline => (format!("{label}: "), usize::MAX),
            Arrangement::Columns => {
                (self.look.paint(Tone::Strong, &left(&quote::cut(&label, LABEL - 1), LABEL)), self.room())
            }
        };
        let mut has_value = false;
        for cell in cells {
            for (tone, text) in self.pieces(cell, room) {
                let text = quote::cut_list(&text, room);
                room -= quote::width(&text);
                line += &self.look.paint(tone, &text);
                has_value = true;
            }
        }
        if has_value {
            self.line(indent, &line);
        }
    }

    /// How many columns a line may have.
    fn page_width(&self) -> usize {
        if self.arrangement == Arrangement::Outline { WIDTH } else { self.look.width() }
    }

    /// How many columns are left after a label of the summary.
    fn room(&self) -> usize {
        self.look.width() - MARGIN - LABEL
    }

    /// A value as pieces of coloured text. A number that is unknown or shows as zero has none. Parts and notes depend on
    /// `room`, the columns that are left: a note that is too long has no pieces.
    fn pieces(&self, cell: &Cell, room: usize) -> Vec<Piece> {
        match cell {
            Cell::Number(..) | Cell::Count(_) => {
                cell.amount().map(|amount| (Tone::Plain, amount)).into_iter().collect()
            }
            Cell::Text(tone, text) => vec![(*tone, self.look.text(text))],
            Cell::Figure(tone, text) => vec![(*tone, left(&format!("{} ", self.look.text(text)), FIGURE))],
            Cell::Part(part) => self.gauge(*part, room),
            Cell::Note(text) if text.is_empty() || "  ".len() + text.len() > room => Vec::new(),
            Cell::Note(text) => vec![(Tone::Plain, "  ".to_owned()), (Tone::Faint, self.look.text(text))],
            Cell::RamOverTime(spans, wall_s) => {
                vec![(Tone::Plain, self.look.sparkline(&heights(spans, *wall_s, SPARKS)))]
            }
        }
    }

    /// Draws `[████····]   50 %`, with fewer cells on a narrow terminal.
    fn gauge(&self, part: f64, room: usize) -> Vec<Piece> {
        /// Columns around the cells in the widest row.
        const AROUND: usize = MARGIN + LABEL + 2 * FIGURE + "[] >999 %  12.3 s CPU".len();
        let cells = self.look.width().saturating_sub(AROUND).clamp(BAR_CELLS.0, BAR_CELLS.1);
        let cells = cells.min(room.saturating_sub("[]".len() + PERCENT));
        let percent = right(&percent(part), PERCENT);
        if cells < LEAST_CELLS {
            return vec![(Tone::Plain, percent)];
        }
        let (filled, empty) = self.look.bar(part, cells);
        vec![(Tone::Plain, format!("[{filled}")), (Tone::Faint, empty), (Tone::Plain, format!("]{percent}"))]
    }

    /// Adds the line of heads, which say what the figures below are.
    fn heads(&mut self, heads: &[&str]) {
        let heads: String = heads.iter().map(|head| left(head, FIGURE)).collect();
        let line = format!("{:indent$}{}", "", heads.trim_end(), indent = MARGIN + LABEL);
        self.line(0, &self.look.paint(Tone::Faint, &line));
    }

    /// Adds one text of a list, broken between words at the page's edge.
    fn item(&mut self, indent: usize, text: &str) {
        let text = self.look.text(text);
        for (i, line) in quote::wrap(text.split_whitespace(), WIDTH - indent - "- ".len()).iter().enumerate()
        {
            self.line(indent, &format!("{} {line}", if i == 0 { "-" } else { " " }));
        }
    }

    /// Adds words after a label, in at most [`MOST_LINES`] lines.
    fn paragraph(&mut self, indent: usize, label: &str, text: &str) {
        for (i, line) in self.wrapped(text, self.room(), MOST_LINES).into_iter().enumerate() {
            self.row(indent, if i == 0 { label } else { "" }, &[Cell::Text(Tone::Plain, line)]);
        }
    }

    /// Breaks a text between words, and cuts it after `most` lines.
    fn wrapped(&self, text: &str, width: usize, most: usize) -> Vec<String> {
        let mut lines = self.look.wrap(text, width);
        if lines.len() > most {
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                *last = quote::cut(&format!("{last} ..."), width);
            }
        }
        lines
    }

    /// Adds `! text`, or the text without the mark if its tone is plain, in at most `most_lines` lines. If the text is too long, adds
    /// its first sentence alone, cut if that is too long.
    fn remark(&mut self, indent: usize, tone: Tone, text: &str, most_lines: usize) {
        let width = self.page_width() - indent - "! ".len();
        // About six columns of each line stay empty, because lines are broken between words.
        let text = match text.find(". ") {
            Some(end) if text.len() > most_lines * (width - 6) => &text[..=end],
            _ => text,
        };
        let lines = self.wrapped(text, width, most_lines);
        let mark = if tone == Tone::Plain { " ".to_owned() } else { self.look.paint(tone, "!") };
        for (i, line) in lines.iter().enumerate() {
            self.line(indent, &format!("{} {line}", if i == 0 { mark.as_str() } else { " " }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::style::Console;

    // Requirement: NODE-40
    #[test]
    fn verdict_that_is_too_long_for_the_terminal_is_broken_and_loses_nothing() {
        let verdict =
            "FAILED, exit 139 after 44.0 s: rank 5 on k\u{f6}ln-2 failed first, by SIGSEGV at 43.5 s";
        let (command, tone) = (vec!["mpirun".to_owned()], Tone::Bad);
        let headline = Block::Headline { command, verdict: verdict.to_owned(), tone };
        let console = Console { columns: 60, is_unicode: false, has_colour: false };
        let lines = lay_out(&[headline], Look { console }, Arrangement::Columns);
        let expected = [
            "mpirun",
            "  FAILED, exit 139 after 44.0 s: rank 5 on k\\u00f6ln-2",
            "  failed first, by SIGSEGV at 43.5 s",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn only_titles_with_lines_below_them_are_written() {
        let power = Section::new("Power").number("Max", None, "W").number("Mean", Some(0.0), "W");
        let first = Section::new("GPU 0").section(power).count("XID errors", 3);
        let second = Section::new("GPU 1").section(Section::new("Memory").text("Total", "5".to_owned()));
        let gpus = Section::new("GPUs").section(first).section(second.section(Section::new("Utilization")));
        let warnings = Section::list("Warnings", Vec::new());
        let lines = lay_out(
            &[gpus, warnings].map(Block::Section),
            Look { console: Console::default() },
            Arrangement::Outline,
        );
        let expected =
            ["GPUs:", "   GPU 0:", "      XID errors: 3", "   GPU 1:", "      Memory:", "         Total: 5"];
        assert_eq!(lines, expected);
    }
}
