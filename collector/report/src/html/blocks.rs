//! Sections, rows and lists of a report as HTML.

use super::colours;
use super::escape::escape;
use super::table::table;
use crate::document::{Block, Cell, Section, Tone};
use crate::figures::percent;

/// Width of a bar, pixels.
const BAR: f64 = 140.0;
/// Height of a bar, pixels.
const BAR_HEIGHT: u32 = 10;

/// Renders blocks whose titles are of a level.
pub(super) struct Renderer {
    /// 2 for `h2`.
    pub(super) level: usize,
    most_rows: usize,
}

/// The class of a tone.
pub(super) fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Strong => "strong",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Caution => "caution",
        Tone::Faint => "faint",
    }
}

impl Renderer {
    pub(super) fn new(level: usize, most_rows: usize) -> Self {
        Self { level, most_rows }
    }

    /// Renders sections that have something to say, each an element of this class.
    pub(super) fn sections(&self, sections: &[Section], class: &str) -> String {
        sections.iter().map(|section| self.section(section, class, "")).collect()
    }

    /// Renders a section in one of this title; nothing if it has nothing to say.
    fn section(&self, section: &Section, class: &str, outer: &str) -> String {
        let Some(title) = &section.title else { return self.titled(outer, &section.blocks) };
        let inner = Self { level: self.level + 1, most_rows: self.most_rows };
        let body = inner.titled(title, &section.blocks);
        if body.is_empty() {
            return body;
        }
        // HTML has no more levels.
        let level = self.level.min(6);
        let heading = format!("<h{level}>{}</h{level}>\n", escape(title));
        match (level, class) {
            (..=3, "") => format!("<section>\n{heading}{body}</section>\n"),
            (..=3, class) => format!("<section class=\"{class}\">\n{heading}{body}</section>\n"),
            _ => heading + &body,
        }
    }

    /// Renders blocks.
    pub(super) fn blocks(&self, blocks: &[Block]) -> String {
        self.titled("", blocks)
    }

    /// Renders blocks below a title. Rows that follow one another are one table.
    fn titled(&self, title: &str, blocks: &[Block]) -> String {
        let mut out = String::new();
        for blocks in blocks.chunk_by(|a, b| is_row(a) && is_row(b)) {
            match blocks {
                [Block::Section(section)] => out += &self.section(section, "", title),
                [Block::Table(rows)] => out += &table(title, rows, self.most_rows),
                [Block::List(items)] => out += &list(items),
                [Block::Remark { tone, text, .. }] => out += &remark(*tone, text),
                rows => out += &self::rows(rows),
            }
        }
        out
    }
}

fn is_row(block: &Block) -> bool {
    matches!(block, Block::Row(..) | Block::Heads(_) | Block::Paragraph(..))
}

/// Renders rows as labels and values, or as a table if one has several cells.
fn rows(blocks: &[Block]) -> String {
    let labelled: Vec<(&str, Vec<String>)> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Row(label, cells) => Some((label.as_str(), cells_of(cells))),
            Block::Paragraph(label, text) => Some((*label, vec![escape(text)])),
            _ => None,
        })
        .filter(|(_, cells)| !cells.is_empty())
        .collect();
    let Some(most) = labelled.iter().map(|(_, cells)| cells.len()).max() else { return String::new() };
    if most == 1 {
        let value = |(label, cells): &(&str, Vec<String>)| {
            format!("<dt>{}</dt><dd>{}</dd>\n", escape(label), cells.concat())
        };
        return format!("<dl>\n{}</dl>\n", labelled.iter().map(value).collect::<String>());
    }
    let rows: String = labelled.iter().map(|(label, cells)| row(label, cells, most)).collect();
    let heads = blocks.iter().find_map(|block| match block {
        Block::Heads(heads) => Some(self::heads(heads, most)),
        _ => None,
    });
    format!("<table class=\"rows\">\n{}{rows}</table>\n", heads.unwrap_or_default())
}

/// Renders what the figures below are, of at most this many.
fn heads(heads: &[&str], most: usize) -> String {
    let heads = heads.iter().take(most).map(|head| format!("<th scope=\"col\">{}</th>", escape(head)));
    format!("<tr class=\"heads\"><td></td>{}</tr>\n", heads.collect::<String>())
}

/// Renders a row in a table of this many cells beside the label. The last cell has the rest of the width.
fn row(label: &str, cells: &[String], most: usize) -> String {
    let label = match label {
        "" => "<td></td>".to_owned(),
        label => format!("<th scope=\"row\">{}</th>", escape(label)),
    };
    let last = cells.len() - 1;
    let cells = cells.iter().enumerate().map(|(at, cell)| match most - at {
        span @ 2.. if at == last => format!("<td colspan=\"{span}\">{cell}</td>"),
        _ => format!("<td>{cell}</td>"),
    });
    format!("<tr>{label}{}</tr>\n", cells.collect::<String>())
}

/// Renders the cells of a row that say something.
fn cells_of(cells: &[Cell]) -> Vec<String> {
    let shown = cells.iter().filter_map(|cell| match cell {
        Cell::Number(..) | Cell::Count(_) => cell.amount().map(|amount| escape(&amount)),
        Cell::Text(_, text) | Cell::Figure(_, text) | Cell::Note(text) if text.trim().is_empty() => None,
        Cell::Text(tone, text) | Cell::Figure(tone, text) => Some(toned(*tone, text)),
        Cell::Part(part) => Some(bar(*part)),
        Cell::Note(text) => Some(toned(Tone::Faint, text)),
        // A chart below shows it.
        Cell::RamOverTime(..) => None,
    });
    shown.collect()
}

fn toned(tone: Tone, text: &str) -> String {
    let text = escape(text.trim());
    if tone == Tone::Plain { text } else { format!("<span class=\"{}\">{text}</span>", class(tone)) }
}

/// Draws a part of a whole, and writes it. More than the whole fills the bar.
fn bar(part: f64) -> String {
    let filled = (part.clamp(0.0, 1.0) * BAR).round();
    format!(
        "<svg class=\"bar\" width=\"{BAR}\" height=\"{BAR_HEIGHT}\" aria-hidden=\"true\"><rect width=\"{BAR}\" \
         height=\"{BAR_HEIGHT}\" fill=\"currentColor\" fill-opacity=\".15\"/><rect class=\"l1\" width=\"{filled}\" \
         height=\"{BAR_HEIGHT}\" fill=\"{}\"/></svg> {}",
        colours::FIRST,
        percent(part)
    )
}

fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

fn remark(tone: Tone, text: &str) -> String {
    format!("<p class=\"remark {}\">{}</p>\n", class(tone), escape(text))
}
