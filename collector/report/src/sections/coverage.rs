//! How the figures are known, where not all of them are exact.

use crate::document::Section;
use crate::model::report::{Coverage, LeftReport, OtherUser, StartedElsewhere};

/// Names the place of a report that stayed on its node: `n2:/path`.
fn place_of_left(LeftReport { node, path, is_certain }: &LeftReport) -> String {
    format!("{node}:{path}{}", if *is_certain { "" } else { " (if there is one)" })
}

/// Says what was started elsewhere, and how often: `docker: container alpine, 2 times`.
fn started(entry: &StartedElsewhere) -> String {
    let StartedElsewhere { kind, program, target, count, followed, in_tree, reason, is_tracked } = entry;
    let kind = kind.name();
    let target = target.as_ref().map(|target| format!(" {target}")).unwrap_or_default();
    let times = if *count == 1 { String::new() } else { format!(", {count} times") };
    let tracked = if *is_tracked { ", with a report of its own" } else { "" };
    let followed = if *followed > 0 { format!(", {followed} with figures") } else { String::new() };
    let in_tree = if *in_tree > 0 { format!(", {in_tree} in the tree") } else { String::new() };
    let reason = reason.as_ref().map(|reason| format!(", not seen: {reason}")).unwrap_or_default();
    format!("{program}: {kind}{target}{times}{tracked}{followed}{in_tree}{reason}")
}

/// Makes the section that says how the figures are known. A count of exact ones is left out if it is that of all processes.
pub(super) fn coverage(coverage: &Coverage) -> Section {
    let Coverage { layers, peaks, .. } = coverage;
    if let Some(reason) = &coverage.untracked_reason {
        return Section::new("Coverage").text("Not tracked", reason.clone());
    }
    let unless_all = |n: u64| Some(n).filter(|n| *n != coverage.processes);
    let found = Section::new("Found first by")
        .count("Preload", layers.preload.and_then(unless_all))
        .count("Wait", layers.wait)
        .count("Subreaper", layers.subreaper)
        .count("Scan", layers.scan)
        .count("Connector", layers.connector)
        .unknown("Connector", coverage.connector_absent.as_ref());
    let peaks = Section::new("Peak RSS")
        .count("Exact", unless_all(peaks.exact))
        .count("Sampled", peaks.sampled)
        .count("Upper bound", peaks.bound)
        .count("Unknown", peaks.unknown);
    let of_user = |OtherUser { uid, processes }: &OtherUser| format!("{processes} of uid {uid}");
    let ranks = coverage.ranks.as_ref().map(|ranks| format!("{} of {}", ranks.unseen, ranks.expected));
    let left_reports = coverage.left_reports.iter().map(place_of_left).collect();
    Section::new("Coverage")
        .count("Exact", unless_all(coverage.exact))
        .count("Sampled", coverage.sampled)
        .count("Unknown", coverage.unknown)
        .text("Not all processes", coverage.uncounted_reason.clone())
        .count("Joined", coverage.joined)
        .count("Failed spawns", coverage.failed_spawns)
        .count("Left out, of gpu-track itself", coverage.helpers)
        .count("Uninstrumented", coverage.uninstrumented)
        .count("Dropped events", coverage.dropped_events)
        .text("Untrusted records", coverage.records_untrusted.clone())
        .section(found)
        .section(peaks)
        .unknown("Private RAM", coverage.private_ram_reason.as_ref())
        .section(Section::list("Static executables", coverage.static_executables.clone()))
        .section(Section::list("Of other users", coverage.other_users.iter().map(of_user).collect()))
        .section(Section::list("Started elsewhere", coverage.elsewhere.iter().map(started).collect()))
        .text("Nodes not seen", coverage.nodes.as_ref().map(|nodes| nodes.unseen.to_string()))
        .text("Ranks not seen", ranks)
        .section(Section::list("Reports on other nodes", left_reports))
}
