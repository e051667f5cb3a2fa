//! Nodes that sent no report, as far as the launcher knows why. A node that does not see the directory of the run keeps its report,
//! and the report of the others names it. Other nodes were not tracked.

use std::collections::{BTreeMap, BTreeSet};

use super::words::{counted, named};
use crate::model::host_name::short;
use crate::model::report::{LeftReport, Node, NodeState, Nodes, Report, Topic, Warning};

/// Notes in a report where the reports of other nodes stayed, whose processes are in none of its figures. A warning and
/// `coverage.left_reports` name them. A node that certainly kept a report counts as one without a report. `directory`: the
/// directory of the run, into which they can be copied. `program`: the path of gpu-track-run, without which a node has no report.
pub fn note_left_reports(report: &mut Report, left: Vec<LeftReport>, directory: &str, program: &str) {
    let (certain, possible): (Vec<&LeftReport>, Vec<&LeftReport>) =
        left.iter().partition(|left| left.is_certain);
    let texts = [
        (Topic::Tracking, stayed(&certain, directory)),
        (Topic::OtherNodes, may_have_stayed(&possible, directory, program)),
    ];
    let warnings = texts.into_iter().filter_map(|(topic, text)| Some(Warning::new(topic, text?)));
    // They come first: the summary shows only a few warnings, and these say what can be done.
    report.warnings.splice(0..0, warnings);
    for LeftReport { node, .. } in certain {
        note_unseen(report, node);
    }
    report.coverage.left_reports = left;
}

/// Says where reports stayed. `None`: none did.
fn stayed(left: &[&LeftReport], directory: &str) -> Option<String> {
    let (on, is, sees) = match left.len() {
        0 => return None,
        1 => ("its node", "is", "That node did not see"),
        _ => ("their nodes", "are", "Those nodes did not see"),
    };
    Some(format!(
        "{} stayed on {on}, and {is} in no figure: {}. {sees} {directory}. Copied into that directory here, gpu-track merge makes one \
         report of all.",
        counted(left.len() as u64, "report"),
        places(left)
    ))
}

/// Says in a warning, for each reason, which nodes were not tracked because of it. `nodes`: each with its reason.
pub fn note_untracked_nodes(report: &mut Report, nodes: &[(String, String)]) {
    let mut by_reason: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (node, reason) in nodes {
        by_reason.entry(reason).or_default().insert(node);
    }
    let text = |(reason, nodes): (&str, BTreeSet<&str>)| {
        let names = named(nodes.into_iter());
        Warning::new(Topic::OtherNodes, format!("Not tracked: {names}. {reason}."))
    };
    // They come first, as in [`note_left_reports`].
    report.warnings.splice(0..0, by_reason.into_iter().map(text));
}

/// Says where reports may be. `None`: there can be none.
fn may_have_stayed(left: &[&LeftReport], directory: &str, program: &str) -> Option<String> {
    let beginning = match left.len() {
        0 => return None,
        1 => "A report may have stayed on its node, and is in no figure then",
        _ => "Reports may have stayed on their nodes, and are in no figure then",
    };
    Some(format!(
        "{beginning}: {}. That is so where a node does not see {directory}. Copied into that directory here, gpu-track merge makes one \
         report of all. A node that does not see {program}, or sees another version there, has no report.",
        places(left)
    ))
}

/// Writes `n2:/path, n3:/path and 2 others`.
fn places(left: &[&LeftReport]) -> String {
    let all: Vec<String> = left.iter().map(|left| format!("{}:{}", left.node, left.path)).collect();
    named(all.iter().map(String::as_str))
}

/// Counts `node`, which kept its report, among the nodes without a report. A merged `report` also gets it in its list of nodes.
/// Does nothing if `report` is of that node itself, or was made of a report of it.
pub fn note_unseen(report: &mut Report, node: &str) {
    let is_this_node = |name: &str| short(name) == short(node);
    let has_report = report.host.hostname.as_deref().is_some_and(is_this_node)
        || report.nodes.iter().any(|known| known.reports > 0 && is_this_node(&known.node));
    if has_report {
        return;
    }
    let unseen = report.coverage.nodes.get_or_insert_with(|| Nodes { unseen: 0, unseen_names: Vec::new() });
    if !unseen.unseen_names.iter().any(|name| is_this_node(name)) {
        unseen.unseen_names.push(node.to_owned());
        // The node may be counted already without a name. So the count only has to reach the number of names.
        unseen.unseen = unseen.unseen.max(unseen.unseen_names.len() as u64);
    }
    if report.merged.is_some() && !report.nodes.iter().any(|known| is_this_node(&known.node)) {
        let state = NodeState::NeverCheckedIn;
        report.nodes.push(Node { node: node.to_owned(), state, ..Node::default() });
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::super::merge;
    use super::*;

    fn left(node: &str, is_certain: bool) -> LeftReport {
        LeftReport { node: node.into(), path: format!("/var/{node}.json"), is_certain }
    }

    // Requirement: NODE-22
    #[test]
    fn node_of_a_report_that_stayed_there_is_named_and_counted_once() {
        let mut report = fixtures::full();
        report.coverage.nodes = Some(Nodes { unseen: 1, unseen_names: vec!["n2.example.org".into()] });
        note_left_reports(
            &mut report,
            vec![left("n2", true), left("n3", true)],
            "/home/r.json.d",
            "/bin/gpu-track-run",
        );
        let nodes = report.coverage.nodes.as_ref().unwrap();
        assert_eq!(
            (nodes.unseen, &nodes.unseen_names[..]),
            (2, &["n2.example.org".to_owned(), "n3".into()][..])
        );
        let text = &report.warnings[0].text;
        assert_eq!(
            text,
            "2 reports stayed on their nodes, and are in no figure: n2:/var/n2.json, n3:/var/n3.json. Those nodes did not see \
             /home/r.json.d. Copied into that directory here, gpu-track merge makes one report of all."
        );
        let read = crate::read::read(&crate::json::json(&report, &Default::default())).unwrap().report;
        assert_eq!(read.coverage.left_reports, [left("n2", true), left("n3", true)]);
    }

    // Requirement: NODE-22
    #[test]
    fn report_that_may_have_stayed_on_a_node_changes_no_count() {
        let mut report = fixtures::full();
        let before = report.coverage.nodes.clone();
        note_left_reports(&mut report, vec![left("n2", false)], "/home/r.json.d", "/bin/gpu-track-run");
        assert_eq!(report.coverage.nodes, before);
        let text = &report.warnings[0].text;
        assert!(
            text.contains("may have stayed on its node, and is in no figure then: n2:/var/n2.json."),
            "{text}"
        );
    }

    // Requirement: NODE-38
    #[test]
    fn nodes_that_were_not_tracked_are_named_by_reason() {
        let mut report = fixtures::full();
        let nodes =
            [("n3", "It is missing there"), ("n2", "It is missing there"), ("n2", "It is missing there")];
        let nodes: Vec<_> = nodes.iter().map(|(node, why)| ((*node).to_owned(), (*why).to_owned())).collect();
        note_untracked_nodes(&mut report, &nodes);
        assert_eq!(report.warnings[0].text, "Not tracked: n2, n3. It is missing there.");
        let before = report.warnings.len();
        note_untracked_nodes(&mut report, &[]);
        assert_eq!(report.warnings.len(), before);
    }

    // Requirement: NODE-22
    #[test]
    fn node_that_has_another_report_is_not_missing() {
        let mut report = merge(&fixtures::nodes()).unwrap().report;
        let before = (report.coverage.nodes.clone(), report.nodes.len());
        note_left_reports(&mut report, vec![left("n2", true)], "/d", "/p");
        assert_eq!((report.coverage.nodes.clone(), report.nodes.len()), before);
        note_left_reports(&mut report, vec![left("n7", true)], "/d", "/p");
        assert_eq!(report.nodes.last().map(|node| node.state), Some(NodeState::NeverCheckedIn));
    }

    // Requirement: NODE-22
    #[test]
    fn nodes_of_one_host_name_are_not_missing_and_those_of_other_addresses_are() {
        let mut two_boots = fixtures::nodes();
        for ((_, report), boot) in two_boots.iter_mut().zip(["a", "b"]) {
            (report.host.hostname, report.host.boot_id) = (Some("n1".into()), Some(boot.into()));
        }
        let mut report = merge(&two_boots).unwrap().report;
        let before = report.coverage.nodes.clone();
        note_left_reports(&mut report, vec![left("n1", true)], "/d", "/p");
        assert_eq!(report.coverage.nodes, before);

        let mut report = fixtures::full();
        report.host.hostname = Some("10.0.0.1".into());
        note_left_reports(&mut report, vec![left("10.0.0.2", true)], "/d", "/p");
        assert_eq!(report.coverage.nodes.unwrap().unseen_names, ["10.0.0.2"]);
    }
}
