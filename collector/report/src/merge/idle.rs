//! Nodes of a job that did next to nothing: they were paid for, and ranks or work may be missing there.

use super::merger::Merger;
use crate::model::report::{Node, NodeCoverage, NodeGpu, NodeState};

/// A node that used less than this part of its cores' time, and whose GPUs were busy for less than this part, is idle.
const IDLE_PART: f64 = 0.01;
/// On a node with many cores, one busy process is less than [`IDLE_PART`] of them. Such a node is not idle.
const IDLE_CORES: f64 = 0.5;
/// In a shorter run, to start is most of the work of a node, seconds.
const LEAST_WALL_S: f64 = 10.0;

/// Names the nodes that were idle while others were not, in the order of the nodes. A node without a report, without a final one, or
/// whose processes are not all known is not among them: it may have worked. A node without processes is not named either, if ranks
/// have no figures. They may have run there.
pub(super) fn idle_nodes(merger: &Merger, wall_s: f64) -> Vec<String> {
    let are_ranks_missing = merger.ranks.unseen().is_some();
    if wall_s < LEAST_WALL_S {
        return Vec::new();
    }
    let head_node = merger.plan.head_node();
    let of_job = || merger.nodes.iter().filter(|node| head_node != Some(node.node.as_str()));
    let is_named = |node: &&Node| {
        let has_all = node.processes != Some(0) || !are_ranks_missing;
        is_whole(node) && has_all && is_idle(node, wall_s)
    };
    let idle: Vec<String> = of_job().filter(is_named).map(|node| node.node.clone()).collect();
    if idle.len() < of_job().count() { idle } else { Vec::new() }
}

/// Whether the reports of a node are final, of the time of the run, and have all processes.
fn is_whole(node: &Node) -> bool {
    let is_known =
        |coverage| matches!(coverage, &NodeCoverage { untracked_reason: None, uncounted_reason: None, .. });
    // A node whose times have nothing to do with those of the others has no `silent_s`.
    node.state == NodeState::Final && node.silent_s.is_some() && node.coverage.as_ref().is_some_and(is_known)
}

/// Whether a node used next to nothing of its cores and GPUs. What is not known of them counts as used.
fn is_idle(node: &Node, wall_s: f64) -> bool {
    let cpu_s = if node.processes == Some(0) { Some(0.0) } else { node.cpu_s };
    let (Some(cpu_s), Some(cores)) = (cpu_s, node.usable_cores) else { return false };
    let is_unused = |gpu: &NodeGpu| {
        gpu.used == Some(false) || gpu.mean_percent.is_some_and(|percent| percent < IDLE_PART * 100.0)
    };
    cpu_s < wall_s * (cores * IDLE_PART).min(IDLE_CORES) && node.gpus.iter().all(is_unused)
}
