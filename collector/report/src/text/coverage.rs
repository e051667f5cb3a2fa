//! How the figures are known, where not all of them are exact.

use super::format::UNKNOWN;
use super::page::Page;
use crate::model::report::Coverage;
use crate::quote;

pub(super) fn coverage(page: &mut Page, coverage: &Coverage) {
    let unless_all = |n: u64| Some(n).filter(|n| *n != coverage.processes);
    page.heading(0, "Coverage");
    page.count(1, "Exact", unless_all(coverage.exact));
    page.count(1, "Sampled", Some(coverage.sampled));
    page.count(1, "Unknown", Some(coverage.unknown));
    page.count(1, "Joined", Some(coverage.joined));
    page.count(1, "Failed spawns", Some(coverage.failed_spawns));
    page.count(1, "Uninstrumented", Some(coverage.uninstrumented));
    page.count(1, "Dropped events", Some(coverage.dropped_events));
    if let Some(reason) = &coverage.records_untrusted {
        page.field(1, "Untrusted records", quote::escape(reason));
    }
    let layers = &coverage.layers;
    page.heading(1, "Found first by");
    page.count(2, "Preload", layers.preload.and_then(unless_all));
    page.count(2, "Wait", layers.wait);
    page.count(2, "Subreaper", layers.subreaper);
    page.count(2, "Scan", layers.scan);
    page.count(2, "Connector", layers.connector);
    if let Some(reason) = &coverage.connector_absent {
        page.field(2, "Connector", format_args!("{UNKNOWN} ({})", quote::escape(reason)));
    }
    page.heading(1, "Peak RSS");
    page.count(2, "Exact", unless_all(coverage.peaks.exact));
    page.count(2, "Sampled", Some(coverage.peaks.sampled));
    page.count(2, "Upper bound", Some(coverage.peaks.bound));
    page.count(2, "Unknown", Some(coverage.peaks.unknown));
    if let Some(reason) = &coverage.private_ram_reason {
        page.field(1, "Private RAM", format_args!("{UNKNOWN} ({reason})"));
    }
    page.list(1, "Static executables", &coverage.static_executables);
    if let Some(nodes) = &coverage.nodes {
        page.field(1, "Nodes not seen", nodes.unseen);
    }
    if let Some(ranks) = &coverage.ranks {
        page.field(1, "Ranks not seen", format_args!("{} of {}", ranks.unseen, ranks.expected));
    }
}
