//! Sections, rows and lists of a report as HTML.

use super::colours;
use super::escape::escape;
use super::table::table;
use crate::document::{Block, Cell, Section, Tone};
use crate::figures::percent;

/// Width of a bar, pixels.
const BAR_WIDTH: f64 = 140.0;
/// Height of a bar, pixels.
const BAR_HEIGHT: u32 = 10;

/// Renders blocks as HTML: titles become headings of `level`, and a table shows `most_rows` rows at most.
pub(super) struct Renderer {
    /// 2 for `h2`.
    pub(super) level: usize,
    pub(super) most_rows: usize,
}

/// The CSS class of a tone.
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
    /// Renders the sections that have content, each as an element of the CSS class `class`, or of none if that is empty.
    pub(super) fn sections(&self, sections: &[Section], class: &str) -> String {
        sections.iter().map(|section| self.section(section, class, "")).collect()
    }

    /// Renders a section: its heading, and its blocks one level deeper. Renders nothing if none of the blocks has content.
    /// A section without a title is rendered as a part of the section around it, whose title is `outer`.
    fn section(&self, section: &Section, class: &str, outer: &str) -> String {
        let Some(title) = &section.title else { return self.blocks(outer, &section.blocks) };
        let inner = Self { level: self.level + 1, most_rows: self.most_rows };
        let body = inner.blocks(title, &section.blocks);
        if body.is_empty() {
            return body;
        }
        // HTML has no heading below `h6`.
        let level = self.level.min(6);
        let heading = format!("<h{level}>{}</h{level}>\n", escape(title));
        // A section whose heading is below `h3` gets no `<section>` element: it is part of the section around it.
        match (level, class) {
            (..=3, "") => format!("<section>\n{heading}{body}</section>\n"),
            (..=3, class) => format!("<section class=\"{class}\">\n{heading}{body}</section>\n"),
            _ => heading + &body,
        }
    }

    /// Renders blocks without a heading of their own. `title` names their tables for screen readers; it may be empty. Rows that
    /// follow one another become one list or table.
    pub(super) fn blocks(&self, title: &str, blocks: &[Block]) -> String {
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

/// Whether a block is one of those that [`rows`] renders together.
fn is_row(block: &Block) -> bool {
    matches!(block, Block::Row(..) | Block::Heads(_) | Block::Paragraph(..))
}

/// Renders rows as a list of labels and values, or as a table if one has several cells. Rows without cells are left out.
fn rows(blocks: &[Block]) -> String {
    let labelled = blocks.iter().filter_map(|block| match block {
        Block::Row(label, cells) => Some((label.as_str(), cells_of(cells))),
        Block::Paragraph(label, text) => Some((*label, vec![escape(text)])),
        _ => None,
    });
    let labelled: Vec<(&str, Vec<String>)> = labelled.filter(|(_, cells)| !cells.is_empty()).collect();
    let Some(most_cells) = labelled.iter().map(|(_, cells)| cells.len()).max() else { return String::new() };
    if most_cells == 1 {
        let value = |(label, cells): &(&str, Vec<String>)| {
            format!("<dt>{}</dt><dd>{}</dd>\n", escape(label), cells.concat())
        };
        return format!("<dl>\n{}</dl>\n", labelled.iter().map(value).collect::<String>());
    }
    let rows: String = labelled.iter().map(|(label, cells)| row(label, cells, most_cells)).collect();
    let heads = blocks.iter().find_map(|block| match block {
        Block::Heads(heads) => Some(self::heads(heads, most_cells)),
        _ => None,
    });
    format!("<table class=\"rows\">\n{}{rows}</table>\n", heads.unwrap_or_default())
}

/// Renders the row of column heads, at most `most` of them. The column of the labels has none.
fn heads(heads: &[&str], most: usize) -> String {
    let heads = heads.iter().take(most).map(|head| format!("<th scope=\"col\">{}</th>", escape(head)));
    format!("<tr class=\"heads\"><td></td>{}</tr>\n", heads.collect::<String>())
}

/// Renders a row of a table, a label and at least one cell. The table has `columns` columns beside the labels. The last cell
/// spans those that the row does not fill.
fn row(label: &str, cells: &[String], columns: usize) -> String {
    let label = match label {
        "" => "<td></td>".to_owned(),
        label => format!("<th scope=\"row\">{}</th>", escape(label)),
    };
    let last = cells.len() - 1;
    let span_of_last = columns - last;
    let cells = cells.iter().enumerate().map(|(at, cell)| {
        if at == last && span_of_last > 1 {
            format!("<td colspan=\"{span_of_last}\">{cell}</td>")
        } else {
            format!("<td>{cell}</td>")
        }
    });
    format!("<tr>{label}{}</tr>\n", cells.collect::<String>())
}

/// Renders the content of a row's cells. Cells without content are left out.
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

/// Escapes a text, and wraps it in a `span` of its tone's class unless the tone is plain.
fn toned(tone: Tone, text: &str) -> String {
    let text = escape(text.trim());
    if tone == Tone::Plain { text } else { format!("<span class=\"{}\">{text}</span>", class(tone)) }
}

/// Draws a part of a whole, from 0 to 1, as a bar, and writes its percentage after the bar. A part above 1 fills the bar.
fn bar(part: f64) -> String {
    let filled = (part.clamp(0.0, 1.0) * BAR_WIDTH).round();
    format!(
        "<svg class=\"bar\" width=\"{BAR_WIDTH}\" height=\"{BAR_HEIGHT}\" aria-hidden=\"true\"><rect width=\"{BAR_WIDTH}\" \
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
