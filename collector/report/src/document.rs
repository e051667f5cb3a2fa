//! What a report says, as data: sections of labelled values, tables and lists. A writer such as [`super::text`]
//! turns them into text or HTML. Their texts are not escaped yet, and many are untrusted.

use super::figures::number;
use crate::model::style::{RamUnit, TimeUnit};

/// How much a text stands out. Each writer has its own way to show that, such as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// No more than other text.
    Plain,
    /// What to read first.
    Strong,
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// What to look at.
    Caution,
    /// What only guides the eye.
    Faint,
}

/// A part of a report.
pub(super) enum Block {
    /// The command, and how it ended, after what time and why. The verdict is ASCII.
    Headline { command: Vec<String>, verdict: String, tone: Tone },
    /// Blocks that belong together. A writer leaves out a section that has nothing to say.
    Section(Section),
    /// A label and its values.
    Row(String, Vec<Cell>),
    /// What the cells of the rows below are.
    Heads(&'static [&'static str]),
    /// Rows of cells.
    Table(Table),
    /// Texts that are read one by one.
    List(Vec<String>),
    /// A label, and words in as many lines as they need.
    Paragraph(&'static str, String),
    /// What a reader must not miss, in at most `most_lines` lines. Its first sentence is the most important one. With the tone
    /// `Plain`, it goes on from the remark above.
    Remark { tone: Tone, text: String, most_lines: usize },
}

/// Blocks that belong together.
#[derive(Default)]
pub(super) struct Section {
    /// `None` for details of the row above, and for the whole document.
    pub(super) title: Option<String>,
    /// The name of the unit of its numbers. Only the form of gpu_tracker has it, as a row of its own.
    pub(super) unit: Option<&'static str>,
    pub(super) blocks: Vec<Block>,
}

/// A value.
pub(super) enum Cell {
    /// A measured value with the symbol of its unit, which may be empty; `None` if it is unknown.
    Number(Option<f64>, &'static str),
    /// How many there are; `None` if it is unknown.
    Count(Option<u64>),
    /// Words.
    Text(Tone, String),
    /// A figure in words, in a column of its own.
    Figure(Tone, String),
    /// A part of a whole: 0 to 1, or above 1 if there was more than the whole.
    Part(f64),
    /// Words that may be left out.
    Note(String),
    /// RAM over the run, which took this many seconds.
    RamOverTime(Vec<RamSpan>, f64),
}

/// The largest RAM of the tree in a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RamSpan {
    /// Its start, seconds after the command's start.
    pub(super) start_s: f64,
    /// Its end, seconds after the command's start.
    pub(super) end_s: f64,
    /// The largest RAM at any time of the span, bytes.
    pub(super) max_bytes: f64,
}

/// Rows of cells.
pub(super) struct Table {
    /// Heads of the columns.
    pub(super) columns: Vec<Column>,
    /// A cell for each column.
    pub(super) rows: Vec<Vec<String>>,
    /// How many rows there would be if all were listed.
    pub(super) total: usize,
    /// For each row, its share of the whole (1 is all of it); `None`: unknown. Empty if the rows are no parts of a whole.
    pub(super) parts: Vec<Option<f64>>,
    /// For each row, the full text of its last cell, such as a whole command, for forms that have room for it. Can be empty.
    pub(super) tips: Vec<String>,
}

/// A column of a table.
pub(super) struct Column {
    /// What is in it.
    pub(super) name: &'static str,
    /// The symbol of its unit; empty if it has none.
    pub(super) unit: &'static str,
    /// The cells are words, which a writer may cut. Otherwise they are figures.
    pub(super) is_text: bool,
}

impl Cell {
    /// Formats a number with its unit, or a count. `None`: it is unknown, would show as zero, or the cell has no number.
    pub(super) fn amount(&self) -> Option<String> {
        match self {
            Self::Number(None, _) | Self::Count(None | Some(0)) => None,
            Self::Number(value, unit) => {
                let shown = number(*value);
                (shown != number(Some(0.0))).then(|| format!("{shown} {unit}"))
            }
            Self::Count(Some(count)) => Some(count.to_string()),
            _ => None,
        }
    }
}

impl Block {
    /// Leaves one line to a remark of what to look at.
    pub(super) fn shorten_caution(&mut self) {
        if let Self::Remark { tone: Tone::Caution, most_lines, .. } = self {
            *most_lines = 1;
        }
    }

    /// Whether it is the picture of RAM over the run.
    pub(super) fn is_ram_over_time(&self) -> bool {
        matches!(self, Self::Row(_, cells) if cells.iter().any(|cell| matches!(cell, Cell::RamOverTime(..))))
    }

    /// Makes a row of words.
    pub(super) fn text(label: &str, text: impl Into<String>) -> Self {
        Self::Row(label.to_owned(), vec![Cell::Text(Tone::Plain, text.into())])
    }
}

/// Functions that take `self` add a block, and return the section. Those with a `label` add a row of that label.
///
/// An unknown number or count is added: the writer decides what it shows. A text that is `None`, or an empty table, is not.
impl Section {
    /// Makes a section without blocks, with this title.
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..Self::default() }
    }

    /// Makes a section whose only block is a list of texts. It shows nothing, not even its title, if there are no texts.
    pub(super) fn list(title: &str, items: Vec<String>) -> Self {
        Self::new(title).block(Block::List(items))
    }

    fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    pub(super) fn section(self, section: Self) -> Self {
        self.block(Block::Section(section))
    }

    pub(super) fn table(self, table: Table) -> Self {
        if table.rows.is_empty() { self } else { self.block(Block::Table(table)) }
    }

    fn row(self, label: impl Into<String>, cell: Cell) -> Self {
        self.block(Block::Row(label.into(), vec![cell]))
    }

    pub(super) fn text(self, label: impl Into<String>, text: impl Into<Option<String>>) -> Self {
        match text.into() {
            Some(text) => self.row(label, Cell::Text(Tone::Plain, text)),
            None => self,
        }
    }

    /// Adds the row `LABEL: n/a (REASON)`; nothing without a reason.
    pub(super) fn unknown(self, label: &str, reason: Option<&String>) -> Self {
        self.text(label, reason.map(|reason| format!("n/a ({reason})")))
    }

    pub(super) fn number(self, label: impl Into<String>, value: Option<f64>, unit: &'static str) -> Self {
        self.row(label, Cell::Number(value, unit))
    }

    pub(super) fn bytes(self, label: &str, bytes: Option<u64>, unit: RamUnit) -> Self {
        self.number(label, bytes.map(|bytes| unit.convert(bytes as f64)), unit.symbol())
    }

    pub(super) fn seconds(self, label: impl Into<String>, seconds: Option<f64>, unit: TimeUnit) -> Self {
        self.number(label, seconds.map(|seconds| unit.convert(seconds)), unit.symbol())
    }

    pub(super) fn count(self, label: &str, count: impl Into<Option<u64>>) -> Self {
        self.row(label, Cell::Count(count.into()))
    }
}

impl Table {
    /// Makes a table of `rows`, which are all that there are.
    pub(super) fn new<const N: usize>(
        columns: [Column; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        Self { columns: columns.into(), total: rows.len(), rows, parts: Vec::new(), tips: Vec::new() }
    }

    /// How many of all rows a form leaves out that shows at most `most`.
    pub(super) fn missing(&self, most: usize) -> usize {
        self.total.saturating_sub(most.min(self.rows.len()))
    }
}

impl Column {
    /// Makes a column of figures in a unit.
    pub(super) fn number(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, is_text: false }
    }

    /// Makes a column of figures without a unit.
    pub(super) fn count(name: &'static str) -> Self {
        Self::number(name, "")
    }

    /// Makes a column of words.
    pub(super) fn text(name: &'static str) -> Self {
        Self { name, unit: "", is_text: true }
    }
}
