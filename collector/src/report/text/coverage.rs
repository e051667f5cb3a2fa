//! How the figures are known.

use super::super::quote;
use super::format::UNKNOWN;
use super::page::Page;
use crate::model::report::Coverage;

pub(super) fn coverage(page: &mut Page, coverage: &Coverage) {
    page.heading(0, "Coverage");
    page.field(1, "Processes", coverage.processes);
    page.field(1, "Exact", coverage.exact);
    page.field(1, "Sampled", coverage.sampled);
    page.field(1, "Unknown", coverage.unknown);
    page.field(1, "Joined", coverage.joined);
    page.field(1, "Failed spawns", coverage.failed_spawns);
    page.field(1, "Uninstrumented", coverage.uninstrumented);
    page.field(1, "Dropped events", coverage.dropped_events);
    if let Some(reason) = &coverage.records_untrusted {
        page.field(1, "Untrusted records", quote::escape(reason));
    }
    page.heading(1, "Found first by");
    page.count(2, "Preload", coverage.layers.preload);
    page.count(2, "Wait", coverage.layers.wait);
    page.count(2, "Subreaper", coverage.layers.subreaper);
    page.count(2, "Scan", coverage.layers.scan);
    match (&coverage.connector_absent, coverage.layers.connector) {
        (Some(reason), None) => {
            page.field(2, "Connector", format_args!("{UNKNOWN} ({})", quote::escape(reason)))
        }
        (_, found) => page.count(2, "Connector", found),
    }
    page.heading(1, "Peak RSS");
    page.field(2, "Exact", coverage.peaks.exact);
    page.field(2, "Sampled", coverage.peaks.sampled);
    page.field(2, "Upper bound", coverage.peaks.bound);
    page.field(2, "Unknown", coverage.peaks.unknown);
    page.list(1, "Static executables", &coverage.static_executables);
}
