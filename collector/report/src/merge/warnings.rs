//! The warnings of a merged report: what is missing or does not fit together, and the warnings of the reports, each once.

use super::merger::Merger;
use super::plan::Plan;
use super::words::{MAX_NAMED, counted, named};
use crate::command_line;
use crate::figures::short;
use crate::model::report::{Node, NodeState, Topic, UnseenRanks, Warning};

/// Maximum number of columns of a command.
const COMMAND_WIDTH: usize = 60;

/// Lists all warnings: those about the merge itself, then those of the reports. `missing_nodes`: how many nodes of the job have no
/// report.
pub(super) fn warnings(merger: &Merger, missing_nodes: u64) -> Vec<Warning> {
    let Merger { plan, nodes, .. } = merger;
    // `None`: none is missing, or that is not known.
    let unseen_ranks = merger.ranks.unseen();
    // Each is `None` if there is nothing to warn of.
    let own: [(Topic, Option<String>); 10] = [
        (Topic::Tracking, missing(merger, missing_nodes, unseen_ranks)),
        (Topic::Tracking, unseen_ranks.and_then(|_| without_processes(nodes))),
        (Topic::Tracking, unfinished(nodes)),
        (Topic::Figures, commands(&merger.commands.list())),
        (Topic::Figures, jobs(plan)),
        (Topic::Figures, times(plan)),
        (Topic::Figures, apart(plan)),
        (Topic::Figures, several_of_a_node(nodes)),
        (Topic::Figures, one_machine(nodes, merger.machines.count)),
        (Topic::Figures, unknown(&merger.unknown(), merger.files.read)),
    ];
    let own = own.into_iter().filter_map(|(topic, text)| Some(Warning::new(topic, text?)));
    own.chain(merger.node_warnings.list()).collect()
}

/// The nodes whose reports are in this state.
fn of_state(nodes: &[Node], state: NodeState) -> Vec<&Node> {
    nodes.iter().filter(|node| node.state == state).collect()
}

/// Names the nodes whose reports have no process. If ranks are missing, they may have run there. `None`: there are none.
fn without_processes(nodes: &[Node]) -> Option<String> {
    let is_empty = |node: &&Node| node.reports > 0 && node.processes == Some(0);
    let empty: Vec<&Node> = nodes.iter().filter(is_empty).collect();
    (!empty.is_empty()).then(|| {
        format!(
            "No process was seen on {} ({}). What an MPI launcher starts by ssh in a job of Slurm does not report to the run.",
            counted(empty.len() as u64, "node"),
            named(empty.iter().map(|node| node.node.as_str()))
        )
    })
}

/// Says what no figure has: nodes and ranks without a report, and files that could not be read. `None`: nothing is missing.
fn missing(merger: &Merger, missing_nodes: u64, unseen_ranks: Option<UnseenRanks>) -> Option<String> {
    let never = of_state(&merger.nodes, NodeState::NeverCheckedIn);
    let nodes = (missing_nodes > 0).then(|| {
        let names = named(never.iter().map(|node| node.node.as_str()));
        let names = if names.is_empty() { names } else { format!(" ({names})") };
        format!("{}{names}", counted(missing_nodes, "node"))
    });
    let ranks = unseen_ranks.map(|ranks| format!("{} of {} ranks", ranks.unseen, ranks.expected));
    let files = &merger.files;
    let unread = files.unread_files.first().map(|first| {
        let all = files.read + files.unread;
        let such_as = if files.unread > 1 { "such as " } else { "" };
        format!("{} of {} ({such_as}{}: {})", files.unread, counted(all, "file"), first.file, first.reason)
    });
    let parts: Vec<String> = [nodes, ranks, unread].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Not in this report, and in no figure: {}.", parts.join("; ")))
}

/// Names the nodes that have no final report. `None`: all have one.
fn unfinished(nodes: &[Node]) -> Option<String> {
    let states = [NodeState::LastHeard, NodeState::Recovered];
    let open: Vec<&Node> = states.into_iter().flat_map(|state| of_state(nodes, state)).collect();
    let with_time = |node: &&Node| match node.silent_s {
        Some(silent_s) => format!("{}: {} s before the end", node.node, short(silent_s)),
        None => node.node.clone(),
    };
    let named_with_time: Vec<String> = open.iter().map(with_time).collect();
    (!open.is_empty()).then(|| {
        format!(
            "{} without a final report, last heard of: {}. The run went on there, or the node was lost; what it used since is in no \
             figure.",
            counted(open.len() as u64, "node"),
            named(named_with_time.iter().map(String::as_str))
        )
    })
}

/// Warns of reports of different commands, and names the most frequent ones. `None`: all are of one command.
fn commands(commands: &[(&[String], u64)]) -> Option<String> {
    if commands.len() < 2 {
        return None;
    }
    let text = |(words, count): &(&[String], u64)| {
        format!("{count} of {}", command_line::command(words, COMMAND_WIDTH))
    };
    let texts: Vec<String> = commands.iter().take(MAX_NAMED).map(text).collect();
    let more = if commands.len() > texts.len() { ", ..." } else { "" };
    Some(format!(
        "These are reports of different commands: {}{more}. All sums are over all of them. Merge the reports of each run by \
         itself if they are of several.",
        texts.join("; ")
    ))
}

/// Warns of reports of several batch jobs. `None`: they are of one, or of none.
fn jobs(plan: &Plan) -> Option<String> {
    (plan.jobs.len() > 1).then(|| {
        let names = named(plan.jobs.iter().map(String::as_str));
        format!("These are reports of different Slurm jobs ({names}). All sums are over all of them.")
    })
}

/// Names the reports whose times do not overlap with those of the others. `None`: all overlap.
fn times(plan: &Plan) -> Option<String> {
    let files = plan.outside.iter().map(|at| plan.file(*at));
    (!plan.outside.is_empty()).then(|| {
        format!(
            "The times of {} have nothing in common with those of the others ({}): of another run, or of a node whose clock is \
             wrong. The sums have all of it, but max_ram has its RAM only as far as it is known to coincide.",
            counted(plan.outside.len() as u64, "report"),
            named(files)
        )
    })
}

/// Names the reports that are in no bin of time, and what is unknown because of them. `None`: there are none.
fn apart(plan: &Plan) -> Option<String> {
    let files = plan.apart.iter().map(|at| plan.file(*at));
    (!plan.apart.is_empty()).then(|| {
        format!(
            "{} too far from the time of the others, or too long for a run ({}): wall_s and series are those of the others. \
             So the mean RAM, the mean CPU utilization and what part of the usable CPU time was used are unknown.",
            match plan.apart.len() {
                1 => "1 report is".to_owned(),
                count => format!("{count} reports are"),
            },
            named(files)
        )
    })
}

/// Warns of nodes with several reports, whose RAM can count shared memory twice. `None`: no node has more than one.
fn several_of_a_node(nodes: &[Node]) -> Option<String> {
    let of_several: Vec<&Node> = nodes.iter().filter(|node| node.reports > 1).collect();
    let first = of_several.first()?;
    let places = match of_several.len() {
        1 => format!("{} reports are of {}", first.reports, first.node),
        count => format!("{count} nodes have several reports, such as {} with {}", first.node, first.reports),
    };
    Some(format!("{places}: memory that the processes of two of them share counts once in each."))
}

/// Says that some nodes are the same machine. `None`: there are as many machines as nodes with a report.
fn one_machine(nodes: &[Node], machines: u64) -> Option<String> {
    let with_reports = nodes.iter().filter(|node| node.reports > 0).count() as u64;
    (with_reports > machines).then(|| {
        format!(
            "By their boot ids, {with_reports} nodes are {}: containers, for example. Its cores, memory and GPUs count once.",
            counted(machines, "machine")
        )
    })
}

/// Names the figures that some reports lack. `figures`: each with the number of reports that lack it; `reports`: how many there
/// are. `None`: no report lacks any.
fn unknown(figures: &[(&str, u64)], reports: u64) -> Option<String> {
    let unknown = figures.iter().filter(|(_, reports)| *reports > 0);
    let parts: Vec<String> =
        unknown.map(|(figure, reports)| format!("{figure} (in {})", counted(*reports, "report"))).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "Unknown in some of {}, and in no sum: {}. These sums are of the other reports.",
            counted(reports, "report"),
            parts.join(", ")
        )
    })
}
