//! The report as one HTML page, which needs no network: the summary's words, charts of the run over time, and every section.
//!
//! The page is readable where a policy forbids scripts and styles. So charts are SVG whose colours are attributes, and each
//! chart has a table. The page is well-formed XML as well: tests read it as XML.

mod blocks;
mod charts;
mod colours;
mod escape;
mod head;
mod table;
#[cfg(test)]
mod tests;

use super::document::{Block, Section, Tone};
use super::sections::{self, Page};
use super::units::Units;
use super::{figures, quote};
use crate::command_line;
use crate::metrics::MetricTrack;
use crate::model::report::Report;
use crate::model::style::Style;
use crate::model::timestamp::rfc3339;
use blocks::Renderer;
use escape::escape;

/// Maximum number of columns of the command above the page. The JSON form has all of it.
const COMMAND_COLUMNS: usize = 300;
/// Maximum number of columns of the command in its tooltip.
const WHOLE_COMMAND_COLUMNS: usize = 1000;
/// Maximum number of columns of the page's title, which a browser shows as the name of the tab.
const TITLE_COLUMNS: usize = 80;

/// Renders the report as a page, with a newline at its end.
pub(super) fn html(report: &Report, style: &Style) -> String {
    with_metrics(report, style, &[])
}

/// Renders the report as a page, with charts of metrics. `tracks`: metrics, each with a value for each point of the report's
/// series.
pub(super) fn with_metrics(report: &Report, style: &Style, tracks: &[MetricTrack]) -> String {
    let units = Units::choose(report, style);
    let Page { headline, summary, alerts, processes, gpus, others } = sections::page(report, units, style);
    let (title, header) = header(report, &headline);
    let renderer = Renderer { level: 2, most_rows: table::MOST_ROWS };
    let gpu_renderer = Renderer { level: 2, most_rows: table::MOST_ROWS_OF_DEVICE };
    let body = [
        header,
        "<main>\n<section class=\"summary\">\n<h2>Summary</h2>\n".to_owned(),
        renderer.blocks("", &summary),
        "</section>\n".to_owned(),
        renderer.sections(&alerts, "alert"),
        charts::charts(report, units, tracks),
        renderer.sections(&[processes], ""),
        gpu_renderer.sections(&[gpus], "devices"),
        all_figures(&others),
        "</main>\n".to_owned(),
    ];
    head::page(&title, &body.concat())
}

/// Renders the sections that have no other place on the page, in columns below the heading "All figures".
fn all_figures(sections: &[Section]) -> String {
    let inner = Renderer { level: 3, most_rows: table::MOST_ROWS }.sections(sections, "");
    format!(
        "<section class=\"figures\">\n<h2>All figures</h2>\n<div class=\"columns\">\n{inner}</div>\n</section>\n"
    )
}

/// The page's title as text, and its header as HTML: the command, how it ended, where and when it started.
fn header(report: &Report, headline: &Block) -> (String, String) {
    let (command, verdict, tone) = match headline {
        Block::Headline { command, verdict, tone } => (command.as_slice(), verdict.as_str(), *tone),
        // Not reached: [`sections::page`] makes the headline a `Block::Headline`.
        _ => (&report.command[..], "", Tone::Plain),
    };
    let title =
        format!("{}: {verdict}", quote::cut(&command_line::command(command, TITLE_COLUMNS), TITLE_COLUMNS));
    let host = report.host.hostname.as_ref().map(|host| format!("on {}, ", escape(host)));
    let header = format!(
        "<header>\n<h1><code title=\"{}\">{}</code></h1>\n<p class=\"verdict {}\">{}</p>\n<p>{}started {}, took {}</p>\n</header>\n",
        escape(&command_line::command(command, WHOLE_COMMAND_COLUMNS)),
        escape(&command_line::command(command, COMMAND_COLUMNS)),
        blocks::class(tone),
        escape(verdict),
        host.unwrap_or_default(),
        rfc3339(report.started_at),
        figures::duration(report.wall_s),
    );
    (title, header)
}
