//! Concludes, from a first look at all reports, which belong together: those of a node, of a machine, of one time.
//!
//! In a run with `--nodes`, the launcher is the gpu-track-run that the user started, and an agent tracks each other node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use super::grid::Grid;
use super::head::Head;
use super::quantity::Span;
use crate::model::report::UnreadFile;
use crate::model::sorting::{InOrder, Sorting};

/// Reports with no longer gap between their times than this are taken for reports of one run, microseconds.
const TOLERATED_GAP_US: i64 = 60_000_000;
/// The longest time of a report of a run, microseconds: a year. A longer report is forged, and would leave too few bins of time
/// to the others.
const MOST_LENGTH_US: u64 = 366 * 86_400 * 1_000_000;
/// A report may be longer than [`MOST_LENGTH_US`] if it is no longer than this many times the median of all reports.
const MOST_MEDIANS: u64 = 100;

/// A file with a report.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name.
    pub file: String,
    /// What a first look at it tells.
    pub head: Head,
    /// A hash of its content: files with the same hash are copies of each other. `None`: unknown, so it is not taken for a copy.
    pub content: Option<u64>,
}

/// Which node, machine and time the reports are of.
#[derive(Debug, Default)]
pub struct Plan {
    sources: Vec<Source>,
    /// For each source, its place among the sources that [`Plan::new`] was given.
    places: Vec<usize>,
    /// The reports in the order in which they are to be merged: those of a machine together, and those of a node in it.
    order: Vec<usize>,
    /// For each source, the number of its node in `nodes`.
    node_of: Vec<usize>,
    pub(super) nodes: Vec<NodePlan>,
    pub(super) grid: Grid,
    /// Sources that are in no bin of the grid: too far in time from the others, or too long.
    pub(super) apart: BTreeSet<usize>,
    /// Sources that do not overlap in time with the largest group, directly or by way of others.
    pub(super) outside: Vec<usize>,
    pub(super) unread: Vec<UnreadFile>,
    /// The number of the source that the launcher made, whose agents made the others. `None`: there is none, or more than one.
    launcher: Option<usize>,
    /// The batch jobs.
    pub(super) jobs: BTreeSet<String>,
}

/// A node.
#[derive(Debug, Clone)]
pub(super) struct NodePlan {
    /// Its name, which no other node has.
    pub name: String,
    /// The number of its machine.
    pub machine: usize,
    /// How many reports are of it.
    pub reports: u64,
    /// How far its clock is ahead, seconds; `None`: unknown.
    pub clock_offset_s: Option<f64>,
}

impl Plan {
    /// Concludes which reports belong together. `unread`: files in which no report was found, each with the reason. Copies and
    /// merged reports are added to these.
    pub fn new(sources: Vec<Source>, unread: Vec<(String, String)>) -> Self {
        let mut unread: Vec<_> =
            unread.into_iter().map(|(file, reason)| UnreadFile { file, reason }).collect();
        let mut placed: Vec<(usize, Source)> = sources.into_iter().enumerate().collect();
        placed.order_by(|(_, a), (_, b)| a.file.cmp(&b.file));
        leave_out_doubles(&mut placed, &mut unread);
        let (places, mut sources): (Vec<usize>, Vec<Source>) = placed.into_iter().unzip();
        let launcher = launcher(&sources);
        correct_clocks(&mut sources, launcher);
        let (nodes, node_of) = number_nodes(&sources);
        let spans: Vec<Span> = sources.iter().map(|source| source.head.span).collect();
        // The run is as long as the launcher's command. An agent without a command can begin before it and end after it.
        let run = launcher.map(|launcher| spans[launcher]);
        let within_run = |source: &Source| match run {
            Some(run) if source.head.is_watch() => source.head.span.clamped(run),
            _ => source.head.span,
        };
        let times = Times::new(&sources.iter().map(within_run).collect::<Vec<_>>());
        let mut longest_us = vec![0; nodes.len()];
        for (span, node) in spans.iter().zip(&node_of) {
            longest_us[*node] = span.length_us().max(longest_us[*node]);
        }
        let mut order: Vec<usize> = (0..sources.len()).collect();
        // The longest node of a machine comes first, and the longest report of a node. Most figures that count once for a machine
        // or a node are those of its first report.
        order.order_by_key(|at| {
            let span = spans[*at];
            let node = node_of[*at];
            let of_node = (nodes[node].machine, Reverse(longest_us[node]), node);
            (of_node, Reverse(span.length_us()), span.start_us, *at)
        });
        Self {
            jobs: sources.iter().filter_map(|source| source.head.job.clone()).collect(),
            grid: Grid::over(times.extent.start_us, times.extent.end_us),
            apart: times.apart,
            outside: times.outside,
            launcher,
            sources,
            places,
            order,
            node_of,
            nodes,
            unread,
        }
    }

    /// The reports in the order in which they are to be merged, each with the number that other functions take, and its
    /// file.
    pub fn order(&self) -> impl Iterator<Item = (usize, &str)> {
        self.order.iter().map(|at| (*at, self.sources[*at].file.as_str()))
    }

    /// The place of a report among the sources that [`Plan::new`] was given. The name of its file does not tell the place: two
    /// names can be the same, because they are as printed.
    pub fn place(&self, number: usize) -> usize {
        self.places[number]
    }

    /// Whether the file has the content that the first look saw.
    pub fn is_unchanged(&self, number: usize, content: u64) -> bool {
        self.sources[number].content.is_none_or(|seen| seen == content)
    }

    /// Whether there are several reports.
    pub(super) fn has_several(&self) -> bool {
        self.sources.len() > 1
    }

    /// Whether the launcher of the run is known, and this report is of one of its agents.
    pub(super) fn is_of_agent(&self, number: usize) -> bool {
        self.launcher.is_some() && self.sources[number].head.is_of_agent()
    }

    /// Whether the launcher of the run is known, and made this report.
    pub(super) fn is_of_launcher(&self, number: usize) -> bool {
        self.launcher == Some(number)
    }

    /// The node that the launcher ran on, if no batch system gave it to the job: a login node, from which mpirun starts ranks
    /// elsewhere. `None`: there is none.
    pub(super) fn head_node(&self) -> Option<&str> {
        let launcher = self.launcher.filter(|launcher| self.sources[*launcher].head.job.is_none())?;
        Some(self.nodes[self.node(launcher)].name.as_str())
    }

    /// How long the run went on without the agent of this report, at its start and at its end, microseconds. The agent has no
    /// command, and should run until the launcher's command ends. Its start counts as 0 if the first program that reached
    /// other nodes has waited for it. `None`: the report is not of such an agent, or the launcher is not known.
    pub(super) fn absence_us(&self, number: usize) -> Option<(i64, i64)> {
        let (head, launcher) = (&self.sources[number].head, self.sources.get(self.launcher?)?);
        let (agent, run) = (head.span, launcher.head.span);
        let late_us = agent.start_us.saturating_sub(run.start_us);
        let ready_s = launcher.head.node_part.as_ref().and_then(|part| part.ready_s);
        let is_awaited = ready_s.is_some_and(|ready_s| late_us as f64 / 1e6 <= ready_s);
        let late_us = if is_awaited { 0 } else { late_us };
        head.is_watch().then(|| (late_us, run.end_us.saturating_sub(agent.end_us)))
    }

    pub(super) fn file(&self, number: usize) -> &str {
        &self.sources[number].file
    }

    pub(super) fn span(&self, number: usize) -> Span {
        self.sources[number].head.span
    }

    pub(super) fn node(&self, number: usize) -> usize {
        self.node_of[number]
    }

    pub(super) fn is_apart(&self, number: usize) -> bool {
        self.apart.contains(&number)
    }
}

/// Finds the number of the report that a launcher of agents made. `None`: there is none, or more than one.
fn launcher(sources: &[Source]) -> Option<usize> {
    let is_of_launcher = |source: &Source| source.head.node_part.as_ref().is_some_and(|part| !part.is_agent);
    let mut numbers = (0..sources.len()).filter(|number| is_of_launcher(&sources[*number]));
    numbers.next().filter(|_| numbers.next().is_none())
}

/// Corrects the times of agents' reports to the launcher's clock. Launcher and agents each compared their own clock with that of
/// the directory that they shared. An offset that the user gave stays.
fn correct_clocks(sources: &mut [Source], launcher: Option<usize>) {
    let Some(head) = launcher.map(|launcher| &sources[launcher].head) else { return };
    let Some(ahead_s) = head.clock_ahead_s() else { return };
    // How far the launcher's times are ahead of the directory's clock. An offset that the user gave has moved them already.
    let launcher_s = ahead_s - head.clock_offset_s.unwrap_or(0.0);
    for head in sources.iter_mut().map(|source| &mut source.head).filter(|head| head.clock_offset_s.is_none())
    {
        if let Some(agent_s) = head.clock_ahead_s().filter(|_| head.is_of_agent()) {
            head.set_clock_offset(agent_s - launcher_s);
        }
    }
}

/// Moves the files from `placed` to `unread` whose figures would count twice: copies, and reports that were made of several. Of
/// the files with the same content, the first is kept.
fn leave_out_doubles(placed: &mut Vec<(usize, Source)>, unread: &mut Vec<UnreadFile>) {
    // The file that is kept of each content.
    let mut kept: HashMap<u64, String> = HashMap::new();
    placed.retain(|(_, source)| {
        let same = source.content.and_then(|content| kept.get(&content));
        let reason = match (source.head.is_merged, same) {
            (true, _) => {
                "it is a merged report: the reports that it was made of are what can be merged".to_owned()
            }
            (false, Some(same)) => format!("it is a copy of {same}"),
            (false, None) => {
                kept.extend(source.content.map(|content| (content, source.file.clone())));
                return true;
            }
        };
        unread.push(UnreadFile { file: source.file.clone(), reason });
        false
    });
    unread.order_by(Ord::cmp);
}

/// What tells nodes apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct NodeKey {
    /// The host name, or the file if the report has none.
    name: String,
    /// The boot id of its machine. `None`: unknown.
    boot: Option<String>,
}

/// Finds the nodes, and for each source the number of its node. Two nodes differ in host name or boot id, two machines in the
/// boot id.
fn number_nodes(sources: &[Source]) -> (Vec<NodePlan>, Vec<usize>) {
    let keys = node_keys(sources);
    // The number of each node, 0 until the loop below has found it.
    let mut numbers = keys.iter().map(|key| (key, 0)).ordered_map();
    let mut nodes_of_name: BTreeMap<&str, usize> = BTreeMap::new();
    for key in numbers.keys() {
        *nodes_of_name.entry(key.name.as_str()).or_default() += 1;
    }
    let mut machines: BTreeMap<String, usize> = BTreeMap::new();
    let mut nodes: Vec<NodePlan> = Vec::with_capacity(numbers.len());
    for (NodeKey { name, boot }, number) in &mut numbers {
        let next_machine = machines.len();
        // Without a boot id, the node is a machine of its own. Its key has a space, which no boot id has.
        let machine = boot.clone().unwrap_or_else(|| format!("host {name}"));
        let is_only = nodes_of_name.get(name.as_str()) == Some(&1);
        *number = nodes.len();
        nodes.push(NodePlan {
            name: match boot {
                Some(boot) if !is_only => format!("{name} (boot {boot})"),
                _ => name.clone(),
            },
            machine: *machines.entry(machine).or_insert(next_machine),
            reports: 0,
            clock_offset_s: None,
        });
    }
    let node_of: Vec<usize> = keys.iter().map(|key| numbers[key]).collect();
    for (node, source) in node_of.iter().zip(sources) {
        nodes[*node].reports += 1;
        let offset_s = &mut nodes[*node].clock_offset_s;
        *offset_s = source.head.clock_offset_s.or(*offset_s);
    }
    (nodes, node_of)
}

/// The key of each source's node. A report without a boot id, which earlier versions wrote, gets that of the other reports
/// of its host, if these have only one.
fn node_keys(sources: &[Source]) -> Vec<NodeKey> {
    let mut boots: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for head in sources.iter().map(|source| &source.head) {
        if let (Some(host), Some(boot)) = (&head.hostname, &head.boot_id) {
            boots.entry(host).or_default().insert(boot);
        }
    }
    let only_boot = |host: &str| {
        let boots = boots.get(host).filter(|boots| boots.len() == 1)?;
        boots.first().map(|boot| (*boot).to_owned())
    };
    let key = |source: &Source| {
        let Head { hostname, boot_id, .. } = &source.head;
        match hostname {
            Some(host) => NodeKey { name: host.clone(), boot: boot_id.clone().or_else(|| only_boot(host)) },
            None => NodeKey { name: source.file.clone(), boot: boot_id.clone() },
        }
    };
    sources.iter().map(key).collect()
}

/// The times of the reports.
struct Times {
    /// From the first start to the last end, of those that belong together.
    extent: Span,
    /// Reports that are too far from the extent to share a grid with the others, or too long.
    apart: BTreeSet<usize>,
    /// Reports that do not overlap with the largest group, directly or by way of others.
    outside: Vec<usize>,
}

/// Reports that overlap in time, directly or by way of others.
struct Group {
    /// From their first start to their last end.
    extent: Span,
    /// Their numbers.
    members: Vec<usize>,
}

impl Times {
    /// Finds which reports are of one time. The largest group of reports that overlap is taken for the run, and groups that are
    /// near to it belong to it. Reports that are longer than any run are apart.
    fn new(spans: &[Span]) -> Self {
        let longest_us = longest_of_a_run_us(spans);
        let is_too_long = |at: &usize| spans[*at].length_us() > longest_us;
        let (mut apart, mut order): (Vec<usize>, Vec<usize>) = (0..spans.len()).partition(is_too_long);
        order.order_by_key(|at| (spans[*at].start_us, spans[*at].end_us));
        let groups = groups(spans, &order);
        if groups.is_empty() {
            // Only without reports, since the one of median length is never too long.
            let extent = Span { start_us: 0, end_us: 0 };
            return Self { extent, apart: BTreeSet::new(), outside: Vec::new() };
        }
        // Of several groups with most reports, the first one.
        let most = groups.iter().map(|group| group.members.len()).max().unwrap_or(0);
        let main = groups.iter().position(|group| group.members.len() == most).unwrap_or(0);
        let (of_run, extent) = near_groups(&groups, main);
        let mut outside = Vec::new();
        for (at, group) in groups.into_iter().enumerate().filter(|(at, _)| *at != main) {
            if !of_run.contains(&at) {
                apart.extend(&group.members);
            }
            outside.extend(group.members);
        }
        outside.sort_unstable();
        Self { extent, apart: apart.into_iter().collect(), outside }
    }
}

/// Which groups belong to the run whose largest group is `main`, and their extent. Groups are added on both sides, as long
/// as the gap before the next one is no longer than the largest group or [`TOLERATED_GAP_US`]. `groups` are in the order of
/// their times.
fn near_groups(groups: &[Group], main: usize) -> (RangeInclusive<usize>, Span) {
    let mut extent = groups[main].extent;
    let gap_us = TOLERATED_GAP_US.max(extent.end_us - extent.start_us);
    let (mut first, mut last) = (main, main);
    loop {
        let before = first.checked_sub(1).map(|at| groups[at].extent);
        let after = groups.get(last + 1).map(|group| group.extent);
        if let Some(span) = before.filter(|span| extent.start_us - span.end_us <= gap_us) {
            extent.start_us = span.start_us;
            first -= 1;
        } else if let Some(span) = after.filter(|span| span.start_us - extent.end_us <= gap_us) {
            extent.end_us = span.end_us;
            last += 1;
        } else {
            return (first..=last, extent);
        }
    }
}

/// The longest time that a report of the run can have, microseconds: [`MOST_LENGTH_US`], or [`MOST_MEDIANS`] times the median
/// if that is longer.
fn longest_of_a_run_us(spans: &[Span]) -> u64 {
    let mut lengths_us: Vec<u64> = spans.iter().map(|span| span.length_us()).collect();
    lengths_us.sort_unstable();
    let median_us = lengths_us.get(lengths_us.len() / 2).copied().unwrap_or(0);
    median_us.saturating_mul(MOST_MEDIANS).max(MOST_LENGTH_US)
}

/// Divides reports into groups that overlap in time. `order`: the reports in the order of their starts.
fn groups(spans: &[Span], order: &[usize]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for at in order {
        let span = spans[*at];
        match groups.last_mut().filter(|group| span.start_us <= group.extent.end_us) {
            Some(group) => {
                group.extent.end_us = group.extent.end_us.max(span.end_us);
                group.members.push(*at);
            }
            None => groups.push(Group { extent: span, members: vec![*at] }),
        }
    }
    groups
}
