//! The report as one HTML page, which needs no network: the summary's words, charts of the run over time, and every section.
//!
//! It is readable without scripts, and under a policy that forbids them and styles. So charts are SVG whose colours are
//! attributes, and each has a table. The page is well-formed XML as well, which tests read it as.

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
use crate::metrics::MetricTrack;
use crate::model::report::Report;
use crate::model::style::Style;
use crate::model::timestamp::rfc3339;
use blocks::Renderer;
use escape::escape;

/// Most columns of the command above the page. The JSON form has all of it.
const COMMAND: usize = 300;
/// Most columns of the page's title, which is the name of a tab.
const TITLE: usize = 80;

/// Renders the report as a page, with a newline at its end.
pub(super) fn html(report: &Report, style: &Style) -> String {
    with_metrics(report, style, &[])
}

/// Renders the report as a page, with charts of metrics over the points of its series.
pub(super) fn with_metrics(report: &Report, style: &Style, tracks: &[MetricTrack]) -> String {
    let units = Units::choose(report, style);
    let Page { headline, summary, alerts, processes, gpus, others } = sections::page(report, units, style);
    let (title, header) = header(report, &headline);
    let top = Renderer::new(2, table::MOST_ROWS);
    let of_device = Renderer::new(2, table::MOST_ROWS_OF_DEVICE);
    let body = [
        header,
        "<main>\n<section class=\"summary\">\n<h2>Summary</h2>\n".to_owned(),
        top.blocks(&summary),
        "</section>\n".to_owned(),
        top.sections(&alerts, "alert"),
        charts::charts(report, units, tracks),
        top.sections(&[processes], ""),
        of_device.sections(&[gpus], "devices"),
        all_figures(&top, &others),
        "</main>\n".to_owned(),
    ];
    head::page(&title, &body.concat())
}

/// Renders the sections of figures that have no place of their own, beside one another.
fn all_figures(renderer: &Renderer, sections: &[Section]) -> String {
    let inner = Renderer::new(renderer.level + 1, table::MOST_ROWS).sections(sections, "");
    format!(
        "<section class=\"figures\">\n<h2>All figures</h2>\n<div class=\"columns\">\n{inner}</div>\n</section>\n"
    )
}

/// Gives the page's title as text, and its header as HTML: the command, how it ended, where and when it started.
fn header(report: &Report, headline: &Block) -> (String, String) {
    let (command, verdict, tone) = match headline {
        Block::Headline { command, verdict, tone } => (command.as_slice(), verdict.as_str(), *tone),
        _ => (&report.command[..], "", Tone::Plain),
    };
    let title = format!("{}: {verdict}", quote::cut(&quote::command(command, TITLE), TITLE));
    let host = report.host.hostname.iter().map(|host| format!("on {}, ", escape(host)));
    let header = format!(
        "<header>\n<h1><code>{}</code></h1>\n<p class=\"verdict {}\">{}</p>\n<p>{}started {}, took {}</p>\n</header>\n",
        escape(&quote::command(command, COMMAND)),
        blocks::class(tone),
        escape(verdict),
        host.collect::<String>(),
        rfc3339(report.started_at),
        figures::duration(report.wall_s),
    );
    (title, header)
}
