//! Takes reports one by one, and keeps sums of them. Of each report, only its first look and its rank are kept.

use std::collections::BTreeSet;

use super::agent_part::{count_as_descendants, note_absence};
use super::commands::Commands;
use super::common::Common;
use super::ending::{Endings, LauncherEnd};
use super::head::cut;
use super::machine::Machines;
use super::merged_processes::MergedProcesses;
use super::merged_tasks::MergedTasks;
use super::node::OpenNode;
use super::node_warnings::NodeWarnings;
use super::plan::Plan;
use super::quantity::Axis;
use super::ranks::RankTable;
use super::sums::{Quantities, Sums};
use super::time_spent::TimeSums;
use super::totals::{Known, Totals};
use super::usable::UsableOfMachine;
use crate::model::report::{
    ContainerUsage, CoresSource, GpusSource, MemorySource, Node, RankUsage, Report, ReportFiles, Series,
    Topic, UnreadFile, Warning,
};
use crate::read::ReadReport;

/// Points that the series of all nodes have together: with 1,000 nodes, 30 each.
const NODE_POINTS: usize = 30_000;
/// Maximum number of nodes that are listed.
const MOST_NODES: usize = 10_000;
/// Maximum number of containers that are listed.
const MOST_CONTAINERS: usize = 1000;
/// Maximum number of GPUs that are listed.
const MOST_GPUS: usize = 20_000;
/// Maximum number of files that are named because they are not in the report.
const MOST_UNREAD: usize = 1000;
/// Maximum number of nodes of the job whose names are kept.
const MOST_NAMES: usize = 10_000;

/// A merged report.
#[derive(Debug)]
pub struct MergedReport {
    /// The report.
    pub report: Report,
    /// All ranks, by job and rank.
    pub ranks: Vec<RankUsage>,
}

/// The reports so far.
#[derive(Default)]
pub struct Merger {
    /// Which reports are merged, in which order, and in which bins of time.
    pub plan: Plan,
    pub(super) sums: Sums,
    pub(super) machines: Machines,
    pub(super) totals: Totals,
    pub(super) processes: MergedProcesses,
    pub(super) tasks: MergedTasks,
    /// The containers of all reports, the first [`MOST_CONTAINERS`] of them.
    pub(super) containers: Vec<ContainerUsage>,
    pub(super) commands: Commands,
    pub(super) common: Common,
    pub(super) time_spent: TimeSums,
    pub(super) endings: Endings,
    pub(super) node_warnings: NodeWarnings,
    pub(super) ranks: RankTable,
    pub(super) usable: Usables,
    pub(super) nodes: Vec<Node>,
    pub(super) unlisted: Unlisted,
    pub(super) job_nodes: JobNodes,
    pub(super) files: ReportFiles,
    /// Numbers of the nodes of which a report was read.
    pub(super) read_nodes: BTreeSet<usize>,
    /// The report, if there is a single one so far.
    pub(super) only: Option<Box<Report>>,
    /// The node whose reports are being read: its number, and the sums of its reports so far.
    open: Option<(usize, OpenNode)>,
}

/// What nodes may use: sums over the machines, and what sets them.
#[derive(Default)]
pub(super) struct Usables {
    /// Sums of the machine whose reports are being read.
    of_machine: UsableOfMachine,
    pub cores: f64,
    /// Of several sources, the first one of the enum's order: the most specific.
    pub cores_source: Option<CoresSource>,
    /// `--n-expected-cores` of the nodes, else the cores of the machines.
    pub expected_cores: u64,
    pub memory_bytes: Known,
    /// Of several sources, the first one of the enum's order: the most specific.
    pub memory_source: Option<MemorySource>,
    /// The least limit of a process's address space, bytes.
    pub address_space_bytes: Option<u64>,
    /// In some report, an environment variable chose the GPUs.
    pub gpus_by_environment: bool,
}

/// What is left out of the list of nodes.
#[derive(Default)]
pub(super) struct Unlisted {
    pub nodes: u64,
    pub gpus: u64,
    /// GPUs that are in the list so far, which limits how many more are listed.
    listed_gpus: usize,
}

/// The nodes of the job, as far as reports name or count them.
#[derive(Default)]
pub(super) struct JobNodes {
    /// The names in the reports.
    pub names: BTreeSet<String>,
    /// How many nodes the job has at least: the most that one report counts, its own included.
    pub most: u64,
}

impl Merger {
    /// Begins with no report.
    pub fn new(mut plan: Plan) -> Self {
        let mut files = ReportFiles::default();
        for file in std::mem::take(&mut plan.unread) {
            leave_out(&mut files, file);
        }
        Self {
            sums: Sums::new(plan.grid),
            machines: Machines::new(plan.grid),
            ranks: RankTable::new(plan.grid),
            plan,
            files,
            ..Self::default()
        }
    }

    /// Notes that a report of the plan can't be read now.
    pub fn leave_out(&mut self, number: usize, reason: String) {
        let file = self.plan.file(number).to_owned();
        leave_out(&mut self.files, UnreadFile { file, reason });
    }

    /// Adds the report of this number of the plan, the next one of [`Plan::order`], to all sums. If it is of another node or
    /// machine than the one before, that one is closed.
    pub fn add(&mut self, number: usize, read: ReadReport) {
        let report = part_of_run(&self.plan, number, read);
        // `is_apart`: the report is too far in time from the others, or too long, to have a place on their time axis.
        let (span, is_apart) = (self.plan.span(number), self.plan.is_apart(number));
        self.open_node(self.plan.node(number));
        self.files.read += 1;
        let axis = Axis::new(&report, span, is_apart);
        let quantities = Quantities::from_report(&report, &axis);
        self.sums.add(&quantities, &report);
        self.machines.add(&report, &axis);
        // An agent's report has no command, or a daemon of MPI as its command. That is not the command of the run.
        if !self.plan.is_of_agent(number) {
            let node = &self.plan.nodes[self.plan.node(number)].name;
            self.endings.add(span.end_us, node, self.plan.file(number), &report);
            self.commands.add(&report.command, span.start_us);
        }
        self.common.add(&report);
        self.usable.add(&report);
        self.job_nodes.add(&report);
        if let Some((_, open)) = &mut self.open {
            open.add(self.plan.file(number), &report, &axis, &quantities);
            let name = &open.name;
            self.time_spent.add(name, &report);
            self.totals.add(name, &report, span.length_us());
            let start_s = (!is_apart).then(|| (span.start_us - self.plan.grid.start_us) as f64 / 1e6);
            self.processes.add(name, &report, start_s);
            self.tasks.add(name, &report, start_s);
            add_containers(&mut self.containers, name, &report, start_s);
            self.node_warnings.add(name, &report);
            self.ranks.add(name, &report, span, &quantities);
            if self.plan.is_of_launcher(number) {
                self.ranks.launcher = Some(LauncherEnd::new(span.end_us, &report));
            }
        }
        self.only = (self.files.read == 1).then(|| Box::new(report));
    }

    /// Opens the node of this number. If another one is open, it is closed, and its machine, too, unless it is the same.
    fn open_node(&mut self, number: usize) {
        if self.open.as_ref().is_some_and(|(open, _)| *open == number) {
            return;
        }
        let before = self.close_node();
        let machine = |node: usize| self.plan.nodes[node].machine;
        if before.is_some_and(|before| machine(before) != machine(number)) {
            self.close_machine();
        }
        self.open = Some((number, OpenNode::new(&self.plan.nodes[number], self.plan.grid)));
    }

    /// Closes the node that is open: notes that it has a report, adds what it may use to its machine's sums, and lists it. Returns
    /// its number. `None`: no node is open.
    fn close_node(&mut self) -> Option<usize> {
        let (number, open) = self.open.take()?;
        self.read_nodes.insert(number);
        let is_listed = self.nodes.len() < MOST_NODES;
        let closed = open.close(is_listed.then(|| self.bins_per_node_point()));
        self.usable.of_machine.add(&closed);
        self.list_node(closed.node, is_listed);
        Some(number)
    }

    /// Closes the machine that is open, after its nodes, and adds what these may use of it to the sums of all machines.
    fn close_machine(&mut self) {
        let of_nodes = std::mem::take(&mut self.usable.of_machine);
        if let Some(size) = self.machines.close() {
            self.usable.cores += of_nodes.cores(size);
            self.usable.expected_cores =
                self.usable.expected_cores.saturating_add(of_nodes.expected_cores(size));
            self.usable.memory_bytes.add(of_nodes.memory_bytes(size));
        }
    }

    /// Lists a node if `is_listed`, otherwise only counts it. Its GPUs are only counted if the node is, or if too many GPUs are
    /// listed already.
    fn list_node(&mut self, mut node: Node, is_listed: bool) {
        let gpus = node.gpus.len();
        if !is_listed || self.unlisted.listed_gpus + gpus > MOST_GPUS {
            self.unlisted.gpus += gpus as u64;
            node.gpus = Vec::new();
        }
        self.unlisted.listed_gpus += node.gpus.len();
        if is_listed {
            self.nodes.push(node);
        } else {
            self.unlisted.nodes += 1;
        }
    }

    /// How many bins a point of a node's series has. The more nodes there are, the fewer points each has.
    pub(super) fn bins_per_node_point(&self) -> usize {
        let points = (NODE_POINTS / self.plan.nodes.len().max(1)).clamp(1, Series::MOST_POINTS);
        self.plan.grid.bins.div_ceil(points)
    }

    /// Makes the report of all. If a single report was read, and no file and no rank is missing, that report is taken itself.
    ///
    /// # Errors
    /// If no report was added: the files, and why each has no report.
    pub fn finish(mut self) -> Result<MergedReport, ReportFiles> {
        let only = self.only.take();
        if self.close_node().is_none() {
            return Err(self.files);
        }
        self.close_machine();
        self.ranks.close();
        let ranks = self.ranks.all().cloned().collect();
        let is_all = self.files.unread == 0 && self.ranks.unseen().is_none();
        let report = match only.filter(|_| is_all) {
            Some(mut report) => {
                // The directory is named only for reports that are still to be merged.
                if let Some(part) = &mut report.node_part {
                    part.directory = None;
                }
                report.hints = self.hints_of_all(report.hints);
                *report
            }
            None => self.assemble(),
        };
        Ok(MergedReport { report, ranks })
    }
}

/// The report of this number as a part of the run:
///
/// - What it lacks because an older version wrote it becomes a warning.
/// - A report of an agent counts all its processes as descendants.
/// - If the agent has no command, the report notes how long the agent was absent.
/// - A warning about nodes that the launcher or an agent can't see is left out, if there are several reports.
fn part_of_run(plan: &Plan, number: usize, read: ReadReport) -> Report {
    let ReadReport { mut report, note } = read;
    report.warnings.extend(note.map(|note| Warning::new(Topic::Figures, note)));
    let is_of_agent = plan.is_of_agent(number);
    if is_of_agent {
        count_as_descendants(&mut report);
    }
    if let Some((late_us, early_us)) = plan.absence_us(number) {
        note_absence(&mut report, late_us, early_us);
    }
    if plan.has_several() && (is_of_agent || plan.is_of_launcher(number)) {
        // Each report names the nodes that it can't see. The merged report names only those without a report.
        report.warnings.retain(|warning| warning.topic != Topic::OtherNodes);
    }
    report
}

/// Notes that a file is not in the report. Only the first [`MOST_UNREAD`] are named.
fn leave_out(files: &mut ReportFiles, file: UnreadFile) {
    files.unread += 1;
    if files.unread_files.len() < MOST_UNREAD {
        files.unread_files.push(file);
    }
}

impl Usables {
    /// Adds what sets the usable cores, memory and GPUs of a report, and the limit of a process's address space. How much a node may
    /// use is added when the node is closed.
    fn add(&mut self, report: &Report) {
        let usable = &report.usable;
        let cores = [Some(usable.cores.source), self.cores_source].into_iter().flatten();
        self.cores_source = cores.min_by_key(|source| *source as u8);
        let memory = [usable.memory.source, self.memory_source].into_iter().flatten();
        self.memory_source = memory.min_by_key(|source| *source as u8);
        let limits = [usable.memory.process_address_space_bytes, self.address_space_bytes];
        self.address_space_bytes = limits.into_iter().flatten().min();
        self.gpus_by_environment |= usable.gpus.source == Some(GpusSource::Environment);
    }
}

impl JobNodes {
    /// Adds the nodes that a report names as not seen, and those of its Slurm step.
    fn add(&mut self, report: &Report) {
        let unseen = report.coverage.nodes.as_ref();
        // The report's own node is not among the unseen ones, so it is one more.
        self.most = self.most.max(unseen.map_or(0, |nodes| nodes.unseen.saturating_add(1)));
        let job = report.allowed.job();
        self.most = self.most.max(job.step_node_count().unwrap_or(0));
        let of_step = job.step_nodes(MOST_NAMES);
        let unseen_names = unseen.into_iter().flat_map(|nodes| &nodes.unseen_names);
        for name in unseen_names.chain(&of_step) {
            if self.names.len() < MOST_NAMES {
                self.names.insert(super::head::cut(name));
            }
        }
    }
}

/// Adds the containers of a report of this node. Its command started `start_s` seconds after the first one; `None`: its time has
/// nothing to do with that of the others.
fn add_containers(all: &mut Vec<ContainerUsage>, node: &str, report: &Report, start_s: Option<f64>) {
    let free = MOST_CONTAINERS.saturating_sub(all.len());
    all.extend(report.containers.iter().take(free).map(|container| ContainerUsage {
        name: cut(&container.name),
        image: cut(&container.image),
        reason: container.reason.as_deref().map(cut),
        start_s: Option::zip(start_s, container.start_s).map(|(start_s, after_s)| start_s + after_s),
        node: Some(node.to_owned()),
        ..container.clone()
    }));
}
