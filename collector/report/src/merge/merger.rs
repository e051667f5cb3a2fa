//! Takes reports one by one, and keeps sums of them. Of each report there is no more than its first look and its rank.

use std::collections::BTreeSet;

use super::commands::Commands;
use super::common::Common;
use super::ending::Endings;
use super::grid::MOST_POINTS;
use super::machine::Machines;
use super::node::{ClosedNode, OpenNode};
use super::plan::Plan;
use super::processes::Processes;
use super::quantity::Axis;
use super::ranks::RankTable;
use super::sums::{Quantities, Sums};
use super::totals::{Known, Totals};
use super::warnings::NodeWarnings;
use crate::model::node_list;
use crate::model::report::{
    CoresSource, MemorySource, Node, RankUsage, Report, ReportFiles, Topic, UnreadFile, Warning,
};
use crate::read::ReadReport;

/// Points of the series of all nodes together: with 1,000 nodes, 30 of each.
const NODE_POINTS: usize = 30_000;
/// Most nodes that are listed.
const MOST_NODES: usize = 10_000;
/// Most GPUs that are listed.
const MOST_GPUS: usize = 20_000;
/// Most files that are named because they are not in the report.
const MOST_UNREAD: usize = 1000;
/// Most nodes that are known by the reports of others alone.
const MOST_TOLD: usize = 10_000;
/// Slurm's variable with the nodes of a step.
const STEP_NODES: &str = "SLURM_STEP_NODELIST";

/// A merged report.
#[derive(Debug)]
pub struct MergedReport {
    /// The report.
    pub report: Report,
    /// All ranks, by job and rank.
    pub ranks: Vec<RankUsage>,
}

/// The reports so far.
pub struct Merger {
    pub(super) plan: Plan,
    pub(super) sums: Sums,
    pub(super) machines: Machines,
    pub(super) totals: Totals,
    pub(super) processes: Processes,
    pub(super) commands: Commands,
    pub(super) common: Common,
    pub(super) endings: Endings,
    pub(super) of_nodes: NodeWarnings,
    pub(super) ranks: RankTable,
    pub(super) usable: Usables,
    pub(super) nodes: Vec<Node>,
    pub(super) unlisted: Unlisted,
    pub(super) told: Told,
    pub(super) files: ReportFiles,
    /// Numbers of the nodes of which a report was read.
    pub(super) read_nodes: BTreeSet<usize>,
    /// The only report so far.
    pub(super) only: Option<Box<Report>>,
    /// The node and the machine whose reports are being read.
    open: Option<(usize, OpenNode)>,
}

/// What nodes may use.
#[derive(Default)]
pub(super) struct Usables {
    pub cores: f64,
    pub cores_source: Option<CoresSource>,
    pub expected_cores: u64,
    pub memory_bytes: Known,
    pub memory_source: Option<MemorySource>,
    pub address_space_bytes: Option<u64>,
    pub gpus_by_environment: bool,
}

/// What is left out of the list of nodes.
#[derive(Default)]
pub(super) struct Unlisted {
    pub nodes: u64,
    pub gpus: u64,
    listed_gpus: usize,
}

/// Nodes that reports tell of.
#[derive(Default)]
pub(super) struct Told {
    /// Their names.
    pub names: BTreeSet<String>,
    /// The most nodes, that of the report included, of which one tells.
    pub most: u64,
}

impl Merger {
    /// Begins with no report.
    #[must_use]
    pub fn new(mut plan: Plan) -> Self {
        let mut files = ReportFiles::default();
        for file in std::mem::take(&mut plan.unread) {
            leave_out(&mut files, file);
        }
        Self {
            sums: Sums::new(plan.grid),
            machines: Machines::new(plan.grid),
            plan,
            totals: Totals::default(),
            processes: Processes::default(),
            commands: Commands::default(),
            common: Common::default(),
            endings: Endings::default(),
            of_nodes: NodeWarnings::default(),
            ranks: RankTable::default(),
            usable: Usables::default(),
            nodes: Vec::new(),
            unlisted: Unlisted::default(),
            told: Told::default(),
            files,
            only: None,
            read_nodes: BTreeSet::new(),
            open: None,
        }
    }

    /// Gives the plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Notes that a report of the plan can't be read now.
    pub fn leave_out(&mut self, number: usize, reason: String) {
        let file = self.plan.file(number).to_owned();
        leave_out(&mut self.files, UnreadFile { file, reason });
    }

    /// Adds the report of this number of the plan, the next one of [`Plan::order`]. What it lacks because an older version wrote
    /// it becomes a warning.
    pub fn add(&mut self, number: usize, read: ReadReport) {
        let ReadReport { mut report, note } = read;
        report.warnings.extend(note.map(|note| Warning::new(Topic::Figures, note)));
        let (node, span, is_apart) =
            (self.plan.node(number), self.plan.span(number), self.plan.is_apart(number));
        self.open_node(node);
        self.files.read += 1;
        let axis = Axis::of(&report, span);
        let quantities = Quantities::of(&report, &axis, is_apart);
        self.sums.add(&quantities, &report);
        self.machines.add(&report, &axis, span, is_apart);
        self.endings.add(span.end_us, self.plan.file(number), &report);
        self.commands.add(&report.command, span.start_us);
        self.common.add(&report);
        self.usable.add(&report);
        self.told.add(&report);
        if let Some((_, open)) = &mut self.open {
            let [.., ram] = &quantities.ram;
            let [.., cpu] = &quantities.cpu;
            open.add(self.plan.file(number), &report, span, ram.as_ref(), cpu.as_ref(), is_apart);
            let name = open.name();
            self.totals.add(name, &report);
            let start_s = (!is_apart).then(|| (span.start_us - self.plan.grid.start_us) as f64 / 1e6);
            self.processes.add(name, &report, start_s);
            self.of_nodes.add(name, &report);
            self.ranks.add(name, &report);
        }
        self.only = (self.files.read == 1).then(|| Box::new(report));
    }

    /// Opens a node, and closes the one that is open if it is another.
    fn open_node(&mut self, node: usize) {
        let is_open = self.open.as_ref().is_some_and(|(open, _)| *open == node);
        if is_open {
            return;
        }
        let before = self.close_node();
        let next = &self.plan.nodes[node];
        if before.is_some_and(|before| self.plan.nodes[before].machine != next.machine) {
            self.machines.close();
        }
        self.open = Some((node, OpenNode::new(next, self.plan.grid)));
    }

    /// Closes the node that is open, and gives its number.
    fn close_node(&mut self) -> Option<usize> {
        let (number, open) = self.open.take()?;
        self.read_nodes.insert(number);
        let is_listed = self.nodes.len() < MOST_NODES;
        let ClosedNode { mut node, expected_cores, usable } =
            open.close(if is_listed { self.joined_in_nodes() } else { 0 });
        self.usable.cores += usable.count;
        self.usable.expected_cores += expected_cores;
        self.usable.memory_bytes.add(node.ram.usable_bytes.map(u128::from));
        let gpus = node.gpus.len();
        if self.unlisted.listed_gpus + gpus > MOST_GPUS || !is_listed {
            self.unlisted.gpus += gpus as u64;
            node.gpus = Vec::new();
        }
        self.unlisted.listed_gpus += node.gpus.len();
        match is_listed {
            true => self.nodes.push(node),
            false => self.unlisted.nodes += 1,
        }
        Some(number)
    }

    /// Gives how many bins a point of a node's series has.
    pub(super) fn joined_in_nodes(&self) -> usize {
        let points = (NODE_POINTS / self.plan.nodes.len().max(1)).clamp(1, MOST_POINTS);
        self.plan.grid.bins.div_ceil(points)
    }

    /// Makes the report of all. If there was a single file, that is its report itself.
    ///
    /// # Errors
    /// If no file has a report: which files there are, and why not.
    pub fn finish(mut self) -> Result<MergedReport, ReportFiles> {
        let only = self.only.take();
        if self.close_node().is_none() {
            return Err(self.files);
        }
        self.machines.close();
        let ranks = self.ranks.all().cloned().collect();
        let report = match only.filter(|_| self.files.unread == 0) {
            Some(report) => *report,
            None => self.assemble(),
        };
        Ok(MergedReport { report, ranks })
    }
}

/// Notes that a file is not in the report.
fn leave_out(files: &mut ReportFiles, file: UnreadFile) {
    files.unread += 1;
    if files.unread_files.len() < MOST_UNREAD {
        files.unread_files.push(file);
    }
}

impl Usables {
    fn add(&mut self, report: &Report) {
        let usable = &report.usable;
        let cores = [Some(usable.cores.source), self.cores_source].into_iter().flatten();
        self.cores_source = cores.min_by_key(|source| *source as u8);
        let memory = [usable.memory.source, self.memory_source].into_iter().flatten();
        self.memory_source = memory.min_by_key(|source| *source as u8);
        let limits = [usable.memory.process_address_space_bytes, self.address_space_bytes];
        self.address_space_bytes = limits.into_iter().flatten().min();
        self.gpus_by_environment |= usable.gpus.source == Some(crate::model::report::GpusSource::Environment);
    }
}

impl Told {
    fn add(&mut self, report: &Report) {
        let named = report.coverage.nodes.as_ref();
        self.most = self.most.max(named.map_or(0, |nodes| nodes.unseen.saturating_add(1)));
        let listed = report.limits.slurm.get(STEP_NODES).map(|list| node_list::expanded(list, MOST_TOLD));
        let names = named.into_iter().flat_map(|nodes| &nodes.unseen_names).chain(listed.iter().flatten());
        for name in names {
            if self.names.len() < MOST_TOLD {
                self.names.insert(super::head::cut(name));
            }
        }
    }
}
