//! Writes lines of text onto a buffer, from top to bottom. What is outside of the buffer is cut, and `...` says so: a part of a
//! figure would look like another one.

use gpu_track_collector::model::style::Console;
use gpu_track_collector::report::quote;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier, Style};

/// How a piece of text looks. Without colours only the modifiers are left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Look {
    #[default]
    Plain,
    /// A head of a section.
    Head,
    /// Less important.
    Dim,
    /// The row that keys are for.
    Selected,
    /// What went wrong.
    Bad,
    /// The command with this rank among those with most RAM.
    Command(usize),
}

/// Colours of commands, by rank. All are readable on black and on white.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Green, Color::Yellow, Color::Blue, Color::Red];

impl Look {
    /// The style on a terminal with colours, or without.
    fn style(self, has_colour: bool) -> Style {
        let plain = Style::default();
        match self {
            Self::Plain => plain,
            Self::Head => plain.add_modifier(Modifier::BOLD),
            Self::Dim => plain.add_modifier(Modifier::DIM),
            Self::Selected => plain.add_modifier(Modifier::REVERSED),
            Self::Bad if has_colour => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            Self::Bad => plain.add_modifier(Modifier::BOLD),
            Self::Command(rank) if has_colour => plain.fg(COLOURS[rank % COLOURS.len()]),
            Self::Command(_) => plain,
        }
    }
}

/// A buffer, and the row that is written next.
pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    console: Console,
    /// The row that is written next, counted from the top.
    pub(super) row: u16,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, console: Console) -> Self {
        Self { buffer, console, row: 0 }
    }

    /// The number of columns.
    pub(super) fn width(&self) -> usize {
        self.buffer.area.width.into()
    }

    /// Whether UTF-8 can be shown.
    pub(super) fn is_unicode(&self) -> bool {
        self.console.is_unicode
    }

    /// Writes a line that has one look, and goes on to the next row.
    pub(super) fn line(&mut self, text: &str, look: Look) {
        self.pieces(&[(text, look)]);
    }

    /// Writes a line of several pieces, each with its look, and goes on to the next row. Below the buffer nothing is written. A
    /// piece that has no room in the row is cut, and ends in `...`. If a piece has the look `Selected`, the rest of the row gets
    /// it, too.
    pub(super) fn pieces<T: AsRef<str>>(&mut self, pieces: &[(T, Look)]) {
        let area = self.buffer.area;
        let row = self.row;
        self.row = self.row.saturating_add(1);
        if row >= area.height {
            return;
        }
        let mut column = 0;
        for (text, look) in pieces {
            let text = self.safe(text.as_ref());
            let left = area.width.saturating_sub(column);
            if left == 0 {
                break;
            }
            let text = quote::cut(&text, left.into());
            let style = look.style(self.console.has_colour);
            let (end, _) = self.buffer.set_stringn(area.x + column, area.y + row, text, left.into(), style);
            column = end - area.x;
        }
        if pieces.iter().any(|(_, look)| *look == Look::Selected) {
            for x in column..area.width {
                if let Some(cell) = self.buffer.cell_mut((area.x + x, area.y + row)) {
                    cell.set_style(Look::Selected.style(self.console.has_colour));
                }
            }
        }
    }

    /// Escapes what a terminal would act on. Names come from other programs.
    fn safe(&self, text: &str) -> String {
        let text = quote::escape(text);
        if self.console.is_unicode { text } else { quote::ascii(&text) }
    }
}

/// What a buffer shows as lines of text, without blanks at their ends and without empty lines at the end.
pub(super) fn lines(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut lines = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        // A wide character covers the cells after it.
        let mut covered = 0;
        for x in area.left()..area.right() {
            let symbol = buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
            if covered > 0 {
                covered -= 1;
            } else {
                line += symbol;
                covered = quote::width(symbol).saturating_sub(1);
            }
        }
        lines += line.trim_end();
        lines += "\n";
    }
    lines.truncate(lines.trim_end_matches('\n').len() + 1);
    lines
}
