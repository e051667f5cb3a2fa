//! What a report says, as data: sections of labelled values, tables and lists. A writer such as [`super::text`] gives them
//! their form. Their texts are not escaped yet, and many are untrusted.

use crate::model::style::{RamUnit, TimeUnit};

/// A part of a report.
pub(super) enum Block {
    /// The first line.
    Headline(Headline),
    /// Blocks that belong together.
    Section(Section),
    /// A value, or several, with a label.
    Row(Row),
    /// Rows of cells.
    Table(Table),
    /// Texts that are read one by one.
    List(Vec<String>),
}

/// The command, and how it ended.
pub(super) struct Headline {
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// How it ended, after what time, and why; ASCII.
    pub(super) verdict: String,
}

/// Blocks that belong together. One that has nothing to say is left out by the writers.
#[derive(Default)]
pub(super) struct Section {
    /// Its title; `None` for details of the row above.
    pub(super) title: Option<String>,
    /// The name of its numbers' unit, for a form that has no unit beside each number.
    pub(super) unit: Option<&'static str>,
    /// What is in it.
    pub(super) blocks: Vec<Block>,
}

/// A label and its values.
pub(super) struct Row {
    /// What the values are.
    pub(super) label: String,
    /// The values.
    pub(super) cells: Vec<Cell>,
}

/// A value.
pub(super) enum Cell {
    /// A measured value; `None` if it is unknown. Without a unit, the symbol is empty.
    Number(Option<f64>, &'static str),
    /// How many there are; `None` if it is unknown.
    Count(Option<u64>),
    /// Words.
    Text(String),
}

/// Rows of cells.
pub(super) struct Table {
    /// Heads of the columns.
    pub(super) columns: Vec<Column>,
    /// A cell for each column.
    pub(super) rows: Vec<Vec<String>>,
    /// How many rows there would be if all were known.
    pub(super) total: usize,
}

/// A column of a table.
pub(super) struct Column {
    /// What is in it.
    pub(super) name: &'static str,
    /// The symbol of its unit; empty if it has none.
    pub(super) unit: &'static str,
    /// Words, which are cut where they need too much room; else figures.
    pub(super) is_text: bool,
}

impl Section {
    /// One without content.
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..Self::default() }
    }

    /// Adds a block.
    pub(super) fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Adds a section.
    pub(super) fn section(self, section: Self) -> Self {
        self.block(Block::Section(section))
    }

    /// Adds sections.
    pub(super) fn sections(self, sections: impl IntoIterator<Item = Self>) -> Self {
        sections.into_iter().fold(self, Self::section)
    }

    /// One of texts; nothing without any.
    pub(super) fn list(title: &str, items: Vec<String>) -> Self {
        Self::new(title).block(Block::List(items))
    }

    /// Adds a table, if it has rows.
    pub(super) fn table(self, table: Table) -> Self {
        if table.rows.is_empty() { self } else { self.block(Block::Table(table)) }
    }

    fn row(self, label: impl Into<String>, cell: Cell) -> Self {
        self.block(Block::Row(Row { label: label.into(), cells: vec![cell] }))
    }

    /// Adds words, if there are any.
    pub(super) fn text(self, label: impl Into<String>, text: impl Into<Option<String>>) -> Self {
        match text.into() {
            Some(text) => self.row(label, Cell::Text(text)),
            None => self,
        }
    }

    /// Adds why a figure is unknown, if there is a reason.
    pub(super) fn unknown(self, label: &str, reason: Option<&String>) -> Self {
        self.text(label, reason.map(|reason| format!("n/a ({reason})")))
    }

    /// Adds a measured value with the symbol of its unit.
    pub(super) fn number(self, label: impl Into<String>, value: Option<f64>, unit: &'static str) -> Self {
        self.row(label, Cell::Number(value, unit))
    }

    /// Adds a size.
    pub(super) fn bytes(self, label: &str, bytes: Option<u64>, unit: RamUnit) -> Self {
        self.number(label, bytes.map(|bytes| unit.convert(bytes as f64)), unit.symbol())
    }

    /// Adds a time.
    pub(super) fn seconds(self, label: impl Into<String>, seconds: Option<f64>, unit: TimeUnit) -> Self {
        self.number(label, seconds.map(|seconds| unit.convert(seconds)), unit.symbol())
    }

    /// Adds a count.
    pub(super) fn count(self, label: &str, count: impl Into<Option<u64>>) -> Self {
        self.row(label, Cell::Count(count.into()))
    }
}

impl Table {
    /// A table of `rows`, which are all that there are.
    pub(super) fn new<const N: usize>(
        columns: [Column; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
        Self { columns: columns.into(), total: rows.len(), rows }
    }
}

impl Column {
    /// A column of figures in a unit.
    pub(super) fn number(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, is_text: false }
    }

    /// A column of figures without a unit.
    pub(super) fn count(name: &'static str) -> Self {
        Self::number(name, "")
    }

    /// A column of words.
    pub(super) fn text(name: &'static str) -> Self {
        Self { name, unit: "", is_text: true }
    }
}
